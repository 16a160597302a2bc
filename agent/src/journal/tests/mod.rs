//! What is written comes back, and what cannot come back is known.

#![allow(clippy::unwrap_used, reason = "a file that cannot be used is a failed test")]

mod database;
mod ledger;
mod samples;
mod timing;
