//! P4: from `kill -9` of the holder to the waiter's `granted`, on one host and between two, and
//! what peers take.

use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::json;

use super::peers::{Brand, Etcd, Peers};
use super::report::Side;
use super::two_agents::{KINDS, TwoAgents, client};
use super::{Effort, Limit, Report, Samples};
use crate::harness::{Agent, Client, Puppet, boottime_ns};

const WHAT: &str = "kill -9 of the holder → the next one is told";
/// Upper bounds of the histograms, ms.
const BOUNDS_MS: [f64; 10] = [0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 100.0];
/// Between a waiter's request and the kill: everything has come to rest by then.
const REST: Duration = Duration::from_millis(20);

/// With the embedded upstream, which is what one host has.
pub(super) fn on_one_host(effort: &Effort, report: &mut Report) -> anyhow::Result<()> {
    let agent = Agent::start();
    for kind in ["leader", "semaphore"] {
        let times = Samples::new(kill_holders(effort.kills, kind, [&agent; 2]));
        add(report, &format!("{kind}: kill -9 of the holder → granted, one host"), &times);
    }
    Ok(())
}

/// With an agent each, and one Redis.
pub(super) fn between_hosts(effort: &Effort, report: &mut Report) -> anyhow::Result<()> {
    let TwoAgents { agents: [one, two], redis: _redis } = TwoAgents::start();
    for kind in KINDS {
        let times = Samples::new(kill_holders(effort.kills, kind, [&one, &two]));
        add(report, &format!("{kind}: kill -9 of the holder → granted, another host"), &times);
        report.compare("P4", WHAT, Side::Tenure, kind, &times);
    }

    let servers = Peers::start();
    match peer_kills_ms(&servers, effort.peer_kills) {
        Ok(times) => report.compare("P4", WHAT, Side::Peer, Brand::Postgres.label(), &times),
        Err(error) => report.leave_out("P4", Brand::Postgres.label(), &error),
    }
    let label = "etcdctl lock, its own ttl of 10 s";
    match servers.etcd().and_then(|etcd| etcd_kills_ms(etcd, effort.etcd_kills)) {
        Ok(times) => report.compare("P4", WHAT, Side::Peer, label, &times),
        Err(error) => report.leave_out("P4", label, &error),
    }
    Ok(())
}

fn add(report: &mut Report, title: &str, times: &Samples) {
    let against = format!(
        "{} kills; {:.2} to {:.2} ms",
        times.values().len(),
        times.quantile(0.0),
        times.quantile(1.0)
    );
    for (part, name, limit) in [(0.5, "p50", 1.2), (0.99, "p99", 4.0)] {
        let value = (times.quantile(part), "ms");
        report.add("P4", &format!("{title}, {name}"), value, Limit::Most(limit), against.clone());
    }
    report.histogram(title, &BOUNDS_MS, times);
}

/// Times from just before the kill until the event was read, ms.
pub(super) fn kill_holders(rounds: usize, kind: &str, [holders, waiters]: [&Agent; 2]) -> Vec<f64> {
    let (mut http, waiter) = client(waiters);
    let events = waiters.events(waiter);
    (0..rounds)
        .map(|_| {
            let mut holder = Puppet::start(holders);
            let session = holder.register(&json!({"tether": "connection"})).session;
            holder.open_events(session).snapshot();
            holder.acquire(session, kind, "role", &json!({}));
            let waiting = http.queue(waiter, kind, "role", &json!({}));
            std::thread::sleep(REST);
            let killed_at = boottime_ns();
            holder.program().signal(Signal::SIGKILL);
            let (seen, _) = events.granted_seen(waiting.hold);
            http.release(waiter, waiting.hold);
            (seen.at_ns - killed_at) as f64 / 1e6
        })
        .collect()
}

/// A Postgres advisory lock goes with its connection, as a hold goes with its tether.
fn peer_kills_ms(servers: &Peers, rounds: usize) -> anyhow::Result<Samples> {
    let mut waiter = servers.client(Brand::Postgres, "role")?;
    waiter.pairs(1)?;
    let times = (0..rounds)
        .map(|_| {
            let mut holder = servers.client(Brand::Postgres, "role")?;
            holder.acquire()?;
            waiter.start_acquire()?;
            std::thread::sleep(REST);
            let killed_at = holder.kill();
            let held_at = waiter.acquired()?;
            waiter.release()?;
            Ok((held_at - killed_at) as f64 / 1e6)
        })
        .collect::<anyhow::Result<_>>()?;
    Ok(Samples::new(times))
}

/// A killed `etcdctl lock` keeps its lock until its lease runs out, so all wait at once, for a lock
/// each.
fn etcd_kills_ms(etcd: &Etcd, locks: usize) -> anyhow::Result<Samples> {
    let mut pairs = Vec::new();
    for lock in 0..locks {
        let name = format!("role {lock}");
        let holder = etcd.lock(&name);
        holder.held()?;
        pairs.push((holder, etcd.lock(&name)));
    }
    std::thread::sleep(REST);
    let killed_at: Vec<u64> = pairs.iter_mut().map(|(holder, _)| holder.kill()).collect();
    let times = killed_at
        .into_iter()
        .zip(&pairs)
        .map(|(killed_at, (_, waiter))| Ok((waiter.held()? - killed_at) as f64 / 1e6))
        .collect::<anyhow::Result<_>>()?;
    Ok(Samples::new(times))
}
