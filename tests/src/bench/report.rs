//! Results, as a table and as JSON.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Samples;
use super::time_line::{Thread, TimeLine};

/// The bound of a value.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// At most this.
    Most(f64),
    /// At least this.
    Least(f64),
}

/// One target.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    /// The target's id.
    pub id: String,
    pub what: String,
    /// The median of the rounds, unless `what` says otherwise.
    pub value: f64,
    /// Its unit.
    pub unit: String,
    /// The target, in the same unit.
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

    pub fn met(&self) -> bool {
        self.ratio() <= 1.0
    }
}

/// How often something took how long.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Histogram {
    pub what: String,
    /// Upper bounds, ms, and counts; the last has no bound, and everything beyond.
    pub buckets: Vec<(Option<f64>, usize)>,
}

/// The subject of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// Ours.
    Tenure,
    /// The best that the machine can do.
    Floor,
    /// A lock that people use today.
    Peer,
}

/// The same work done by different programs in one run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Comparison {
    /// The target's id.
    pub id: String,
    /// The work.
    pub what: String,
    /// The subjects, and how fast they were.
    pub contestants: Vec<Contestant>,
}

/// One of those who are compared.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Contestant {
    pub side: Side,
    pub name: String,
    /// Median, ms; none when it was waited for in vain.
    pub p50_ms: Option<f64>,
    /// The time that 99 % do not exceed, ms; none when it was waited for in vain.
    pub p99_ms: Option<f64>,
    /// How often it was measured.
    pub count: usize,
}

/// A measurement that failed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LeftOut {
    /// The target's id.
    pub id: String,
    pub what: String,
    /// Why.
    pub why: String,
}

/// Everything that was measured in a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// The machine.
    pub machine: String,
    /// The targets.
    pub rows: Vec<Row>,
    /// Distributions behind some of them.
    pub histograms: Vec<Histogram>,
    /// Tenure beside what people use today.
    pub comparisons: Vec<Comparison>,
    /// Where the time goes.
    pub time_lines: Vec<TimeLine>,
    pub left_out: Vec<LeftOut>,
}

impl Report {
    pub(super) fn new(machine: String) -> Report {
        Report {
            machine,
            rows: Vec::new(),
            histograms: Vec::new(),
            comparisons: Vec::new(),
            time_lines: Vec::new(),
            left_out: Vec::new(),
        }
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

    /// Takes in what was measured elsewhere, but for the machine.
    pub(super) fn extend(&mut self, other: Report) {
        self.rows.extend(other.rows);
        self.histograms.extend(other.histograms);
        self.comparisons.extend(other.comparisons);
        self.time_lines.extend(other.time_lines);
        self.left_out.extend(other.left_out);
    }

    /// Adds a distribution of times in ms, with these upper bounds.
    pub(super) fn histogram(&mut self, what: &str, bounds_ms: &[f64], times_ms: &Samples) {
        let mut below = f64::NEG_INFINITY;
        let mut count_to = |bound| {
            let inside = |ms: &&f64| **ms > below && **ms <= bound;
            let count = times_ms.values().iter().filter(inside).count();
            below = bound;
            count
        };
        let mut buckets: Vec<(Option<f64>, usize)> =
            bounds_ms.iter().map(|&bound| (Some(bound), count_to(bound))).collect();
        buckets.push((None, count_to(f64::INFINITY)));
        self.histograms.push(Histogram { what: what.to_owned(), buckets });
    }

    /// Adds a contestant to a comparison.
    pub(super) fn compare(
        &mut self,
        id: &str,
        what: &str,
        side: Side,
        name: &str,
        times_ms: &Samples,
    ) {
        let contestant = Contestant {
            side,
            name: name.to_owned(),
            p50_ms: Some(times_ms.median()).filter(|ms| ms.is_finite()),
            p99_ms: Some(times_ms.quantile(0.99)).filter(|ms| ms.is_finite()),
            count: times_ms.values().len(),
        };
        if side != Side::Tenure {
            eprintln!("  {name}: {what}: {} ms", contestant.p50_ms.map_or_else(in_vain, number));
        }
        let same = |comparison: &&mut Comparison| comparison.id == id && comparison.what == what;
        match self.comparisons.iter_mut().find(same) {
            Some(comparison) => comparison.contestants.push(contestant),
            None => self.comparisons.push(Comparison {
                id: id.to_owned(),
                what: what.to_owned(),
                contestants: vec![contestant],
            }),
        }
    }

    pub(super) fn time_line(&mut self, line: TimeLine) {
        eprintln!("  {}: {} µs", line.what, number(line.whole));
        self.time_lines.push(line);
    }

    /// Notes what was to be measured and was not.
    pub(super) fn leave_out(&mut self, id: &str, what: &str, why: &anyhow::Error) {
        let why = format!("{why:#}");
        eprintln!("  not measured: {what}: {why}");
        self.left_out.push(LeftOut { id: id.to_owned(), what: what.to_owned(), why });
    }
}

/// For a time that never came.
pub(super) fn in_vain() -> String {
    "∞".to_owned()
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
        for Comparison { id, what, contestants } in &self.comparisons {
            let title = format!("{id} {what}");
            writeln!(f, "\n{title:<52} {:>10} {:>10} {:>7}", "p50 ms", "p99 ms", "times")?;
            for contestant in contestants {
                let name = match contestant.side {
                    Side::Tenure => format!("Tenure, {}", contestant.name),
                    Side::Floor => format!("floor: {}", contestant.name),
                    Side::Peer => contestant.name.clone(),
                };
                let [p50, p99] = [contestant.p50_ms, contestant.p99_ms]
                    .map(|ms| ms.map_or_else(in_vain, number));
                writeln!(f, "  {name:<50} {p50:>10} {p99:>10} {:>7}", contestant.count)?;
            }
        }
        for histogram in &self.histograms {
            writeln!(f, "\n{}", histogram.what)?;
            let most = histogram.buckets.iter().map(|(_, count)| *count).max().unwrap_or(1).max(1);
            let counted = |(_, count): &&(Option<f64>, usize)| *count == 0;
            let empty = histogram.buckets.iter().take_while(counted).count();
            for (bound, count) in &histogram.buckets[empty..] {
                let bar = "#".repeat((count * 50).div_ceil(most));
                let bound = bound.map_or("beyond".to_owned(), |bound| format!("≤ {bound} ms"));
                writeln!(f, "{bound:>12} {count:>6} {bar}")?;
            }
        }
        self.time_lines.iter().try_for_each(|line| write_time_line(f, line))?;
        for LeftOut { id, what, why } in &self.left_out {
            writeln!(f, "\n{id} not measured: {what}: {why}")?;
        }
        Ok(())
    }
}

fn write_time_line(f: &mut fmt::Formatter<'_>, line: &TimeLine) -> fmt::Result {
    let TimeLine { id, what, stages, whole, threads, script } = line;
    writeln!(f, "\n{id} time line of {what}")?;
    for (name, us) in stages {
        writeln!(f, "  {:>8} µs {name}", number(*us))?;
    }
    writeln!(f, "  {:>8} µs from end to end", number(*whole))?;
    if let Some(us) = script {
        writeln!(f, "  {:>8} µs of a script, mean", number(*us))?;
    }
    for Thread { name, wake_ups, busy } in threads {
        writeln!(f, "  {name:<24} woken {wake_ups:>6.2} ×, busy for {} µs", number(*busy))?;
    }
    Ok(())
}
