//! P19: what a fleet costs its Redis when nobody asks for anything, and whom that delays.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;
use uuid::Uuid;

use super::handover::hand_overs_ms;
use super::shared_redis::SharedRedis;
use super::two_agents::KEEPALIVE_MS;
use super::{Effort, Limit, Report, Samples};
use crate::harness::{Agent, Client, Http, boottime_ns, cpu_ns};

/// Hosts of a full run; a quick one has fewer.
const HOSTS: usize = 30;
const HOSTS_QUICK: usize = 10;
const PERMITS_PER_HOST: usize = 300;
/// Permits of the third host beside two that hand over.
const PERMITS_BESIDE: usize = 8000;
/// Sessions of one project, on all hosts together.
const SESSIONS: usize = 1000;
/// Further ones that are measured, and the time between two of them.
const REGISTRATIONS: usize = 20;
const APART: Duration = Duration::from_millis(500);
/// A session's page has 63 slots.
const HOLDS_PER_SESSION: usize = 50;
/// Beats settle into their rhythm for this long.
const SETTLE: Duration = Duration::from_secs(10);
/// Three beats of every permit.
const WINDOW: Duration = Duration::from_secs(30);
/// Between two looks how long the server takes to answer.
const PING_EVERY: Duration = Duration::from_millis(10);

pub(super) fn of_a_fleet_at_rest(effort: &Effort, report: &mut Report) -> anyhow::Result<()> {
    let quick = effort.holds_max < Effort::FULL.holds_max;
    let hosts = if quick { HOSTS_QUICK } else { HOSTS };
    merely_held(hosts, report)?;
    beside_a_third(effort, report);
    registered(hosts, report)
}

/// Takes permits, each of a semaphore of its own; how many were refused.
fn take(http: &mut Http, host: usize, permits: usize) -> usize {
    let mut refused = 0;
    let mut session = Uuid::nil();
    for i in 0..permits {
        if i % HOLDS_PER_SESSION == 0 {
            session = http.register(&json!({"keepalive_ms": KEEPALIVE_MS})).session;
        }
        let name = format!("{host} {i}");
        let answer = http.ask(session, "semaphore", &name, &json!({"limit": 4}));
        refused += usize::from(answer.status != 200);
    }
    refused
}

fn start(redis: &SharedRedis, hosts: usize) -> Vec<Agent> {
    (0..hosts).map(|_| Agent::setup().upstream(&redis.url()).start()).collect()
}

fn merely_held(hosts: usize, report: &mut Report) -> anyhow::Result<()> {
    let redis = SharedRedis::start();
    let agents = start(&redis, hosts);
    let title = format!("{hosts} hosts with {PERMITS_PER_HOST} permits each");
    let began_ns = boottime_ns();
    let mut refused = 0;
    for (host, agent) in agents.iter().enumerate() {
        refused += take(&mut agent.http(), host, PERMITS_PER_HOST);
    }
    let seconds = (boottime_ns() - began_ns) as f64 / 1e9;
    let against = format!("one after the other; {refused} refused");
    report.add("P19", &format!("{title}: taken"), (seconds, "s"), Limit::Most(15.0), against);

    std::thread::sleep(SETTLE);
    let (over, pings) = (Arc::new(AtomicBool::new(false)), redis.connect()?);
    let pinging = std::thread::spawn({
        let over = Arc::clone(&over);
        move || pings_ms(pings, &over)
    });
    let before = cpu_ns(redis.pid());
    std::thread::sleep(WINDOW);
    let used = (cpu_ns(redis.pid()) - before) as f64 / WINDOW.as_nanos() as f64;
    over.store(true, Ordering::Relaxed);
    let pings = pinging.join().map_err(|_| anyhow::anyhow!("the server was not there"))??;
    let held: u64 = agents.iter().map(|agent| agent.http().status().agent.holds).sum();
    let against = format!("{held} of {} still held", hosts * PERMITS_PER_HOST - refused);
    let value = (100.0 * used, "%");
    report.add("P19", &format!("{title}: Redis at rest"), value, Limit::Most(10.0), against);
    let against = format!("max {:.1} ms; of {} pings", pings.quantile(1.0), pings.values().len());
    let value = (pings.quantile(0.99), "ms");
    report.add("P19", &format!("{title}: PING, p99"), value, Limit::Most(20.0), against);
    Ok(())
}

fn pings_ms(mut redis: redis::Connection, over: &AtomicBool) -> anyhow::Result<Samples> {
    let mut times = Vec::new();
    while !over.load(Ordering::Relaxed) {
        let asked_ns = boottime_ns();
        let () = redis::cmd("PING").exec(&mut redis)?;
        times.push((boottime_ns() - asked_ns) as f64 / 1e6);
        std::thread::sleep(PING_EVERY);
    }
    Ok(Samples::new(times))
}

fn beside_a_third(effort: &Effort, report: &mut Report) {
    let redis = SharedRedis::start();
    let agents = [(); 2].map(|()| Agent::setup().upstream(&redis.url()).start());
    let alone = hand_overs_ms(&agents, "leader", effort.hand_overs);
    let third = Agent::setup().upstream(&redis.url()).start();
    let refused = take(&mut third.http(), 0, PERMITS_BESIDE);
    std::thread::sleep(SETTLE);
    let times = hand_overs_ms(&agents, "leader", effort.hand_overs);
    let title = format!("leader between two hosts, a third holds {PERMITS_BESIDE} permits, p99");
    let against = format!(
        "p50 {:.2}, max {:.2} ms; {refused} refused; without the third p50 {:.2}, p99 {:.2} ms",
        times.median(),
        times.quantile(1.0),
        alone.median(),
        alone.quantile(0.99)
    );
    report.add("P19", &title, (times.quantile(0.99), "ms"), Limit::Most(8.0), against);
}

fn registered(hosts: usize, report: &mut Report) -> anyhow::Result<()> {
    let redis = SharedRedis::start();
    let agents = start(&redis, hosts);
    let mut clients: Vec<Http> = agents.iter().map(Agent::http).collect();
    let with = json!({"project": "p", "keepalive_ms": KEEPALIVE_MS});
    for i in 0..SESSIONS {
        clients[i % hosts].register(&with);
    }
    std::thread::sleep(SETTLE);
    let window = APART * u32::try_from(REGISTRATIONS)?;
    let cpu = || cpu_ns(redis.pid());
    let before = cpu();
    std::thread::sleep(window);
    let idle_ns = cpu() - before;
    let before = cpu();
    for i in 0..REGISTRATIONS {
        clients[i % hosts].register(&with);
        std::thread::sleep(APART);
    }
    let used_ns = (cpu() - before).saturating_sub(idle_ns);
    let title = format!("{SESSIONS} sessions of a project on {hosts} hosts: Redis, for one more");
    let value = (used_ns as f64 / 1e6 / REGISTRATIONS as f64, "ms");
    let against = format!("{REGISTRATIONS} of them, {} ms apart", APART.as_millis());
    report.add("P19", &title, value, Limit::Most(5.0), against);
    Ok(())
}
