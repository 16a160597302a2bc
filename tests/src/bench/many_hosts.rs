//! P20: what a hand-over costs when many hosts wait, and what hosts cost that campaign for everything.

use std::time::Duration;

use serde_json::json;
use uuid::Uuid;

use super::report::number;
use super::shared_redis::SharedRedis;
use super::two_agents::client;
use super::{Effort, Limit, Report, Samples};
use crate::harness::{Agent, Client, Events, Http, boottime_ns, cpu_ns};

/// Hosts that wait for one thing.
const WAITING: [usize; 3] = [1, 10, 50];
/// Between two hand-overs: everything has come to rest by then.
const REST: Duration = Duration::from_millis(100);
/// Hosts that campaign for roles, and roles.
const CAMPAIGNING: usize = 30;
const ROLES: usize = 100;
/// A session's page has 63 slots.
const ROLES_PER_SESSION: usize = 50;
/// Beats settle into their rhythm for this long.
const SETTLE: Duration = Duration::from_secs(5);
/// One beat of every wait.
const WINDOW: Duration = Duration::from_secs(10);
/// A hand-over to one of many may cost so many times one to the only one.
const GROWTH: f64 = 1.2;

/// A host with a client that waits or holds.
struct Host {
    agent: Agent,
    http: Http,
    session: Uuid,
    events: Events,
}

impl Host {
    fn start(redis: &SharedRedis) -> Host {
        let agent = Agent::setup().upstream(&redis.url()).start();
        let (http, session) = client(&agent);
        let events = agent.events(session);
        Host { agent, http, session, events }
    }
}

pub(super) fn that_wait(effort: &Effort, report: &mut Report) -> anyhow::Result<()> {
    for kind in ["leader", "semaphore", "lease"] {
        let mut alone = None;
        for waiting in WAITING {
            let cost = hand_over(kind, waiting, effort.hand_overs)?;
            let title = format!("{kind}: hand-over with {waiting} waiting hosts");
            let times = &cost.times;
            let against = format!(
                "p50 {:.2}, p99 {:.2} ms; {} scripts each",
                times.median(),
                times.quantile(0.99),
                number(cost.scripts),
            );
            let first = *alone.get_or_insert(cost.redis_ms);
            let value = (cost.redis_ms, "ms");
            let limit = Limit::Most(GROWTH * first);
            report.add("P20", &format!("{title}: Redis"), value, limit, against);
        }
    }
    Ok(())
}

/// What one hand-over took, and cost Redis.
struct HandOver {
    times: Samples,
    scripts: f64,
    redis_ms: f64,
}

/// The hosts hold it in turn: whoever gives it back waits behind all others.
fn hand_over(kind: &str, waiting: usize, rounds: usize) -> anyhow::Result<HandOver> {
    let redis = SharedRedis::start();
    let mut hosts: Vec<Host> = (0..=waiting).map(|_| Host::start(&redis)).collect();
    let more = json!({});
    let mut holds = Vec::new();
    for (place, host) in hosts.iter_mut().enumerate() {
        holds.push(match place {
            0 => host.http.acquire(host.session, kind, "role", &more).hold,
            _ => host.http.queue(host.session, kind, "role", &more).hold,
        });
    }
    std::thread::sleep(SETTLE);
    // Beats and looks go on beside; they are taken off.
    let idle = measured(&redis, || {
        std::thread::sleep(REST * u32::try_from(rounds)?);
        Ok(())
    })?;
    let mut times = Vec::new();
    let used = measured(&redis, || {
        for round in 0..rounds {
            let (one, next) = (round % hosts.len(), (round + 1) % hosts.len());
            let released_ns = boottime_ns();
            let host = &mut hosts[one];
            host.http.release(host.session, holds[one]);
            let (seen, _) = hosts[next].events.granted_seen(holds[next]);
            times.push((seen.at_ns - released_ns) as f64 / 1e6);
            let host = &mut hosts[one];
            holds[one] = host.http.queue(host.session, kind, "role", &more).hold;
            std::thread::sleep(REST);
        }
        Ok(())
    })?;
    let idles = used.seconds / idle.seconds;
    Ok(HandOver {
        times: Samples::new(times),
        scripts: (used.scripts - idles * idle.scripts) / rounds as f64,
        redis_ms: (used.ms - idles * idle.ms) / rounds as f64,
    })
}

struct Used {
    seconds: f64,
    scripts: f64,
    ms: f64,
}

/// What Redis did meanwhile.
fn measured(
    redis: &SharedRedis,
    work: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<Used> {
    let (began, scripts, ns) = (boottime_ns(), redis.scripts(), cpu_ns(redis.pid()));
    work()?;
    let seconds = (boottime_ns() - began) as f64 / 1e9;
    let ms = (cpu_ns(redis.pid()) - ns) as f64 / 1e6;
    Ok(Used { seconds, scripts: (redis.scripts() - scripts) as f64, ms })
}

/// One host has all roles, and leaves.
pub(super) fn that_campaign(_: &Effort, report: &mut Report) -> anyhow::Result<()> {
    let redis = SharedRedis::start();
    let mut hosts: Vec<Host> = (0..CAMPAIGNING).map(|_| Host::start(&redis)).collect();
    for role in 0..ROLES {
        let name = format!("role {role}");
        for turn in 0..CAMPAIGNING {
            // The first has all of them; behind it everybody is first once in a while.
            let place = if turn == 0 { 0 } else { 1 + (turn - 1 + role) % (CAMPAIGNING - 1) };
            let host = &mut hosts[place];
            if role % ROLES_PER_SESSION == 0 && role > 0 {
                (host.http, host.session) = client(&host.agent);
                host.events = host.agent.events(host.session);
            }
            if turn == 0 {
                host.http.acquire(host.session, "leader", &name, &json!({}));
            } else {
                host.http.queue(host.session, "leader", &name, &json!({}));
            }
        }
    }
    std::thread::sleep(SETTLE);
    let at_rest = measured(&redis, || {
        std::thread::sleep(WINDOW);
        Ok(())
    })?;
    let title = format!("{CAMPAIGNING} hosts campaign for {ROLES} roles");
    let waiting = ROLES * (CAMPAIGNING - 1);
    let scripts = number(at_rest.scripts / at_rest.seconds);
    let against = format!("{waiting} waits, {scripts} scripts a second");
    let value = (at_rest.ms / at_rest.seconds / 10.0, "%");
    report.add("P20", &format!("{title}: Redis at rest"), value, Limit::Most(10.0), against);

    let began_ns = boottime_ns();
    let mut first = hosts.remove(0);
    let held = |hosts: &[Host]| -> u64 {
        let status = hosts.iter().map(|host| host.agent.http().status());
        status.map(|status| status.agent.holds).sum()
    };
    let mut taken_ns = 0;
    let storm = measured(&redis, || {
        first.agent.stop();
        crate::harness::until("every role has a holder again", || {
            let held = held(&hosts);
            taken_ns = boottime_ns() - began_ns;
            held >= ROLES as u64
        });
        Ok(())
    })?;
    let against =
        format!("{} scripts, Redis {} ms in all", number(storm.scripts), number(storm.ms));
    let value = (taken_ns as f64 / 1e6, "ms");
    let what = format!("{title}: all taken over when the one that has them leaves");
    report.add("P20", &what, value, Limit::Most(1000.0), against);
    Ok(())
}
