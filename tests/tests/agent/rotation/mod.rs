//! Secrets are rotated under a hundred holds: none ends, and no agent needs a restart.

mod certificates;
mod certified_servers;
mod passwords;

use std::collections::BTreeSet;

use nix::sys::signal::Signal;
use redis::Connection;
use serde_json::Value;
use tenure::wire::UpstreamState;
use tenure_tests::harness::{Agent, Client, Postgres, until};

const USER: &str = "tenure";

/// A server to which the agent connects.
trait Connected {
    /// Where the agent connects, without a password.
    fn url(&self) -> String;

    /// The numbers of the agent's connections.
    fn connections(&mut self) -> BTreeSet<u64>;

    /// The server drops the agent's connections.
    fn drop_connections(&mut self);
}

fn is_up(agent: &Agent) -> bool {
    agent.http().status().upstream.state == UpstreamState::Up
}

/// Waits until the agent has connections again, none of which is of these.
#[track_caller]
fn has_others(agent: &Agent, server: &mut (impl Connected + ?Sized), earlier: &BTreeSet<u64>) {
    until("the agent to connect again", || {
        let now = server.connections();
        !now.is_empty() && now.is_disjoint(earlier) && is_up(agent)
    });
}

/// Reloads; this is so many reloads after the start. The last line about it.
#[track_caller]
fn reload(agent: &Agent, times: usize) -> Value {
    agent.signal(Signal::SIGHUP);
    let mut reloaded = Vec::new();
    until("a reload", || {
        let log = agent.log();
        let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        reloaded = lines.filter(|line| line["message"] == "configuration reloaded").collect();
        reloaded.len() == times
    });
    reloaded.pop().expect("there is one")
}

/// The numbers of a user's connections; those of the test have no name.
fn ids(connection: &mut Connection, user: &str) -> BTreeSet<u64> {
    let list: String =
        redis::cmd("CLIENT").arg("LIST").query(connection).expect("Redis lists its clients");
    let of_agent = list.lines().filter(|line| {
        let words: Vec<_> = line.split(' ').collect();
        words.contains(&&*format!("user={user}")) && line.contains(" name=tenured-")
    });
    let id = |line: &str| line.strip_prefix("id=")?.split(' ').next()?.parse().ok();
    of_agent.filter_map(id).collect()
}

/// The numbers of the agent's processes in a Postgres.
fn processes(postgres: &Postgres) -> BTreeSet<u64> {
    let found = postgres.sql(&format!("select pid from pg_stat_activity where usename = '{USER}'"));
    found.lines().filter_map(|pid| pid.parse().ok()).collect()
}

fn end_processes(postgres: &Postgres) {
    let text = "select pg_terminate_backend(pid) from pg_stat_activity where usename =";
    postgres.sql(&format!("{text} '{USER}'"));
}
