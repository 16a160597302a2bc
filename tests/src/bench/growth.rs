//! P12: what a beat costs with few holds and with many.

use std::time::Duration;

use serde_json::json;

use super::shared_redis::SharedRedis;
use super::{Effort, Limit, Report, Samples, straight};
use crate::harness::{Agent, Client, Http, boottime_ns, cpu_ns, rss_kib};

/// Holds, and their ttl in ms: few are beaten often, so that there is something to measure.
const SIZES: [(usize, u64); 4] = [(100, 300), (1000, 600), (10_000, 3000), (100_000, 30_000)];
/// A session's page has 63 slots.
const HOLDS_PER_SESSION: usize = 50;
/// A multiple of every beat interval.
const WINDOW: Duration = Duration::from_secs(20);
/// Beats settle into their rhythm for this long before.
const SETTLE: Duration = Duration::from_secs(10);
/// Keys that the bare script renews in a call, and calls.
const FLOOR_KEYS: usize = 512;
const FLOOR_CALLS: usize = 100;

/// Many holds of one agent.
pub(super) struct Crowd {
    http: Http,
    holds: usize,
}

/// What it cost to beat them for a while.
pub(super) struct Cost {
    /// How many beats there were.
    pub(super) beats: f64,
    /// Processor time of the agent.
    pub(super) agent_seconds: f64,
    /// Processor time of the upstream's process, if it has one.
    pub(super) upstream_seconds: f64,
}

/// How an agent for them is configured.
pub(super) const ROOM_FOR_MANY: &str =
    "[limits]\nsessions_per_uid_max = 20000\nholds_max = 200000\n";

impl Crowd {
    /// Holds so many, taken one after the other as fast as that goes, or evenly within a time.
    pub(super) fn hold(agent: &Agent, holds: usize, ttl_ms: u64, within: Duration) -> Crowd {
        let mut http = agent.http();
        let start_ns = boottime_ns();
        let sessions = holds.div_ceil(HOLDS_PER_SESSION);
        for s in 0..sessions {
            let begin_ns =
                start_ns + (within.as_nanos() as f64 * s as f64 / sessions as f64) as u64;
            let early_ns = begin_ns.saturating_sub(boottime_ns());
            std::thread::sleep(Duration::from_nanos(early_ns));
            let session = http.register(&json!({"keepalive_ms": 86_400_000})).session;
            for h in 0..HOLDS_PER_SESSION.min(holds) {
                http.acquire(session, "leader", &format!("{s} {h}"), &json!({"ttl_ms": ttl_ms}));
            }
        }
        Crowd { http, holds }
    }

    /// Lets time pass, and measures.
    pub(super) fn beaten_for(
        mut self,
        window: Duration,
        agent: &Agent,
        upstream: Option<u32>,
    ) -> anyhow::Result<Cost> {
        let upstream_ns = || upstream.map_or(0, cpu_ns);
        // A status of 100 000 holds is work too: it stays outside of the window.
        let beats_before = self.http.status().upstream.beat_lateness.beats;
        let (agent_before, upstream_before) = (cpu_ns(agent.pid()), upstream_ns());
        std::thread::sleep(window);
        let agent_ns = cpu_ns(agent.pid()) - agent_before;
        let upstream_ns = upstream_ns() - upstream_before;
        let status = self.http.status();
        let held = status.agent.holds;
        anyhow::ensure!(held == self.holds as u64, "{held} of {} held", self.holds);
        Ok(Cost {
            beats: (status.upstream.beat_lateness.beats - beats_before) as f64,
            agent_seconds: agent_ns as f64 / 1e9,
            upstream_seconds: upstream_ns as f64 / 1e9,
        })
    }
}

pub(super) fn of_many_holds(effort: &Effort, report: &mut Report) -> anyhow::Result<()> {
    let mut first = None;
    for (holds, ttl_ms) in sizes(effort) {
        let agent = Agent::setup().config(ROOM_FOR_MANY).start();
        let crowd = Crowd::hold(&agent, holds, ttl_ms, Duration::ZERO);
        std::thread::sleep(SETTLE);
        let cost = crowd.beaten_for(WINDOW, &agent, None)?;
        let what = format!("processor time of a beat, {holds} holds");
        add(report, &what, &mut first, &cost, &agent, "");
    }
    Ok(())
}

pub(super) fn of_many_holds_in_redis(effort: &Effort, report: &mut Report) -> anyhow::Result<()> {
    let mut first = None;
    for (holds, ttl_ms) in sizes(effort) {
        let redis = SharedRedis::start();
        let agent = Agent::setup().config(ROOM_FOR_MANY).upstream(&redis.url()).start();
        let crowd = Crowd::hold(&agent, holds, ttl_ms, Duration::ZERO);
        std::thread::sleep(SETTLE);
        let cost = crowd.beaten_for(WINDOW, &agent, Some(redis.pid()))?;
        let calls = straight::renewal_us(&redis, FLOOR_KEYS, FLOOR_CALLS)?;
        let more = format!(
            "; Redis itself {:.1} µs a beat; floor: a bare script renewing {FLOOR_KEYS} keys, {:.1} µs a key",
            cost.upstream_seconds * 1e6 / cost.beats,
            Samples::new(calls).median() / FLOOR_KEYS as f64,
        );
        let what = format!("processor time of a beat through Redis, {holds} holds");
        add(report, &what, &mut first, &cost, &agent, &more);
    }
    Ok(())
}

fn sizes(effort: &Effort) -> impl Iterator<Item = (usize, u64)> {
    let most = effort.holds_max;
    SIZES.into_iter().filter(move |(holds, _)| *holds <= most)
}

fn add(
    report: &mut Report,
    what: &str,
    first: &mut Option<f64>,
    cost: &Cost,
    agent: &Agent,
    more: &str,
) {
    let cost_us = cost.agent_seconds * 1e6 / cost.beats;
    let per_second = cost.beats / WINDOW.as_secs_f64();
    let core = 100.0 * cost.agent_seconds / WINDOW.as_secs_f64();
    let against = format!(
        "{:.0} beats per core-second; {per_second:.0} beats/s cost {core:.1} % of a core; {} MiB{more}",
        cost.beats / cost.agent_seconds,
        rss_kib(agent.pid()) / 1024,
    );
    let limit = 1.5 * *first.get_or_insert(cost_us);
    report.add("P12", what, (cost_us, "µs"), Limit::Most(limit), against);
}
