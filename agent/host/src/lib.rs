//! Everything that differs by operating system: clock, timer, peer identity, process watch, page
//! files, socket, signals, service manager. The only place with `unsafe` or FFI.

#![allow(missing_docs, reason = "a name that says all needs no comment; nobody else links this")]

pub mod clock;
pub mod directory;
pub mod lock;
pub mod machine;
pub mod marks;
pub mod memory;
pub mod page;
pub mod peer;
pub mod process;
pub mod program;
pub mod service_manager;
pub mod signals;
pub mod socket;
pub mod tcp;
pub mod timer;
