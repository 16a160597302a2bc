//! The Rust SDK: against a real agent, and as a package.

mod api;
mod away;
mod conformance;
mod examples;
mod package;
mod public_api;
