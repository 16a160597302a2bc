//! P21: hosts that want the same thing again and again: how often each gets it, and how long the
//! unluckiest waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::json;

use super::shared_redis::SharedRedis;
use super::two_agents::client;
use super::{Effort, Limit, Report};
use crate::harness::{Agent, Client, Proxy, boottime_ns};

/// How long a worker holds it.
const HOLD: Duration = Duration::from_millis(5);
/// Full runs last so long; a quick one is over sooner.
const WINDOW: Duration = Duration::from_secs(8);
const WINDOW_QUICK: Duration = Duration::from_secs(3);

/// Hosts by how much later they hear what Redis says, and workers on each.
struct Fleet {
    title: &'static str,
    later_ms: &'static [u64],
    workers: usize,
}

const FLEETS: [Fleet; 4] = [
    Fleet { title: "2 hosts", later_ms: &[0, 0], workers: 3 },
    Fleet { title: "4 hosts", later_ms: &[0, 0, 0, 0], workers: 2 },
    Fleet { title: "2 hosts, one 2 ms away", later_ms: &[0, 2], workers: 3 },
    Fleet { title: "3 hosts, one 10 ms away", later_ms: &[0, 0, 10], workers: 3 },
];

pub(super) fn between_hosts(effort: &Effort, report: &mut Report) -> anyhow::Result<()> {
    let quick = effort.holds_max < Effort::FULL.holds_max;
    let window = if quick { WINDOW_QUICK } else { WINDOW };
    for kind in ["leader", "lease", "semaphore"] {
        for fleet in &FLEETS {
            compete(kind, fleet, window, report)?;
        }
    }
    Ok(())
}

fn compete(
    kind: &'static str,
    fleet: &Fleet,
    window: Duration,
    report: &mut Report,
) -> anyhow::Result<()> {
    let redis = SharedRedis::start();
    let proxies: Vec<Proxy> = fleet.later_ms.iter().map(|_| redis.proxy()).collect();
    for (proxy, later_ms) in proxies.iter().zip(fleet.later_ms) {
        proxy.delay(Duration::from_millis(*later_ms));
    }
    let agents: Vec<Agent> =
        proxies.iter().map(|proxy| Agent::setup().upstream(&proxy.url()).start()).collect();
    let over = Arc::new(AtomicBool::new(false));
    let start = |agent: &Agent| {
        let workers = (0..fleet.workers).map(|_| work(kind, agent, &over));
        workers.collect::<Vec<_>>()
    };
    let working: Vec<_> = agents.iter().map(start).collect();
    std::thread::sleep(window);
    over.store(true, Ordering::Relaxed);
    let (mut grants, mut longest_ns) = (Vec::new(), 0);
    for workers in working {
        let mut of_host = 0;
        for worker in workers {
            let waits = worker.join().map_err(|_| anyhow::anyhow!("a worker broke off"))?;
            of_host += waits.len();
            longest_ns = waits.into_iter().chain([longest_ns]).max().unwrap_or_default();
        }
        grants.push(of_host);
    }
    let all: usize = grants.iter().sum();
    let (least, most) = (grants.iter().min(), grants.iter().max());
    let (least, most) = (least.copied().unwrap_or_default(), most.copied().unwrap_or_default());
    let title = format!("{kind}, {}", fleet.title);
    let against = format!("grants {grants:?} in {} s", window.as_secs());
    let value = (most as f64 / least.max(1) as f64, "");
    let what = format!("{title}: most grants of a host to least");
    report.add("P21", &what, value, Limit::Most(1.2), against);
    // Each worker in turn.
    let workers = (fleet.workers * fleet.later_ms.len()) as f64;
    let fair_ms = window.as_secs_f64() * 1e3 * workers / all.max(1) as f64;
    let against = format!("each in turn: {fair_ms:.1} ms");
    let value = (longest_ns as f64 / 1e6, "ms");
    report.add(
        "P21",
        &format!("{title}: longest wait"),
        value,
        Limit::Most(3.0 * fair_ms),
        against,
    );
    Ok(())
}

/// Takes it and gives it back until it is over; how long each wait was, ns.
fn work(kind: &'static str, agent: &Agent, over: &Arc<AtomicBool>) -> JoinHandle<Vec<u64>> {
    let (mut http, session) = client(agent);
    let over = Arc::clone(over);
    std::thread::spawn(move || {
        let mut waits = Vec::new();
        let more = json!({"wait": "block"});
        while !over.load(Ordering::Relaxed) {
            let asked_ns = boottime_ns();
            let hold = http.acquire(session, kind, "fair", &more).hold;
            waits.push(boottime_ns() - asked_ns);
            std::thread::sleep(HOLD);
            http.release(session, hold);
        }
        waits
    })
}
