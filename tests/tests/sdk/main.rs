//! The Rust SDK: against a real agent, and as a package; and readers of the page in other languages.

mod api;
mod away;
mod campaigns;
mod conformance;
mod examples;
mod package;
mod public_api;
mod readers;
mod turns;
