//! Redis as the upstream: several hosts, and programs that use these layouts today, contend on one
//! server.

pub mod address;
pub mod exchange;
pub mod layout;
pub mod link;
mod pushes;
mod sign_in;
mod trouble;

pub use pushes::{Heard, Pushes, pushes};
pub use sign_in::Server;
pub use trouble::Trouble;
