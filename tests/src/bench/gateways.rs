//! P15: two hosts behind two gateways that share a Redis, and the same hosts on that Redis; and many hosts behind one.

use std::time::Duration;

use tenure_core::keeper::Rhythm;

use super::calls::{WARM_UP, call_pair, pairs_in_turns};
use super::handover::hand_overs_ms;
use super::samples::timed_us;
use super::shared_redis::SharedRedis;
use super::takeover::kill_holders;
use super::two_agents::{KINDS, client};
use super::{Effort, Limit, Report, Samples, time_line};
use crate::harness::{Agent, Balancer, Gateway, Key, cpu_ns, rss_kib};
use crate::light::LightAgents;

/// Fewer say nothing of a p99.
const ROUNDS_MIN: usize = 200;
/// Hosts behind one gateway, and the holds of each; a quick run has the first alone.
const HOSTS: [usize; 2] = [50, 500];
const HOLDS: usize = 200;
/// The cadence of the sessions of a gateway.
const RHYTHM: Rhythm = Rhythm { ttl: Duration::from_secs(90), beat: Duration::from_secs(30) };
/// Every hold is beaten within it, twice or three times in two of them.
const WINDOW: Duration = Duration::from_secs(60);
/// What a host may take of a gateway, % of a core and MiB, and what a gateway may without any.
const CPU_PER_HOST: f64 = 0.1;
const MIB_PER_HOST: f64 = 0.5;
const MIB: f64 = 20.0;
/// Calls with beats take no longer, ms; the margin of a ttl of 90 s is twice that.
const LATE_MS: f64 = 250.0;
/// The subject of an agent that is measured beside the load.
const BESIDE: &str = "beside";
/// Upper bounds of the histograms, ms.
const BOUNDS_MS: [f64; 9] = [0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0, 12.0, 100.0];

fn agents(urls: [String; 2]) -> [Agent; 2] {
    urls.map(|url| Agent::setup().upstream(&url).start())
}

pub(super) fn between_hosts(effort: &Effort, report: &mut Report) -> anyhow::Result<()> {
    let redis = SharedRedis::start();
    let gateways = [(); 2].map(|()| Gateway::start(&redis.url()));
    // Streams at one gateway and calls through the other: every change goes from one to the other.
    let ways = [(0, 1), (1, 0)].map(|(to, by)| Balancer::apart(&gateways, to, by));
    for (way, urls) in [
        ("own gateway", gateways.each_ref().map(Gateway::url)),
        ("stream and calls at two gateways", ways.each_ref().map(Balancer::url)),
    ] {
        let agents = agents(urls.clone());
        for kind in KINDS {
            let times = hand_overs_ms(&agents, kind, effort.hand_overs.max(ROUNDS_MIN));
            add(report, &format!("{kind}, {way}: release → granted on another host"), &times);
            let [one, two] = agents.each_ref();
            let times = Samples::new(kill_holders(effort.kills.max(ROUNDS_MIN), kind, [one, two]));
            add(report, &format!("{kind}, {way}: kill -9 → granted on another host"), &times);
        }
        let others = [("one gateway", gateways[0].pid()), ("other gateway", gateways[1].pid())];
        time_line::of_hand_overs("P15", &urls, &redis, &others, ROUNDS_MIN, report)?;
    }
    acquire_and_release(effort, report, &redis, &gateways[0])
}

fn add(report: &mut Report, title: &str, times: &Samples) {
    let against = format!("{} rounds; max {:.2} ms", times.values().len(), times.quantile(1.0));
    for (part, name, limit) in [(0.5, "p50", 3.0), (0.99, "p99", 12.0)] {
        let (value, limit) = ((times.quantile(part), "ms"), Limit::Most(limit));
        report.add("P15", &format!("{title}, {name}"), value, limit, against.clone());
    }
    report.histogram(title, &BOUNDS_MS, times);
}

fn acquire_and_release(
    effort: &Effort,
    report: &mut Report,
    redis: &SharedRedis,
    gateway: &Gateway,
) -> anyhow::Result<()> {
    let agents = agents([redis.url(), gateway.url()]);
    for kind in KINDS {
        let [direct, through] = pairs_in_turns(effort, kind, agents.each_ref())?;
        report.add(
            "P15",
            &format!("{kind} through a gateway: acquire + release, p50"),
            (through, "µs"),
            Limit::Most(1.5 * direct),
            format!("{direct:.0} µs on the same Redis without a gateway"),
        );
    }
    Ok(())
}

