//! Tests of the whole: what the end-to-end tests and the benchmarks share (real agents, real
//! programs, real sockets), and the simulation.

pub mod bench;
pub mod harness;
pub mod sim;
