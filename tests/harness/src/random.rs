//! The only source of chance.

use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// A generator that drives a whole run: the same seed gives the same run.
#[derive(Debug)]
pub struct Random(ChaCha8Rng);

impl Random {
    /// The generator of a seed.
    pub fn new(seed: u64) -> Random {
        Random(ChaCha8Rng::seed_from_u64(seed))
    }

    /// A number below `end`; 0 if that is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        // The bias of the remainder is of no consequence for ranges as small as these.
        self.0.next_u64() % end.max(1)
    }

    /// A number from `low` to `high`, both included.
    pub fn number(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// True so many times out of a thousand.
    pub fn per_mille(&mut self, chance: u32) -> bool {
        self.below(1000) < u64::from(chance)
    }

    /// A duration from `low` to `high`.
    pub fn between(&mut self, low: Duration, high: Duration) -> Duration {
        let ns = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(self.number(ns(low), ns(high)))
    }

    /// A duration from `low_ms` to `high_ms`.
    pub fn ms(&mut self, low_ms: u64, high_ms: u64) -> Duration {
        self.between(Duration::from_millis(low_ms), Duration::from_millis(high_ms))
    }

    /// A duration from `low_us` to `high_us`.
    pub fn us(&mut self, low_us: u64, high_us: u64) -> Duration {
        self.between(Duration::from_micros(low_us), Duration::from_micros(high_us))
    }

    /// One of them.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        let at = self.below(of.len() as u64) as usize;
        &of[at]
    }

    /// One of them, each as often as its weight says.
    pub fn weighted<T: Copy>(&mut self, of: &[(u64, T)]) -> T {
        let mut at = self.below(of.iter().map(|(weight, _)| weight).sum());
        for (weight, choice) in of {
            if at < *weight {
                return *choice;
            }
            at -= weight;
        }
        unreachable!("a choice among nothing")
    }

    /// Seed for a part that has a generator of its own.
    pub fn seed(&mut self) -> [u8; 32] {
        let mut seed = [0; 32];
        self.0.fill_bytes(&mut seed);
        seed
    }
}
