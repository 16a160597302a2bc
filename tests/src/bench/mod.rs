//! Benchmarks: each measures a target of the design against a floor of the same run.
//!
//! Machines are noisy, so nothing here is an assertion: a table says what was measured, what was
//! wanted, and how the two compare.

mod calls;
mod cluster;
mod control_plane;
mod crowd;
mod fairness;
mod fleet_at_rest;
mod flood;
mod floor;
mod gateways;
mod growth;
mod handover;
mod host_gone;
mod hostile;
mod idle;
mod machine;
mod many_holds;
mod many_hosts;
mod peers;
mod postgres;
mod proxies;
mod replay;
mod report;
mod run_cost;
mod samples;
mod sdks;
mod sessions;
mod shared_redis;
mod straight;
mod takeover;
mod through_redis;
mod throughput;
mod time_line;
mod two_agents;
mod uninterested;
mod validity;
mod waiters;

pub use floor::serve;
pub use report::{Histogram, Limit, Report, Row};
pub use time_line::{Thread, TimeLine};

use std::path::Path;
use std::process::{Command, Stdio};

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
    /// Releases between two hosts, by kind.
    pub hand_overs: usize,
    /// The same of a peer.
    pub peer_hand_overs: u32,
    /// Holders that are killed, by kind.
    pub kills: usize,
    /// The same of a peer that is told at once.
    pub peer_kills: usize,
    /// The same of etcdctl, all at the same time.
    pub etcd_kills: usize,
    /// Agents that are stopped dead.
    pub stops: usize,
    /// How long the expired events of Redis are waited for, ms.
    pub expiry_watch_ms: u64,
    /// Programs started in a round.
    pub starts: usize,
    /// Most holds at once.
    pub holds_max: usize,
}

impl Effort {
    /// The effort of the targets; takes some minutes.
    pub const FULL: Effort = Effort {
        rounds: 7,
        calls: 4000,
        round_ms: 2000,
        idle_ms: 60_000,
        hand_overs: 250,
        peer_hand_overs: 100,
        kills: 250,
        peer_kills: 100,
        etcd_kills: 20,
        stops: 40,
        expiry_watch_ms: 60_000,
        starts: 60,
        holds_max: 100_000,
    };
    /// A first look.
    pub const QUICK: Effort = Effort {
        rounds: 5,
        calls: 500,
        round_ms: 400,
        idle_ms: 3000,
        hand_overs: 25,
        peer_hand_overs: 10,
        kills: 25,
        peer_kills: 10,
        etcd_kills: 3,
        stops: 5,
        expiry_watch_ms: 10_000,
        starts: 15,
        holds_max: 10_000,
    };
}

/// Measures, and adds rows.
type Measure = fn(&Effort, &mut Report) -> anyhow::Result<()>;

/// A benchmark.
struct Bench {
    /// The target's id.
    id: &'static str,
    /// The program without which it cannot be measured.
    needs: Option<&'static str>,
    measure: Measure,
}

impl Bench {
    /// True for its id, and for its id without the letter behind it.
    fn is(&self, id: &str) -> bool {
        let all = self.id.trim_end_matches(|c: char| c.is_ascii_lowercase());
        self.id.eq_ignore_ascii_case(id) || all.eq_ignore_ascii_case(id)
    }

    /// Measures it in a process of its own.
    fn apart(&self, number: usize, options: &[&str]) -> anyhow::Result<Report> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(options).args(["measure", &number.to_string()]).stdin(Stdio::null());
        let output = command.stderr(Stdio::inherit()).output()?;
        anyhow::ensure!(output.status.success(), "it broke off, {}", output.status);
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    fn run(&self, effort: &Effort, report: &mut Report) -> anyhow::Result<()> {
        if let Some(program) = self.needs {
            anyhow::ensure!(machine::installed(program), "{program} is not installed");
        }
        (self.measure)(effort, report)
    }
}

/// Needs nothing but what is built here.
const fn alone(id: &'static str, measure: Measure) -> Bench {
    Bench { id, needs: None, measure }
}

/// Needs Redis.
const fn with_redis(id: &'static str, measure: Measure) -> Bench {
    Bench { id, needs: Some("redis-server"), measure }
}

