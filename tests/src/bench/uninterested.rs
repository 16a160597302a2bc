//! P20: what a change costs Redis when many agents are there that did not ask about it.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::json;

use super::report::number;
use super::shared_redis::SharedRedis;
use super::two_agents::client;
use super::{Effort, Limit, Report, Samples};
use crate::harness::{Agent, Client, cpu_ns};

/// Connections that ask for as much as the feed of an agent with one hold.
const FEEDS: usize = 100;
/// Agents as they are.
const AGENTS: usize = 10;
/// With all of them a change may cost so many times what it costs without.
const GROWTH: f64 = 1.2;

pub(super) fn of_a_change(effort: &Effort, report: &mut Report) -> anyhow::Result<()> {
    let redis = SharedRedis::start();
    let agent = Agent::setup().upstream(&redis.url()).start();
    let alone = pair_us(&redis, &agent, effort);

    let feeds =
        (0..FEEDS).map(|number| feed(&redis, number)).collect::<anyhow::Result<Vec<_>>>()?;
    add(report, &format!("{FEEDS} feeds"), alone, pair_us(&redis, &agent, effort));
    drop(feeds);

    let others: Vec<Agent> =
        (0..AGENTS).map(|_| Agent::setup().upstream(&redis.url()).start()).collect();
    for (number, other) in others.iter().enumerate() {
        let (mut http, session) = client(other);
        http.acquire(session, "leader", &format!("own {number}"), &json!({}));
    }
    add(report, &format!("{AGENTS} agents"), alone, pair_us(&redis, &agent, effort));
    Ok(())
}

fn add(report: &mut Report, others: &str, alone: f64, with: f64) {
    let title = format!("acquire+release beside {others} that did not ask: Redis");
    let against = format!("{} µs without them", number(alone));
    report.add("P20", &title, (with, "µs"), Limit::Most(GROWTH * alone), against);
}

/// The processor time of Redis for a pair, µs.
fn pair_us(redis: &SharedRedis, agent: &Agent, effort: &Effort) -> f64 {
    let (mut http, session) = client(agent);
    let mut round = |calls| {
        let before = cpu_ns(redis.pid());
        for _ in 0..calls {
            let held = http.acquire(session, "leader", "role", &json!({}));
            http.release(session, held.hold);
        }
        (cpu_ns(redis.pid()) - before) as f64 / 1e3 / calls as f64
    };
    round(effort.calls / 10);
    Samples::new((0..effort.rounds).map(|_| round(effort.calls)).collect()).median()
}

/// A connection on which a key of its own was read, and its changes are to be told.
fn feed(redis: &SharedRedis, number: usize) -> anyhow::Result<TcpStream> {
    let address = redis.url().trim_start_matches("redis://").trim_end_matches("/0").to_owned();
    let mut stream = TcpStream::connect(address)?;
    let words = format!(
        "HELLO 3\r\nCLIENT TRACKING ON\r\nSUBSCRIBE tenure:agent:{number}\r\n\
         SUBSCRIBE prism:events:project:default:{number}\r\nEXISTS leader:{number}\r\n"
    );
    stream.write_all(words.as_bytes())?;
    let mut told = Vec::new();
    let mut part = [0; 4096];
    while !told.ends_with(b":0\r\n") {
        let length = stream.read(&mut part)?;
        anyhow::ensure!(length > 0, "Redis hung up");
        told.extend_from_slice(&part[..length]);
    }
    Ok(stream)
}
