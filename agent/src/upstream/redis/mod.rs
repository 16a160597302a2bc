//! Redis as the upstream: several hosts, and programs that use these layouts today, contend on one
//! server.

pub mod address;
pub mod exchange;
pub mod layout;
pub mod link;
#[cfg(test)]
mod tests;
