//! P17: two hosts on one Postgres: hand-overs, a host that is gone, and many holds, beside the same on a Redis.

use std::time::Duration;

use nix::unistd::Pid;
use serde_json::json;

use super::calls::pairs_in_turns;
use super::growth::{Crowd, ROOM_FOR_MANY, Sort};
use super::handover::{add_peer, hand_overs_ms};
use super::report::Side;
use super::shared_redis::SharedRedis;
use super::takeover::kill_holders;
use super::two_agents::{KINDS, client};
use super::{Effort, Limit, Report, Samples, growth, peers};
use crate::harness::{Agent, Client, Postgres, boottime_ns, cpu_ns};

const WHAT: &str = "release → the next one holds it, Postgres as the store";
/// Fewer say nothing of a p99.
const ROUNDS_MIN: usize = 200;
/// Upper bounds of the histograms, ms.
const BOUNDS_MS: [f64; 10] = [0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0, 6.0, 12.0, 100.0];
/// The ttl of the holds of a host that stops dead, ms.
const TTL_MS: u64 = 2000;
const HOLDS: usize = 10_000;
const HOLDS_TTL_MS: u64 = 30_000;
/// As in P6: taken evenly over a beat's interval, and watched for three of them.
const BEAT: Duration = Duration::from_secs(10);
const SETTLE: Duration = Duration::from_secs(12);
const WINDOW: Duration = Duration::from_secs(30);

fn start() -> anyhow::Result<Postgres> {
    Postgres::start().map_err(anyhow::Error::msg)
}

pub(super) fn between_hosts(effort: &Effort, report: &mut Report) -> anyhow::Result<()> {
    let (postgres, redis) = (start()?, SharedRedis::start());
    let mut agents = [(); 2].map(|()| Agent::setup().upstream(&postgres.url()).start());
    for kind in KINDS {
        let times = hand_overs_ms(&agents, kind, effort.hand_overs.max(ROUNDS_MIN));
        add(report, &format!("{kind}: release → granted on another host"), &times);
        report.compare("P17", WHAT, Side::Tenure, kind, &times);
        let [one, two] = agents.each_ref();
        let times = Samples::new(kill_holders(effort.kills.max(ROUNDS_MIN), kind, [one, two]));
        add(report, &format!("{kind}: kill -9 → granted on another host"), &times);
    }
    let servers = peers::Peers::start();
    let locks = || servers.client(peers::Brand::Postgres, "role");
    let label = peers::Brand::Postgres.label();
    add_peer(effort, report, ("P17", WHAT), label, (locks(), locks()));
    beside_redis(effort, report, &agents[0], &redis)?;
    host_gone(effort, report, &mut agents, &postgres)
}

fn add(report: &mut Report, title: &str, times: &Samples) {
    let against = format!("{} rounds; max {:.2} ms", times.values().len(), times.quantile(1.0));
    for (part, name, limit) in [(0.5, "p50", 1.5), (0.99, "p99", 6.0)] {
        let (value, limit) = ((times.quantile(part), "ms"), Limit::Most(limit));
        report.add("P17", &format!("{title}, {name}"), value, limit, against.clone());
    }
    report.histogram(title, &BOUNDS_MS, times);
}

/// A pair of calls on either store, in turns.
fn beside_redis(
    effort: &Effort,
    report: &mut Report,
    agent: &Agent,
    redis: &SharedRedis,
) -> anyhow::Result<()> {
    let other = Agent::setup().upstream(&redis.url()).start();
    for kind in KINDS {
        let [postgres, redis] = pairs_in_turns(effort, kind, [agent, &other])?;
        let what = format!("{kind}: acquire + release, p50");
        let against = format!("{redis:.0} µs on a Redis beside it");
        // Two synced commits: no target of the design, which names the hand-over alone.
        report.add("P17", &what, (postgres, "µs"), Limit::Most(2.0 * redis), against);
    }
    Ok(())
}

/// Stops the first agent dead while it holds: the time from the expiry until the waiter's event was read.
fn host_gone(
    effort: &Effort,
    report: &mut Report,
    [doomed, other]: &mut [Agent; 2],
    postgres: &Postgres,
) -> anyhow::Result<()> {
    let terms = json!({"ttl_ms": TTL_MS});
    let mut late = Vec::new();
    for _ in 0..effort.stops {
        let (mut http, waiter) = client(other);
        let events = other.events(waiter);
        let (mut holder, session) = client(doomed);
        holder.acquire(session, "leader", "gone", &terms);
        let waiting = http.queue(waiter, "leader", "gone", &terms).hold;
        std::thread::sleep(Duration::from_millis(TTL_MS / 2));
        doomed.pause();
        let left = "select (until - (extract(epoch from clock_timestamp()) * 1000000)::bigint) * 1000 from tenure.claim \
                    where token is not null and resource = (select id from tenure.resource where name = 'gone')";
        let before = boottime_ns();
        let left_ns: u64 = postgres.sql(left).trim().parse()?;
        let expiry = before + left_ns;
        let (seen, _) = events.granted_seen(waiting);
        late.push((seen.at_ns as f64 - expiry as f64) / 1e6);
        http.end(waiter);
        doomed.resume();
        holder.end(session);
    }
    let late = Samples::new(late);
    let against = format!(
        "{} stops; {:.1} to {:.1} ms; psql takes some of it",
        effort.stops,
        late.quantile(0.0),
        late.quantile(1.0)
    );
    for (part, name) in [(0.5, "p50"), (0.99, "p99")] {
        let what = format!("leader: host gone, expiry → granted, {name}");
        let value = (late.quantile(part), "ms");
        report.add("P17", &what, value, Limit::Most(20.0), against.clone());
    }
    Ok(())
}

/// Processor time of all processes of the server.
pub(super) fn server_ns(postgres: &Postgres) -> u64 {
    let pids = postgres.pids().into_iter().map(Pid::as_raw).filter_map(|pid| pid.try_into().ok());
    pids.map(cpu_ns).sum()
}

pub(super) fn many_holds(_: &Effort, report: &mut Report) -> anyhow::Result<()> {
    for sort in Sort::ALL {
        let postgres = start()?;
        let agent = Agent::setup().config(ROOM_FOR_MANY).upstream(&postgres.url()).start();
        let crowd = Crowd::hold(&agent, sort, HOLDS, HOLDS_TTL_MS, BEAT);
        std::thread::sleep(SETTLE);
        let cost = crowd.beaten_for(WINDOW, &agent, || server_ns(&postgres))?;
        let seconds = WINDOW.as_secs_f64();
        let title = format!("{HOLDS} {} in Postgres", sort.label());
        let against = format!(
            "{:.0} beats/s; Postgres {:.1} % of a core",
            cost.beats / seconds,
            100.0 * cost.upstream_seconds / seconds
        );
        let value = (100.0 * cost.agent_seconds / seconds, "%");
        report.add("P17", &format!("{title}: agent"), value, Limit::Most(3.0), against);
    }
    Ok(())
}

pub(super) fn growth(effort: &Effort, report: &mut Report) -> anyhow::Result<()> {
    growth::measure("P17", effort, report, " through Postgres", || {
        let postgres = start()?;
        let agent = Agent::setup().config(ROOM_FOR_MANY).upstream(&postgres.url()).start();
        Ok(growth::Rig { agent, store: growth::Store::Postgres(Box::new(postgres)) })
    })
}
