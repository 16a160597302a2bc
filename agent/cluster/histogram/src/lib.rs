//! Histograms that keep nothing, in place of those of the crate `base2histogram`.
//!
//! openraft counts the sizes of its batches in them, and shows them only with its feature `runtime-stats`, which is
//! off here. The first histogram of the original makes tables for 16 resolutions, 26 MiB of which it uses 6 KiB.
//!
//! Here is what openraft compiles without that feature. With it there is no [`AsciiChart`] to print, and the build
//! fails: better than statistics that are all zero.

#![forbid(unsafe_code)]

use std::fmt;
use std::marker::PhantomData;

/// A histogram that forgets what it is told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Histogram<T = ()> {
    slots: PhantomData<T>,
}

impl<T> Histogram<T> {
    /// An empty one, as it stays.
    pub fn new() -> Histogram<T> {
        Histogram { slots: PhantomData }
    }

    /// Does nothing.
    pub fn record(&mut self, _value: u64) {}

    /// Does nothing.
    pub fn record_n(&mut self, _value: u64, _count: u64) {}

    /// Those of no samples.
    pub fn percentile_stats(&self) -> PercentileStats {
        PercentileStats::default()
    }
}

/// The percentiles of a histogram: zeros.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct PercentileStats {
    pub samples: u64,
    pub p50: u64,
    pub p90: u64,
    pub p99: u64,
    pub p99_9: u64,
}

impl fmt::Display for PercentileStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not kept")
    }
}

/// A chart that nobody can print.
#[derive(Debug, Default)]
pub struct AsciiChart;

impl AsciiChart {
    /// An empty one, as it stays.
    pub fn new() -> AsciiChart {
        AsciiChart
    }

    /// Does nothing.
    #[must_use]
    pub fn add(self, _name: &str, _histogram: Histogram) -> AsciiChart {
        self
    }
}

#[cfg(test)]
mod tests {
    /// Cargo leaves out a patch that no longer fits, and says so in a warning alone.
    #[test]
    fn the_workspace_builds_no_other_crate_of_this_name() {
        let lock = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../Cargo.lock");
        let lock = std::fs::read_to_string(lock).expect("it is in the repository");
        let named = |package: &&str| package.contains("name = \"base2histogram\"");
        let found: Vec<&str> = lock.split("[[package]]").filter(named).collect();
        assert_eq!(found.len(), 1);
        assert!(!found[0].contains("source ="), "{}", found[0]);
    }
}
