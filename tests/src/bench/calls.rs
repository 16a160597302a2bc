//! P1: one client acquires and releases, again and again.

use serde_json::{Value, json};
use uuid::Uuid;

use super::floor::call_echo;
use super::samples::timed_us;
use super::{Effort, Floor, Limit, Report, Samples};
use crate::harness::{Agent, Client, Http};

/// Calls before the first that counts.
pub(super) const WARM_UP: usize = 200;

/// One acquire and one release, each parsed like the floor's answer.
pub(super) fn call_pair(
    http: &mut Http,
    session: Uuid,
    kind: &str,
    name: &str,
) -> anyhow::Result<()> {
    let mut acquire = json!({"session": session, "kind": kind});
    if kind != "master" {
        acquire["name"] = json!(name);
    }
    let answer = http.try_call("POST", "/v1/acquire", acquire.to_string().as_bytes())?;
    anyhow::ensure!(answer.status == 200, "acquire: {}", answer.text());
    let granted: Value = serde_json::from_slice(&answer.body)?;
    let release = json!({"session": session, "hold": granted["hold"]});
    let answer = http.try_call("POST", "/v1/release", release.to_string().as_bytes())?;
    anyhow::ensure!(answer.status == 200, "release: {}", answer.text());
    let _: Value = serde_json::from_slice(&answer.body)?;
    Ok(())
}

pub(super) fn acquire_and_release(effort: &Effort, report: &mut Report) -> anyhow::Result<()> {
    let raw = Floor::start("raw")?;
    let echo = Floor::start("http")?;
    let agent = Agent::start();
    let mut echo_client = echo.http();
    let mut client = agent.http();
    let session = client.register(&json!({"keepalive_ms": 86_400_000})).session;
    for _ in 0..WARM_UP {
        call_echo(&mut echo_client)?;
        call_pair(&mut client, session, "leader", "cleanup")?;
    }

    let mut raws = Vec::new();
    let mut echoes = Vec::new();
    let mut pairs = Vec::new();
    let mut tails = Vec::new();
    for _ in 0..effort.rounds {
        raws.push(raw.raw_us(effort)?.median());
        let mut times = Vec::with_capacity(effort.calls);
        for _ in 0..effort.calls {
            let (us, result) = timed_us(|| call_echo(&mut echo_client));
            result?;
            times.push(us);
        }
        echoes.push(Samples::new(times).median());
        let mut times = Vec::with_capacity(effort.calls);
        for _ in 0..effort.calls {
            let (us, result) = timed_us(|| call_pair(&mut client, session, "leader", "cleanup"));
            result?;
            times.push(us);
        }
        let times = Samples::new(times);
        pairs.push(times.median());
        tails.push(times.quantile(0.99));
    }
    let median = |values: Vec<f64>| Samples::new(values).median();
    let (raw, echo, pair, tail) = (median(raws), median(echoes), median(pairs), median(tails));
    report.add(
        "P1",
        "acquire + release, p50",
        (pair, "µs"),
        Limit::Most(1.6 * 2.0 * echo),
        format!("2 × HTTP echo {echo:.1} µs (raw socket echo {raw:.1} µs); p99 {tail:.0} µs"),
    );
    Ok(())
}
