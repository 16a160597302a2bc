//! What was measured, as a table and as JSON.

use std::fmt;

use serde::Serialize;

/// What a value is held against.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// At most this.
    Most(f64),
    /// At least this.
    Least(f64),
}

/// One target.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// The target's id.
    pub id: String,
    /// What was measured.
    pub what: String,
    /// The median of the rounds, unless `what` says otherwise.
    pub value: f64,
    /// Its unit.
    pub unit: String,
    /// What was wanted, in the same unit.
    pub limit: Limit,
    /// The floor it was measured against, and what else explains the value.
    pub against: String,
}

impl Row {
    /// The value relative to what was wanted: up to 1 is met, whichever way is better.
    pub fn ratio(&self) -> f64 {
        match self.limit {
            Limit::Most(0.0) => {
                if self.value == 0.0 {
                    0.0
                } else {
                    f64::INFINITY
                }
            }
            Limit::Most(most) => self.value / most,
            Limit::Least(least) => least / self.value,
        }
    }

    /// Whether the target is met.
    pub fn met(&self) -> bool {
        self.ratio() <= 1.0
    }
}

/// How often something took how long.
#[derive(Debug, Clone, Serialize)]
pub struct Histogram {
    /// Of what.
    pub what: String,
    /// Upper bounds, ms, and counts; the last has everything beyond.
    pub buckets: Vec<(f64, usize)>,
}

/// Everything that was measured in a run.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The machine.
    pub machine: String,
    /// The targets.
    pub rows: Vec<Row>,
    /// Distributions behind some of them.
    pub histograms: Vec<Histogram>,
}

impl Report {
    pub(super) fn new(machine: String) -> Report {
        Report { machine, rows: Vec::new(), histograms: Vec::new() }
    }

    pub(super) fn add(
        &mut self,
        id: &str,
        what: &str,
        (value, unit): (f64, &str),
        limit: Limit,
        against: String,
    ) {
        let row = Row {
            id: id.to_owned(),
            what: what.to_owned(),
            value,
            unit: unit.to_owned(),
            limit,
            against,
        };
        eprintln!("  {what}: {} {unit}", number(value));
        self.rows.push(row);
    }
}

/// Three digits, whatever the size.
pub(super) fn number(value: f64) -> String {
    match value.abs() {
        size if size == 0.0 || size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n", self.machine)?;
        let what = self.rows.iter().map(|row| row.what.chars().count()).max().unwrap_or(4);
        writeln!(
            f,
            "{:<4} {:<what$} {:>18} {:>18} {:>6}      against",
            "id", "what", "measured", "target", "ratio"
        )?;
        for row in &self.rows {
            let measured = format!("{} {}", number(row.value), row.unit);
            let target = match row.limit {
                Limit::Most(most) => format!("≤ {} {}", number(most), row.unit),
                Limit::Least(least) => format!("≥ {} {}", number(least), row.unit),
            };
            let met = if row.met() { "met" } else { "MISSED" };
            writeln!(
                f,
                "{:<4} {:<what$} {measured:>18} {target:>18} {:>6.2} {met:<6} {}",
                row.id,
                row.what,
                row.ratio(),
                row.against
            )?;
        }
        for histogram in &self.histograms {
            writeln!(f, "\n{}", histogram.what)?;
            let most = histogram.buckets.iter().map(|(_, count)| *count).max().unwrap_or(1).max(1);
            for (bound, count) in &histogram.buckets {
                let bar = "#".repeat((count * 50).div_ceil(most));
                let bound =
                    if bound.is_finite() { format!("≤ {bound} ms") } else { "beyond".to_owned() };
                writeln!(f, "{bound:>12} {count:>6} {bar}")?;
            }
        }
        Ok(())
    }
}
