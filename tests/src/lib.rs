//! What the end-to-end tests and the benchmarks share: real agents, real programs, real sockets.

pub mod bench;
pub mod harness;
