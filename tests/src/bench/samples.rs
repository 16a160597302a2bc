//! Measured values.

/// Values of one quantity.
#[derive(Debug, Clone, Default)]
pub(super) struct Samples {
    sorted: Vec<f64>,
}

impl Samples {
    /// The values given, at least one.
    pub(super) fn new(mut values: Vec<f64>) -> Samples {
        assert!(!values.is_empty(), "nothing was measured");
        values.sort_by(f64::total_cmp);
        Samples { sorted: values }
    }

    /// The value that this part of all values does not exceed.
    pub(super) fn quantile(&self, part: f64) -> f64 {
        let last = self.sorted.len() - 1;
        let index = (part * last as f64).round() as usize;
        self.sorted[index.min(last)]
    }

    /// The middle one.
    pub(super) fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// In ascending order.
    pub(super) fn values(&self) -> &[f64] {
        &self.sorted
    }
}

/// Runs something and tells how long it took, µs.
pub(super) fn timed_us<T>(work: impl FnOnce() -> T) -> (f64, T) {
    let start = crate::harness::boottime_ns();
    let result = work();
    let ns = crate::harness::boottime_ns() - start;
    let us = ns as f64 / 1000.0;
    (us, result)
}
