//! A deterministic simulation of agents, programs and an upstream, in one thread and one process; and [`fleet`], of what
//! many agents cost a Redis.
//!
//! [`run`] draws a `Plan` from a seed, and then everything from the same generator: which
//! message is late, lost or doubled, who is stopped, killed or put to sleep, what programs ask for.
//! The keepers, their turns, the engine, and the embedded store with its journal and its ledger are those
//! of the product; what is simulated is everything around them. A run has a safety phase with faults, a liveness phase without, and a last phase in which
//! all programs end. After every step the rules of `invariants` are checked; the first
//! violation ends the run, and its seed shows it again.

use tenure_harness::random;

pub mod fleet;

mod agent;
mod behaviour;
mod client;
mod core;
mod invariants;
mod life;
mod link;
mod looks;
mod network;
mod plan;
mod planted;
mod programs;
mod queue;
mod resource_state;
mod rows;
mod shell;
mod storage;
mod store;
mod time;
mod trace;
mod trouble;
mod upstream;
mod world;

pub use invariants::{Invariant, Violation};
pub use planted::Planted;
pub use time::TrueTime;
pub use world::{Options, Outcome, run};
