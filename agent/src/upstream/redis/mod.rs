//! Redis as the upstream: several hosts, and programs that use these layouts today, contend on one
//! server.

pub mod address;
pub mod exchange;
pub mod layout;
pub mod link;
mod pushes;
mod sentinel;
mod sign_in;
mod stream;
mod trouble;

pub use pushes::{Heard, Pushes};
pub use sign_in::Server;
pub use trouble::Trouble;
