//! Gateways that replicate the engine by Raft, with no other server.

#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "a name that says all needs no comment; nobody else links this")]

pub mod clock;
mod disk;
mod examine;
pub mod machine;
mod net;
pub mod node;
pub mod raft;
pub mod store;
