//! Benchmarks: each measures a target of the design against a floor of the same run.
//!
//! Machines are noisy, so nothing here is an assertion: a table says what was measured, what was
//! wanted, and how the two compare.

mod calls;
mod flood;
mod floor;
mod growth;
mod idle;
mod machine;
mod plot;
mod report;
mod run_cost;
mod samples;
mod takeover;
mod throughput;
mod validity;

pub use floor::serve;
pub use report::{Histogram, Limit, Report, Row};

use std::path::Path;

use floor::Floor;
use samples::Samples;

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// Rounds of which the median counts.
    pub rounds: usize,
    /// Calls of a round.
    pub calls: usize,
    /// Length of a round that is measured by time, ms.
    pub round_ms: u64,
    /// How long an idle agent is watched, ms.
    pub idle_ms: u64,
    /// Holders that are killed, by kind.
    pub kills: usize,
    /// Programs started in a round.
    pub starts: usize,
    /// Most holds at once.
    pub holds_max: usize,
}

impl Effort {
    /// What the targets ask for; takes some minutes.
    pub const FULL: Effort = Effort {
        rounds: 7,
        calls: 4000,
        round_ms: 2000,
        idle_ms: 60_000,
        kills: 250,
        starts: 60,
        holds_max: 100_000,
    };
    /// A first look.
    pub const QUICK: Effort = Effort {
        rounds: 5,
        calls: 500,
        round_ms: 400,
        idle_ms: 3000,
        kills: 25,
        starts: 15,
        holds_max: 10_000,
    };
}

/// A benchmark: measures, and adds rows.
type Bench = fn(&Effort, &mut Report) -> anyhow::Result<()>;

/// In the order of the targets.
const ALL: [(&str, Bench); 8] = [
    ("P1", calls::acquire_and_release),
    ("P4", takeover::after_a_kill),
    ("P7", flood::lateness_under_flood),
    ("P8", validity::of_a_hold),
    ("P9", throughput::of_many_clients),
    ("P10", idle::footprint),
    ("P11", run_cost::of_a_trivial_job),
    ("P12", growth::of_many_holds),
];

/// Measures all, or those whose id is in `only`, and writes JSON and SVG to `out`.
///
/// # Errors
///
/// When an agent or a file refuses.
pub fn run(effort: &Effort, only: &[String], out: &Path) -> anyhow::Result<Report> {
    let mut report = Report::new(machine::describe());
    for (id, bench) in ALL {
        if only.is_empty() || only.iter().any(|wanted| wanted.eq_ignore_ascii_case(id)) {
            eprintln!("measuring {id} …");
            bench(effort, &mut report)?;
        }
    }
    std::fs::create_dir_all(out)?;
    std::fs::write(out.join("bench.json"), serde_json::to_vec_pretty(&report)?)?;
    std::fs::write(out.join("bench.svg"), plot::svg(&report))?;
    Ok(report)
}
