//! The scripts among other programs, on a real server: formats, foreign keys, and losses. The rules
//! that hold for every store are in `tests/conformance`.

#![allow(clippy::unwrap_used, reason = "a test says so by failing")]

mod collisions;
mod crowd;
mod epoch;
mod foreign;
mod keys;
mod kinds;
mod mixed;
mod shared;
mod store;
mod sweep;
mod tampered;
mod turns;
mod written;
