//! Redis as the upstream: several hosts, and programs that use these layouts today, contend on one
//! server.
//!
//! Every operation is one script, which may be run again: the id of a claim is the id of its
//! operations. Beats have a connection of their own. What comes over the push connection is a hint,
//! and makes somebody ask.

pub mod address;
mod calls;
mod care;
pub mod exchange;
mod feed;
mod known;
pub mod layout;
pub mod link;
#[cfg(test)]
mod tests;
