//! P22: runners of mailboxes that come all at once.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tonic::Status;

use super::shared_redis::SharedRedis;
use super::{Effort, Limit, Report, Samples};
use crate::harness::{Gateway, PatternRunners, boottime_ns};

const RUNNERS: usize = 100;
/// Rounds in which all of them call, for each of the effort's; and those that do not count.
const ROUNDS: usize = 10;
const WARM_UP: usize = 3;
const TTL: Duration = Duration::from_secs(300);
/// What a runner waits at most, p99, ms.
const ACQUIRE_MS: f64 = 100.0;
const HEARTBEAT_MS: f64 = 50.0;

/// A call of a runner.
#[derive(Debug, Clone, Copy)]
enum Call {
    Acquire,
    Heartbeat,
    Release,
}

pub(super) fn of_runners(effort: &Effort, report: &mut Report) -> anyhow::Result<()> {
    let redis = SharedRedis::start();
    for (store, url) in [("embedded", "embedded:".to_owned()), ("Redis", redis.url())] {
        let gateway = Gateway::start(&url);
        let runtime = Runtime::new()?;
        let _inside = runtime.enter();
        let runners = PatternRunners::of(&gateway, RUNNERS);
        let (mut acquires, mut heartbeats) = (Vec::new(), Vec::new());
        for round in 0..WARM_UP + ROUNDS * effort.rounds {
            let times = [Call::Acquire, Call::Heartbeat, Call::Release]
                .map(|call| runtime.block_on(all_at_once(&runners, call)));
            let [of_acquires, of_heartbeats, released] = times;
            released?;
            if round >= WARM_UP {
                acquires.extend(of_acquires?);
                heartbeats.extend(of_heartbeats?);
            }
        }
        for (what, times, limit) in
            [("acquire", acquires, ACQUIRE_MS), ("heartbeat", heartbeats, HEARTBEAT_MS)]
        {
            let times = Samples::new(times);
            let against = format!(
                "p50 {:.1}, max {:.1} ms, of {} calls",
                times.median(),
                times.quantile(1.0),
                times.values().len()
            );
            let title = format!("{store}, {RUNNERS} runners at once: {what}, p99");
            let value = (times.quantile(0.99), "ms");
            report.add("P22", &title, value, Limit::Most(limit), against);
        }
    }
    Ok(())
}

/// How long the call of each took, ms.
async fn all_at_once(runners: &PatternRunners, call: Call) -> Result<Vec<f64>, Status> {
    let start = Arc::new(Barrier::new(RUNNERS));
    let mut calls = JoinSet::new();
    for number in 0..RUNNERS {
        let (runners, start) = (runners.clone(), Arc::clone(&start));
        calls.spawn(async move {
            let mailbox = format!("mail-{number}@proxy-01");
            start.wait().await;
            let began = boottime_ns();
            match call {
                Call::Acquire => runners.acquire(number, &mailbox, TTL).await,
                Call::Heartbeat => runners.heartbeat(number, &mailbox, "healthy").await,
                Call::Release => runners.release(number, &mailbox).await,
            }?;
            Ok((boottime_ns() - began) as f64 / 1e6)
        });
    }
    calls.join_all().await.into_iter().collect()
}