/// In the order of the targets.
const ALL: [Bench; 45] = [
    alone("P1", calls::acquire_and_release),
    with_redis("P2", through_redis::acquire_and_release),
    with_redis("P3", handover::between_hosts),
    alone("P4", takeover::on_one_host),
    with_redis("P4", takeover::between_hosts),
    with_redis("P5", host_gone::takeover_after_expiry),
    with_redis("P6", many_holds::kept_through_redis),
    alone("P7", flood::lateness_under_flood),
    alone("P8", validity::of_a_hold),
    alone("P9", throughput::of_many_clients),
    alone("P10", idle::footprint),
    alone("P11", run_cost::of_a_trivial_job),
    alone("P12", growth::of_many_holds),
    with_redis("P12", growth::of_many_holds_in_redis),
    alone("P13", waiters::of_one_leader),
    alone("P14", sessions::of_one_project),
    with_redis("P15", gateways::between_hosts),
    with_redis("P15b", gateways::under_load),
    alone("P16", cluster::beside_etcd),
    with_redis("P17", postgres::between_hosts),
    alone("P17b", postgres::many_holds),
    alone("P17c", postgres::growth),
    with_redis("P18", sdks::beside_locks),
    with_redis("P18b", crowd::of_threads_on_two_hosts),
    with_redis("P19", fleet_at_rest::of_a_fleet_at_rest),
    with_redis("P20a", many_hosts::that_wait),
    with_redis("P20b", many_hosts::that_campaign),
    with_redis("P20c", uninterested::of_a_change),
    with_redis("P21", fairness::between_hosts),
    with_redis("P22", control_plane::of_runners),
    with_redis("P23", proxies::beside_dead_and_slow_ones),
    with_redis("P23", proxies::of_many_mailboxes),
    alone("R5a", hostile::project),
    alone("R5b", hostile::listeners),
    alone("R5c", hostile::status),
    alone("R5d", hostile::routes),
    alone("R5e", hostile::standings),
    alone("R5e", hostile::observer),
    alone("R5f", hostile::dashboards),
    alone("R5g", hostile::bodies),
    alone("R5g", hostile::heads),
    alone("R5h", hostile::openapi),
    alone("R5i", hostile::churn),
    alone("R5j", hostile::leases),
    alone("R5k", hostile::log),
];

/// Measures all, or those whose ids are `wanted`, and writes JSON to `out` after each. Each
/// runs in a process of its own, which is this program again with `options`: one that breaks off
/// takes nothing with it.
pub fn run(wanted: &[String], options: &[&str], out: &Path) -> anyhow::Result<Report> {
    if let Some(unknown) = wanted.iter().find(|wanted| !ALL.iter().any(|bench| bench.is(wanted))) {
        let mut ids: Vec<&str> = ALL.iter().map(|bench| bench.id).collect();
        ids.dedup();
        anyhow::bail!("{unknown} is not measured here; there are {}", ids.join(", "));
    }
    std::fs::create_dir_all(out)?;
    let mut report = Report::new(machine::describe());
    for (number, bench) in ALL.iter().enumerate() {
        if wanted.is_empty() || wanted.iter().any(|wanted| bench.is(wanted)) {
            eprintln!("measuring {} …", bench.id);
            match bench.apart(number, options) {
                Ok(part) => report.extend(part),
                Err(error) => report.leave_out(bench.id, "all of it", &error),
            }
            std::fs::write(out.join("bench.json"), serde_json::to_vec_pretty(&report)?)?;
        }
    }
    Ok(report)
}

/// Measures one, by its number, and prints its report as JSON; the `bench` program runs this in its
/// child.
pub fn measure(effort: &Effort, number: usize) -> anyhow::Result<()> {
    let bench = ALL.get(number).ok_or_else(|| anyhow::anyhow!("there is no target {number}"))?;
    let mut report = Report::new(String::new());
    if let Err(error) = bench.run(effort, &mut report) {
        report.leave_out(bench.id, "the rest of it", &error);
    }
    println!("{}", serde_json::to_string(&report)?);
    Ok(())
}
