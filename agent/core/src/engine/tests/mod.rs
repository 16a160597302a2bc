//! Transcripts: requests, each followed by the answer (`=`) and the changes (`!`) that are expected.
//! See [`transcript`].

#![allow(clippy::unwrap_used, reason = "a transcript that cannot be read is a failed test")]

mod endings;
mod exclusive;
mod lease;
mod limits;
mod mirror;
mod properties;
mod semaphore;
mod sessions;
mod steps;
mod timing;
mod transcript;

use transcript::check;