pub(super) fn under_load(effort: &Effort, report: &mut Report) -> anyhow::Result<()> {
    let quick = effort.holds_max < Effort::FULL.holds_max;
    for hosts in HOSTS.into_iter().take(if quick { 1 } else { HOSTS.len() }) {
        many_hosts(hosts, effort, report)?;
    }
    Ok(())
}

/// The load of many hosts, and beside it an agent behind the same gateway and one on the same Redis.
fn many_hosts(hosts: usize, effort: &Effort, report: &mut Report) -> anyhow::Result<()> {
    let redis = SharedRedis::start();
    let keys: Vec<Key> = (0..hosts).map(|host| Key::new(&format!("host-{host}"))).collect();
    let beside = Key::new(BESIDE);
    let all: Vec<&Key> = keys.iter().chain([&beside]).collect();
    let gateway = Gateway::start_with(&redis.url(), &all);
    let idle_kib = rss_kib(gateway.pid());
    let agents = [
        Agent::setup().upstream(&redis.url()).start(),
        Agent::setup().upstream(&gateway.url()).config(&gateway.config(&beside)).start(),
    ];
    let load = LightAgents::start(&gateway, &keys, RHYTHM);
    load.take_all(HOLDS);
    let title = format!("{hosts} hosts × {HOLDS} holds, one gateway");

    let before = (cpu_ns(gateway.pid()), cpu_ns(redis.pid()), redis.scripts(), load.tally());
    std::thread::sleep(WINDOW);
    let (after, scripts) = (load.tally(), redis.scripts() - before.2);
    let share = |pid, before| 100.0 * (cpu_ns(pid) - before) as f64 / WINDOW.as_nanos() as f64;
    let (gateway_share, redis_share) =
        (share(gateway.pid(), before.0), share(redis.pid(), before.1));
    let beats = after.beats - before.3.beats;
    let mib = rss_kib(gateway.pid()) as f64 / 1024.0;
    let against = format!(
        "{beats} beats in {} s, by {scripts} scripts; Redis {redis_share:.1} %; {} lost, {} in jeopardy",
        WINDOW.as_secs(),
        after.lost,
        after.jeopardy
    );
    let limit = Limit::Most(hosts as f64 * CPU_PER_HOST);
    report.add("P15b", &format!("{title}: CPU"), (gateway_share, "%"), limit, against);
    let against = format!("{:.1} MiB before", idle_kib as f64 / 1024.0);
    let limit = Limit::Most(MIB + hosts as f64 * MIB_PER_HOST);
    report.add("P15b", &format!("{title}: RSS"), (mib, "MiB"), limit, against);
    let late = Samples::new(after.beat_ms);
    let against = format!(
        "p50 {:.1}, max {:.1} ms, of {} calls with up to 512 beats each",
        late.median(),
        late.quantile(1.0),
        late.values().len()
    );
    let value = (late.quantile(0.99), "ms");
    let limit = Limit::Most(LATE_MS);
    report.add("P15b", &format!("{title}: beats, due → answered, p99"), value, limit, against);

    let mut clients = agents.each_ref().map(client);
    let mut times = [Vec::new(), Vec::new()];
    for round in 0..WARM_UP + effort.calls {
        for ((http, session), times) in clients.iter_mut().zip(&mut times) {
            let (us, done) = timed_us(|| call_pair(http, *session, "leader", "beside"));
            done?;
            if round >= WARM_UP {
                times.push(us);
            }
        }
    }
    let [direct, through] = times.map(Samples::new);
    let value = (through.quantile(0.99), "µs");
    let against = format!(
        "direct p99 {:.0} µs; p50 {:.0} and {:.0} µs",
        direct.quantile(0.99),
        through.median(),
        direct.median()
    );
    let limit = Limit::Most(1.5 * direct.quantile(0.99));
    report.add("P15b", &format!("{title}: acquire + release beside, p99"), value, limit, against);
    Ok(())
}
