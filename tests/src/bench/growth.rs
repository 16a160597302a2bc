//! P12: what a beat costs with few holds and with many.

use std::time::Duration;

use serde_json::{Value, json};

use super::shared_redis::SharedRedis;
use super::{Effort, Limit, Report, Samples, straight};
use crate::harness::{Agent, Client, Http, Postgres, boottime_ns, cpu_ns, rss_kib};

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
/// How often a measurement is tried that lost holds.
const ATTEMPTS: usize = 3;

/// What many holds are of.
#[derive(Debug, Clone, Copy)]
pub(super) enum Sort {
    /// A leader each.
    Leaders,
    /// A semaphore each.
    Permits,
    /// A lease each.
    Leases,
    /// Permits of one semaphore.
    Members,
}

impl Sort {
    pub(super) const ALL: [Sort; 4] = [Sort::Leaders, Sort::Permits, Sort::Leases, Sort::Members];

    pub(super) fn label(self) -> &'static str {
        match self {
            Sort::Leaders => "leaders",
            Sort::Permits => "permits of a semaphore each",
            Sort::Leases => "leases",
            Sort::Members => "permits of one semaphore",
        }
    }

    fn kind(self) -> &'static str {
        match self {
            Sort::Leaders => "leader",
            Sort::Permits | Sort::Members => "semaphore",
            Sort::Leases => "lease",
        }
    }

    /// One of many.
    fn name(self, number: usize) -> String {
        match self {
            Sort::Members => "one".to_owned(),
            _ => number.to_string(),
        }
    }

    fn terms(self, ttl_ms: u64, holds: usize) -> Value {
        match self {
            Sort::Leaders | Sort::Leases => json!({"ttl_ms": ttl_ms}),
            Sort::Permits => json!({"ttl_ms": ttl_ms, "limit": 4}),
            Sort::Members => json!({"ttl_ms": ttl_ms, "limit": holds}),
        }
    }
}

/// Many holds of one agent.
pub(super) struct Crowd {
    http: Http,
    holds: usize,
}

/// The cost of beating them for a while.
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
    "[limits]\nsessions_per_uid_max = 20000\nholds_max = 200000\nholds_per_uid_max = 200000\n";

impl Crowd {
    /// Holds so many, taken one after the other as fast as that goes, or evenly within a time.
    pub(super) fn hold(
        agent: &Agent,
        sort: Sort,
        holds: usize,
        ttl_ms: u64,
        within: Duration,
    ) -> Crowd {
        let mut http = agent.http();
        let terms = sort.terms(ttl_ms, holds);
        let start_ns = boottime_ns();
        let sessions = holds.div_ceil(HOLDS_PER_SESSION);
        for s in 0..sessions {
            let begin_ns =
                start_ns + (within.as_nanos() as f64 * s as f64 / sessions as f64) as u64;
            let early_ns = begin_ns.saturating_sub(boottime_ns());
            std::thread::sleep(Duration::from_nanos(early_ns));
            let session = http.register(&json!({"keepalive_ms": 86_400_000})).session;
            for h in 0..HOLDS_PER_SESSION.min(holds) {
                http.acquire(session, sort.kind(), &sort.name(s * HOLDS_PER_SESSION + h), &terms);
            }
        }
        Crowd { http, holds }
    }

    /// Lets time pass, and measures. The processor time of the upstream is that of all its processes.
    pub(super) fn beaten_for(
        mut self,
        window: Duration,
        agent: &Agent,
        upstream_ns: impl Fn() -> u64,
    ) -> anyhow::Result<Cost> {
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
    measure("P12", effort, report, "", || {
        let agent = Agent::setup().config(ROOM_FOR_MANY).start();
        Ok(Rig { agent, store: Store::Embedded })
    })
}

pub(super) fn of_many_holds_in_redis(effort: &Effort, report: &mut Report) -> anyhow::Result<()> {
    measure("P12", effort, report, " through Redis", || {
        let redis = SharedRedis::start();
        let agent = Agent::setup().config(ROOM_FOR_MANY).upstream(&redis.url()).start();
        Ok(Rig { agent, store: Store::Redis(redis) })
    })
}

/// An agent and its store.
pub(super) struct Rig {
    pub(super) agent: Agent,
    pub(super) store: Store,
}

pub(super) enum Store {
    Embedded,
    Redis(SharedRedis),
    Postgres(Box<Postgres>),
}

impl Store {
    fn cpu_ns(&self) -> u64 {
        match self {
            Store::Embedded => 0,
            Store::Redis(redis) => cpu_ns(redis.pid()),
            Store::Postgres(postgres) => super::postgres::server_ns(postgres),
        }
    }
}

impl Rig {
    fn cost(&self, holds: usize, ttl_ms: u64) -> anyhow::Result<Cost> {
        let crowd = Crowd::hold(&self.agent, Sort::Leaders, holds, ttl_ms, Duration::ZERO);
        std::thread::sleep(SETTLE);
        crowd.beaten_for(WINDOW, &self.agent, || self.store.cpu_ns())
    }
}

pub(super) fn measure(
    id: &str,
    effort: &Effort,
    report: &mut Report,
    through: &str,
    start: impl Fn() -> anyhow::Result<Rig>,
) -> anyhow::Result<()> {
    let mut first = None;
    for (holds, ttl_ms) in SIZES.into_iter().filter(|(holds, _)| *holds <= effort.holds_max) {
        let what = format!("processor time of a beat{through}, {holds} holds");
        let mut attempt = 1;
        let (rig, cost) = loop {
            let rig = start()?;
            match rig.cost(holds, ttl_ms) {
                Ok(cost) => break (rig, cost),
                // A machine that stands still for a third of a second loses what lasts no longer.
                Err(error) if attempt < ATTEMPTS => eprintln!("  again: {what}: {error}"),
                Err(error) => return Err(error.context(what)),
            }
            attempt += 1;
        };
        let cost_us = cost.agent_seconds * 1e6 / cost.beats;
        let mut against = format!(
            "{:.0} beats per core-second; {:.0} beats/s cost {:.1} % of a core; {} MiB",
            cost.beats / cost.agent_seconds,
            cost.beats / WINDOW.as_secs_f64(),
            100.0 * cost.agent_seconds / WINDOW.as_secs_f64(),
            rss_kib(rig.agent.pid()) / 1024,
        );
        let upstream_us = cost.upstream_seconds * 1e6 / cost.beats;
        match &rig.store {
            Store::Embedded => {}
            Store::Redis(redis) => {
                let bare = Samples::new(straight::renewal_us(redis, FLOOR_KEYS, FLOOR_CALLS)?);
                against += &format!(
                    "; Redis itself {upstream_us:.1} µs a beat; floor: a bare script renewing {FLOOR_KEYS} keys, {:.1} µs \
                     a key",
                    bare.median() / FLOOR_KEYS as f64,
                );
            }
            Store::Postgres(_) => {
                against += &format!("; Postgres itself {upstream_us:.1} µs a beat")
            }
        }
        if attempt > 1 {
            against += &format!("; attempt {attempt}, holds were lost before");
        }
        let limit = 1.5 * *first.get_or_insert(cost_us);
        report.add(id, &what, (cost_us, "µs"), Limit::Most(limit), against);
    }
    Ok(())
}
