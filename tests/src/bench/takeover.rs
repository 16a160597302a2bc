//! P4 on one agent: from `kill -9` of the holder to the waiter's `granted`.

use nix::sys::signal::Signal;
use serde_json::json;

use super::{Effort, Histogram, Limit, Report, Samples};
use crate::harness::{Agent, Client, Puppet, boottime_ns};

/// Upper bounds of the histogram, ms.
const BOUNDS_MS: [f64; 10] = [0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, f64::INFINITY];

pub(super) fn after_a_kill(effort: &Effort, report: &mut Report) -> anyhow::Result<()> {
    for kind in ["leader", "semaphore"] {
        let times = Samples::new(kill_holders(effort, kind));
        let against = format!(
            "{} kills; {:.2} to {:.2} ms",
            effort.kills,
            times.quantile(0.0),
            times.quantile(1.0)
        );
        let what = format!("{kind}: kill -9 of the holder → granted");
        report.add(
            "P4",
            &format!("{what}, p50"),
            (times.median(), "ms"),
            Limit::Most(3.0),
            against.clone(),
        );
        report.add(
            "P4",
            &format!("{what}, p99"),
            (times.quantile(0.99), "ms"),
            Limit::Most(10.0),
            against,
        );
        let mut below = 0.0;
        let buckets = BOUNDS_MS
            .iter()
            .map(|&bound| {
                let count = times.values().iter().filter(|&&ms| ms > below && ms <= bound).count();
                below = bound;
                (bound, count)
            })
            .collect();
        report.histograms.push(Histogram { what, buckets });
    }
    Ok(())
}

/// Times from just before the kill until the event was read, ms.
fn kill_holders(effort: &Effort, kind: &str) -> Vec<f64> {
    let agent = Agent::start();
    let mut http = agent.http();
    let waiter = http.register(&json!({"keepalive_ms": 86_400_000})).session;
    (0..effort.kills)
        .map(|_| {
            let mut holder = Puppet::start(&agent);
            let session = holder.register(&json!({"tether": "connection"})).session;
            holder.open_events(session).snapshot();
            holder.acquire(session, kind, "role", &json!({}));
            let events = agent.events(waiter);
            let waiting = http.queue(waiter, kind, "role", &json!({}));
            let killed_at = boottime_ns();
            holder.program().signal(Signal::SIGKILL);
            let (seen, _) = events.granted_seen(waiting.hold);
            http.release(waiter, waiting.hold);
            (seen.at_ns - killed_at) as f64 / 1e6
        })
        .collect()
}
