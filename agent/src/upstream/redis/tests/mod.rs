//! Every script against a real server.

#![allow(clippy::unwrap_used, reason = "a test says so by failing")]

mod foreign;
mod leader;
mod semaphore;
mod shared;
mod store;
