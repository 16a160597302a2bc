//! Tests of the whole: what the end-to-end tests and the benchmarks share (real agents, real
//! programs, real sockets), the simulation, and the model test of the Redis scripts.

pub mod bench;
pub mod harness;
pub mod model;
pub mod sim;
