//! P9: many clients at once.

use std::sync::Barrier;

use serde_json::json;

use super::calls::call_pair;
use super::floor::call_echo;
use super::{Effort, Floor, Limit, Report, Samples};
use crate::harness::{Agent, Client, Http, boottime_ns};

const CLIENTS: usize = 64;

/// Runs `call` on all clients for the length of a round; calls per second.
fn per_second<C: Send>(
    effort: &Effort,
    clients: &mut [C],
    call: impl Fn(&mut C) -> anyhow::Result<()> + Sync,
) -> anyhow::Result<f64> {
    let start = Barrier::new(clients.len());
    let (call, start) = (&call, &start);
    let counts: Vec<anyhow::Result<u32>> = std::thread::scope(|scope| {
        let threads: Vec<_> = clients
            .iter_mut()
            .map(|client| {
                scope.spawn(move || {
                    start.wait();
                    let end = boottime_ns() + effort.round_ms * 1_000_000;
                    let mut calls = 0;
                    while boottime_ns() < end {
                        call(client)?;
                        calls += 1;
                    }
                    Ok(calls)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no client panics")).collect()
    });
    let mut calls = 0;
    for count in counts {
        calls += count?;
    }
    Ok(f64::from(calls) * 1000.0 / effort.round_ms as f64)
}

pub(super) fn of_many_clients(effort: &Effort, report: &mut Report) -> anyhow::Result<()> {
    let echo = Floor::start("http")?;
    let agent = Agent::start();
    let mut echo_clients: Vec<Http> = (0..CLIENTS).map(|_| echo.http()).collect();
    let mut clients: Vec<_> = (0..CLIENTS)
        .map(|i| {
            let mut http = agent.http();
            let session = http.register(&json!({"keepalive_ms": 86_400_000})).session;
            (http, session, format!("role {i}"))
        })
        .collect();
    let mut echoes = Vec::new();
    let mut pairs = Vec::new();
    for _ in 0..effort.rounds {
        echoes.push(per_second(effort, &mut echo_clients, call_echo)?);
        pairs.push(per_second(effort, &mut clients, |(http, session, name)| {
            call_pair(http, *session, "leader", name)
        })?);
    }
    let (echo, pair) = (Samples::new(echoes).median(), Samples::new(pairs).median());
    report.add(
        "P9",
        "acquire + release by 64 clients",
        (pair, "/s"),
        Limit::Least(0.7 * echo / 2.0),
        format!("0.7 × HTTP echo {echo:.0}/s ÷ 2 calls"),
    );
    Ok(())
}
