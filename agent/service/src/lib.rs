//! What the daemons of Tenure share.
//!
//! | room | what |
//! |---|---|
//! | `browsers/` | PURE: which requests are those of web pages of others |
//! | `command_line.rs` | arguments, help, and wrong usage |
//! | `config/` | flags, environment, files → one configuration, and errors that say where a value came from |
//! | `telemetry/` | the log (human, JSON, journal), and the numbers that every process has |
//! | `prepare.rs` | directories and their locks, before anything is opened |
//! | `query.rs` | PURE: query strings |
//! | `thrift.rs` | when free memory goes back to the system |
//!
//! What can be told to a daemon, and what it counts, is the daemon's own.

#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "a name that says all needs no comment; nobody else links this")]

pub mod browsers;
pub mod command_line;
pub mod config;
pub mod prepare;
pub mod query;
pub mod telemetry;
pub mod thrift;
