//! Nodes talk: frames over one TCP connection, many questions under way at once.

mod link;
mod peers;
mod server;
mod wire;

pub(crate) use link::{Link, LinkError};
pub(crate) use peers::Peers;
pub(crate) use server::serve;
pub(crate) use wire::{Ask, Refusal, Tell};
