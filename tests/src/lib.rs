//! Tests of the whole: what the end-to-end tests and the benchmarks share (real agents, real
//! programs, real sockets), the simulation, and the test of the package in a booted system.

pub mod bench;
pub mod harness;
pub mod packaging;
pub mod sim;
