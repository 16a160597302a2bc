//! P7: how late beats are while the API is flooded.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;
use tenure::wire::HoldState;

use super::calls::call_pair;
use super::{Effort, Limit, Report};
use crate::harness::{Agent, Client};

/// Flooding clients by core.
const CLIENTS_PER_CORE: usize = 16;
const SESSIONS: usize = 20;
const HOLDS_PER_SESSION: usize = 20;
/// Short, so that each hold is beaten about once a second.
const TTL_MS: u64 = 3000;
/// Rounds of flood: the lateness of the last 4096 beats is what the agent reports.
const ROUNDS: u32 = 8;

pub(super) fn lateness_under_flood(effort: &Effort, report: &mut Report) -> anyhow::Result<()> {
    let agent = Agent::start();
    let mut http = agent.http();
    for s in 0..SESSIONS {
        let session = http.register(&json!({"name": "beaten", "keepalive_ms": 86_400_000})).session;
        for h in 0..HOLDS_PER_SESSION {
            http.acquire(session, "leader", &format!("beaten {s} {h}"), &json!({"ttl_ms": TTL_MS}));
        }
    }
    let cores = std::thread::available_parallelism()?.get();
    let stop = AtomicBool::new(false);
    let before = http.status().upstream.beat_lateness;
    let calls: anyhow::Result<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..cores * CLIENTS_PER_CORE)
            .map(|i| {
                let mut http = agent.http();
                let stop = &stop;
                scope.spawn(move || {
                    let with = json!({"name": "flood", "keepalive_ms": 86_400_000});
                    let session = http.register(&with).session;
                    let mut calls = 0;
                    while !stop.load(Ordering::Relaxed) {
                        call_pair(&mut http, session, "leader", &format!("flood {i}"))?;
                        anyhow::ensure!(http.get("/v1/routes").status == 200, "routes");
                        calls += 3;
                    }
                    Ok(calls)
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(effort.round_ms) * ROUNDS);
        stop.store(true, Ordering::Relaxed);
        threads.into_iter().map(|thread| thread.join().expect("no client panics")).sum()
    });
    let status = http.status();
    let lateness = status.upstream.beat_lateness;
    let beaten = status.sessions.iter().filter(|session| session.name == "beaten");
    let held = beaten.flat_map(|s| &s.holds).filter(|h| h.state == HoldState::Held).count();
    let against = format!(
        "{} beats during {} calls by {} clients; p50 {:.2} ms, max {:.1} ms",
        lateness.beats - before.beats,
        calls?,
        cores * CLIENTS_PER_CORE,
        ms(lateness.p50_us),
        ms(lateness.max_us),
    );
    report.add(
        "P7",
        "beat lateness under flood, p99.9",
        (ms(lateness.p999_us), "ms"),
        Limit::Most(5.0),
        against,
    );
    let lost = u32::try_from(SESSIONS * HOLDS_PER_SESSION - held)?;
    let of = format!("of {} holds with a ttl of {TTL_MS} ms", SESSIONS * HOLDS_PER_SESSION);
    report.add("P7", "holds lost under flood", (f64::from(lost), ""), Limit::Most(0.0), of);
    Ok(())
}

fn ms(us: u64) -> f64 {
    us as f64 / 1000.0
}
