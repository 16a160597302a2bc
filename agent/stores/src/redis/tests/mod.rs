//! Every script against a real server.

#![allow(clippy::unwrap_used, reason = "a test says so by failing")]

mod foreign;
mod leader;
mod lease;
mod master;
mod mixed;
mod semaphore;
mod sessions;
mod shared;
mod store;
