//! Gateways that replicate the engine by Raft, with no other server.

#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "a name that says all needs no comment; nobody else links this")]

pub mod backup;
pub mod clock;
pub mod control;
pub mod disk;
mod examine;
pub mod host;
mod keyring;
pub mod keys;
pub mod machine;
pub mod net;
pub mod node;
pub mod raft;
pub mod recovery;
mod settings;
mod size;
mod start;
pub mod store;

pub use self::disk::Folder;
pub use self::examine::even_voters;
pub use self::net::Tls;
pub use settings::{address, client, settings};
