//! What Tenure decides, and nothing that it needs for that from a system: no runtime, no clock, no
//! randomness, no I/O. Callers bring the instant and the seed; they carry out what comes back.
//!
//! [`keeper`] is the mind of an agent, [`engine`] knows what *held* means, [`turn`] drives a keeper, and
//! [`model`] is the vocabulary that these share with the stores.

#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "a name that says all needs no comment; nobody else links this")]

pub mod engine;
pub mod keeper;
pub mod model;
pub mod time;
pub mod turn;
