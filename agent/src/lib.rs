//! The Tenure agent: one daemon per host that keeps leadership, leases and semaphore permits for
//! every process on it.
//!
//! ARCHITECTURE.md at the root of the repository names the rooms; imports point one way:
//! `main → api → heart → keeper`, `heart → upstream → engine`, and anyone may use [`model`],
//! [`host::clock`], [`config`] types and the wire types of the `tenure` crate.

#![allow(missing_docs, reason = "a name that says all needs no comment; nobody else links this")]

pub mod api;
pub mod config;
pub mod engine;
pub mod heart;
pub mod host;
pub mod journal;
pub mod keeper;
pub mod lifecycle;
pub mod model;
pub mod telemetry;
pub mod turn;
pub mod upstream;
