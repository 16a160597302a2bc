//! P12: what a beat costs with few holds and with many.

use std::time::Duration;

use serde_json::json;

use super::{Effort, Limit, Report};
use crate::harness::{Agent, Client, cpu_ns, rss_kib};

/// Holds, and their ttl in ms: few are beaten often, so that there is something to measure.
const SIZES: [(usize, u64); 4] = [(100, 300), (1000, 600), (10_000, 3000), (100_000, 30_000)];
/// A session's page has 63 slots.
const HOLDS_PER_SESSION: usize = 50;
/// The window is a multiple of every beat interval, ms.
const WINDOW_MS: u64 = 20_000;
/// Beats settle into their rhythm for this long before, ms.
const SETTLE_MS: u64 = 10_000;

pub(super) fn of_many_holds(effort: &Effort, report: &mut Report) -> anyhow::Result<()> {
    let mut first = None;
    let sizes = SIZES.into_iter().filter(|(holds, _)| *holds <= effort.holds_max);
    for (holds, ttl_ms) in sizes {
        let agent = Agent::setup()
            .config("[limits]\nsessions_per_uid_max = 20000\nholds_max = 200000\n")
            .start();
        let mut http = agent.http();
        for s in 0..holds.div_ceil(HOLDS_PER_SESSION) {
            let session = http.register(&json!({"keepalive_ms": 86_400_000})).session;
            for h in 0..HOLDS_PER_SESSION.min(holds) {
                http.acquire(session, "leader", &format!("{s} {h}"), &json!({"ttl_ms": ttl_ms}));
            }
        }
        std::thread::sleep(Duration::from_millis(SETTLE_MS));
        // A status of 100 000 holds is work too: it stays outside of the window.
        let beats_before = http.status().upstream.beat_lateness.beats;
        let cpu_before = cpu_ns(agent.pid());
        std::thread::sleep(Duration::from_millis(WINDOW_MS));
        let cpu = (cpu_ns(agent.pid()) - cpu_before) as f64 / 1e9;
        let rss = rss_kib(agent.pid()) / 1024;
        let status = http.status();
        let beats = (status.upstream.beat_lateness.beats - beats_before) as f64;
        anyhow::ensure!(
            status.agent.holds == holds as u64,
            "{} of {holds} held",
            status.agent.holds
        );
        let cost_us = cpu * 1e6 / beats;
        let per_second = beats * 1000.0 / WINDOW_MS as f64;
        let core = 100.0 * cpu * 1000.0 / WINDOW_MS as f64;
        let against = format!(
            "{:.0} beats per core-second; {per_second:.0} beats/s cost {core:.1} % of a core; {rss} MiB",
            beats / cpu
        );
        let limit = 1.5 * *first.get_or_insert(cost_us);
        let what = format!("processor time of a beat, {holds} holds");
        report.add("P12", &what, (cost_us, "µs"), Limit::Most(limit), against);
    }
    Ok(())
}
