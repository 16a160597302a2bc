//! P15: two hosts behind two gateways that share a Redis, and the same hosts on that Redis.

use super::calls::{WARM_UP, call_pair};
use super::handover::hand_overs_ms;
use super::samples::timed_us;
use super::shared_redis::SharedRedis;
use super::two_agents::{KINDS, client};
use super::{Effort, Limit, Report, Samples};
use crate::harness::{Agent, Balancer, Gateway};

/// Fewer say nothing of a p99.
const HAND_OVERS_MIN: usize = 200;
/// Upper bounds of the histograms, ms.
const BOUNDS_MS: [f64; 9] = [0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0, 12.0, 100.0];

fn agents(urls: [String; 2]) -> [Agent; 2] {
    urls.map(|url| Agent::setup().upstream(&url).start())
}

pub(super) fn between_hosts(effort: &Effort, report: &mut Report) -> anyhow::Result<()> {
    let redis = SharedRedis::start();
    let gateways = [(); 2].map(|()| Gateway::start(&redis.url()));
    let rounds = effort.hand_overs.max(HAND_OVERS_MIN);
    // Streams at one gateway and calls through the other: every change goes from one to the other.
    let ways = [(0, 1), (1, 0)].map(|(to, by)| Balancer::apart(&gateways, to, by));
    for (way, urls) in [
        ("own gateway", gateways.each_ref().map(Gateway::url)),
        ("stream and calls at two gateways", ways.each_ref().map(Balancer::url)),
    ] {
        let agents = agents(urls);
        for kind in KINDS {
            let times = hand_overs_ms(&agents, kind, rounds);
            let title = format!("{kind}, {way}: release → granted on another host");
            let against = format!("{rounds} releases; max {:.2} ms", times.quantile(1.0));
            for (part, name, limit) in [(0.5, "p50", 3.0), (0.99, "p99", 12.0)] {
                let (value, limit) = ((times.quantile(part), "ms"), Limit::Most(limit));
                report.add("P15", &format!("{title}, {name}"), value, limit, against.clone());
            }
            report.histogram(&title, &BOUNDS_MS, &times);
        }
    }
    acquire_and_release(effort, report, &redis, &gateways[0])
}

fn acquire_and_release(
    effort: &Effort,
    report: &mut Report,
    redis: &SharedRedis,
    gateway: &Gateway,
) -> anyhow::Result<()> {
    let agents = agents([redis.url(), gateway.url()]);
    for kind in KINDS {
        let mut medians = [Vec::new(), Vec::new()];
        let mut clients = agents.each_ref().map(client);
        for round in 0..=effort.rounds {
            for ((http, session), medians) in clients.iter_mut().zip(&mut medians) {
                let mut times = Vec::with_capacity(effort.calls);
                for _ in 0..if round == 0 { WARM_UP } else { effort.calls } {
                    let (us, done) = timed_us(|| call_pair(http, *session, kind, "cleanup"));
                    done?;
                    times.push(us);
                }
                if round > 0 {
                    medians.push(Samples::new(times).median());
                }
            }
        }
        let [direct, through] = medians.map(|medians| Samples::new(medians).median());
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
