//! P13: what waiters of one leader cost, and how late beats are while they come and go.

use std::sync::Barrier;
use std::time::Duration;

use serde_json::json;
use tenure::wire::{HoldState, Waiting};

use super::growth::ROOM_FOR_MANY;
use super::{Effort, Limit, Report};
use crate::harness::{Agent, Client, boottime_ns, cpu_ns, rss_kib};

/// Waiters of one leader.
const SIZES: [usize; 2] = [1000, 20_000];
/// A session's page has 63 slots.
const WAITERS_PER_SESSION: usize = 63;
/// Sessions that end at the same instant.
const ENDED: usize = 64;
/// Leaders of other programs, and their ttl: each is beaten about three times a second.
const BYSTANDERS: usize = 50;
const TTL_MS: u64 = 1000;
/// How long they are watched while everybody waits.
const CALM: Duration = Duration::from_secs(10);

pub(super) fn of_one_leader(effort: &Effort, report: &mut Report) -> anyhow::Result<()> {
    let mut first = None;
    for waiters in SIZES.into_iter().filter(|size| *size <= 2 * effort.holds_max) {
        let agent = Agent::setup().config(ROOM_FOR_MANY).start();
        let mut http = agent.http();
        let forever = json!({"keepalive_ms": 86_400_000});
        let bystander = http.register(&forever).session;
        for number in 0..BYSTANDERS {
            let name = format!("bystander {number}");
            http.acquire(bystander, "leader", &name, &json!({"ttl_ms": TTL_MS}));
        }
        let holder = http.register(&forever).session;
        http.acquire(holder, "leader", "hot", &json!({"ttl_ms": 600_000}));
        let sessions: Vec<_> = (0..waiters.div_ceil(WAITERS_PER_SESSION).max(ENDED))
            .map(|_| http.register(&forever).session)
            .collect();
        let queued = json!({"wait": "queue", "ttl_ms": 600_000});
        let before_ns = cpu_ns(agent.pid());
        for number in 0..waiters {
            let session = sessions[number % sessions.len()];
            http.ask(session, "leader", "hot", &queued).expect::<Waiting>(202);
        }
        let joining_ns = cpu_ns(agent.pid()) - before_ns;
        std::thread::sleep(CALM);
        let rss_mib = rss_kib(agent.pid()) / 1024;

        let (ending, staying) = sessions.split_at(ENDED);
        let together = Barrier::new(ENDED + 1);
        let before_ns = cpu_ns(agent.pid());
        let took_ns = std::thread::scope(|scope| {
            for session in ending {
                let (mut http, together) = (agent.http(), &together);
                scope.spawn(move || {
                    together.wait();
                    http.end(*session);
                    together.wait();
                });
            }
            together.wait();
            let began_ns = boottime_ns();
            together.wait();
            boottime_ns() - began_ns
        });
        let ending_ns = cpu_ns(agent.pid()) - before_ns;
        let left = waiters - ENDED * (waiters / sessions.len());
        let status = http.status();
        let lateness = status.upstream.beat_lateness;
        let held = status.sessions.iter().filter(|session| session.session == bystander);
        let held = held.flat_map(|s| &s.holds).filter(|h| h.state == HoldState::Held).count();

        let cost_us = joining_ns as f64 / 1e3 / waiters as f64;
        let what = format!("processor time of joining {waiters} waiters, each");
        let limit = 1.5 * *first.get_or_insert(cost_us);
        let against = format!("{} sessions; {} still wait", staying.len(), status.agent.waiters);
        report.add("P13", &what, (cost_us, "µs"), Limit::Most(limit), against);
        let what = format!("{ENDED} sessions ended at once among {waiters} waiters");
        let against = format!(
            "{:.1} ms of processor time for {} waiters",
            ending_ns as f64 / 1e6,
            waiters - left
        );
        report.add("P13", &what, (took_ns as f64 / 1e6, "ms"), Limit::Most(1000.0), against);
        let what = format!("beat lateness beside {waiters} waiters, p99.9");
        let against = format!(
            "{} beats; max {:.1} ms; {held} of {BYSTANDERS} holds with a ttl of {TTL_MS} ms kept",
            lateness.beats,
            lateness.max_us as f64 / 1e3
        );
        let late_ms = lateness.p999_us as f64 / 1e3;
        report.add("P13", &what, (late_ms, "ms"), Limit::Most(50.0), against);
        let what = format!("memory with {waiters} waiters");
        report.add("P13", &what, (rss_mib as f64, "MiB"), Limit::Most(300.0), String::new());
    }
    Ok(())
}
