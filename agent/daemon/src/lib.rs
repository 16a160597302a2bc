//! The Tenure agent: one daemon per host that keeps leadership, leases and semaphore permits for
//! every process on it.
//!
//! ARCHITECTURE.md at the root of the repository names the rooms; imports point one way:
//! `main → lifecycle → api → heart → telemetry`, and anyone may use [`config`] types. What decides is in
//! `tenure-core`, the stores are in `tenure-stores`, what differs by operating system in `tenure-host`.

#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "a name that says all needs no comment; nobody else links this")]

pub mod api;
pub mod config;
pub mod heart;
pub mod lifecycle;
pub mod policy;
pub mod telemetry;
