//! Tests of the whole: what the end-to-end tests and the benchmarks share (real agents, real
//! programs, real sockets), and the test of the package in a booted system.

pub mod bench;
pub mod faces;
pub mod harness;
pub mod light;
pub mod packaging;
