//! P6: ten thousand holds of one agent: what keeping them costs Redis and the machine.

use std::collections::BTreeMap;
use std::time::Duration;

use super::growth::Crowd;
use super::report::number;
use super::{Effort, Limit, Report, Samples, straight};
use crate::harness::{Agent, RedisServer, rss_kib};

const HOLDS: usize = 10_000;
const TTL_MS: u64 = 30_000;
/// Three beats of every hold.
const WINDOW: Duration = Duration::from_secs(30);
/// Beats settle into their rhythm for this long before.
const SETTLE: Duration = Duration::from_secs(12);
/// What one command should beat at least.
const BEATS_PER_COMMAND: f64 = 256.0;
/// Calls of the floor.
const FLOOR_CALLS: usize = 200;
/// What a client sends and what no script calls, so that the statistics count what came over the
/// wire: commands inside of a script are counted like any other.
const SENT: [&str; 12] = [
    "eval",
    "evalsha",
    "eval_ro",
    "evalsha_ro",
    "fcall",
    "fcall_ro",
    "ping",
    "hello",
    "auth",
    "select",
    "client",
    "script",
];

pub(super) fn kept_through_redis(_: &Effort, report: &mut Report) -> anyhow::Result<()> {
    let mut redis = RedisServer::start();
    let redis_pid = redis.process().pid();
    let agent = Agent::setup().upstream(&redis.url()).start();
    let crowd = Crowd::hold(&agent, HOLDS, TTL_MS);
    std::thread::sleep(SETTLE);
    let before = sent(&redis);
    let cost = crowd.beaten_for(WINDOW, &agent, Some(redis_pid))?;
    let rss = rss_kib(agent.pid()) as f64 / 1024.0;
    let commands: BTreeMap<String, u64> = sent(&redis)
        .into_iter()
        .map(|(name, calls)| {
            let earlier = before.get(&name).copied().unwrap_or(0);
            (name, calls - earlier)
        })
        .filter(|(_, calls)| *calls > 0)
        .collect();
    let total: u64 = commands.values().sum();
    let list: Vec<String> = commands.iter().map(|(name, n)| format!("{name} {n}")).collect();

    let limit = Limit::Most(1.0);
    let value = total as f64 * BEATS_PER_COMMAND / cost.beats;
    let against = format!("{:.0} beats in {} s; {}", cost.beats, WINDOW.as_secs(), list.join(", "));
    report.add("P6", "Redis commands for 256 beats, 10 000 holds", (value, ""), limit, against);

    let seconds = WINDOW.as_secs_f64();
    let per_call = Samples::new(straight::renewal_us(&redis, 256, FLOOR_CALLS)?).median();
    let floor = per_call / 256.0 * cost.beats / seconds / 1e4;
    let against = format!(
        "{:.0} beats/s; Redis itself {} %; floor: a bare script renewing 256 keys, {per_call:.0} µs a call, would take \
         {} %",
        cost.beats / seconds,
        number(100.0 * cost.upstream_seconds / seconds),
        number(floor),
    );
    let value = (100.0 * cost.agent_seconds / seconds, "%");
    report.add("P6", "processor time of 10 000 holds", value, Limit::Most(3.0), against);
    let against = format!("ttl {} s, beaten every {} s", TTL_MS / 1000, TTL_MS / 3000);
    report.add("P6", "resident memory, 10 000 holds", (rss, "MiB"), Limit::Most(40.0), against);
    Ok(())
}

/// How many commands came over the wire, by name.
fn sent(redis: &RedisServer) -> BTreeMap<String, u64> {
    let mut sent = redis.commandstats();
    // A subcommand is counted as client|setname.
    sent.retain(|name, _| SENT.contains(&name.split('|').next().unwrap_or(name)));
    sent
}
