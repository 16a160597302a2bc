//! The inside of the engine. Its answers are in the transcripts of `tests/conformance`.

#![allow(clippy::unwrap_used, reason = "a test says so by failing")]

mod history;
mod image;
mod limits;
mod mirror;
mod properties;
mod steps;
mod timing;

use super::TokenRange;

const TOKENS: TokenRange = TokenRange { first: 1, last: 1_000_000 };
