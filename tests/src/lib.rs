//! Tests of the whole: what the end-to-end tests and the benchmarks share (real agents, real
//! programs, real sockets), the simulation, the model test of the Redis scripts, and the test of the
//! package in a booted system.

pub mod bench;
pub mod harness;
pub mod model;
pub mod packaging;
pub mod sim;
