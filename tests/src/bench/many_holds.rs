//! P6: ten thousand holds of one agent: what keeping them costs Redis and the machine.

use std::collections::BTreeMap;
use std::time::Duration;

use super::growth::Crowd;
use super::report::number;
use super::shared_redis::SharedRedis;
use super::{Effort, Limit, Report, Samples, straight};
use crate::harness::{Agent, rss_kib};

const HOLDS: usize = 10_000;
const TTL_MS: u64 = 30_000;
/// How often each is beaten. They are taken evenly over this time, as those of many programs would
/// be; taken at once, their beats would meet more often.
const BEAT: Duration = Duration::from_secs(10);
/// Three beats of every hold.
const WINDOW: Duration = Duration::from_secs(30);
/// Beats settle into their rhythm for this long before.
const SETTLE: Duration = Duration::from_secs(12);
/// Most holds that one command beats.
const BEATS_PER_COMMAND: f64 = 256.0;
/// Calls of the floor.
const FLOOR_CALLS: usize = 200;
/// Calls of scripts, which is how everything is beaten.
const SCRIPTS: [&str; 6] = ["eval", "evalsha", "eval_ro", "evalsha_ro", "fcall", "fcall_ro"];
/// Other commands of a client, which no script calls. Commands inside of a script are counted like
/// any other, so that only these can be told apart.
const OTHER: [&str; 6] = ["ping", "hello", "auth", "select", "client", "script"];

pub(super) fn kept_through_redis(_: &Effort, report: &mut Report) -> anyhow::Result<()> {
    let redis = SharedRedis::start();
    let agent = Agent::setup().upstream(&redis.url()).start();
    let crowd = Crowd::hold(&agent, HOLDS, TTL_MS, BEAT);
    std::thread::sleep(SETTLE);
    let before = redis.commandstats();
    let cost = crowd.beaten_for(WINDOW, &agent, Some(redis.pid()))?;
    let rss = rss_kib(agent.pid()) as f64 / 1024.0;
    let after = redis.commandstats();
    let sent = |names: &[&str]| -> BTreeMap<&String, u64> {
        after
            .iter()
            // A subcommand is counted as client|setname.
            .filter(|(name, _)| names.contains(&name.split('|').next().unwrap_or(name)))
            .map(|(name, calls)| (name, calls - before.get(name).unwrap_or(&0)))
            .filter(|(_, calls)| *calls > 0)
            .collect()
    };
    let scripts: u64 = sent(&SCRIPTS).values().sum();
    let other: Vec<String> = sent(&OTHER).iter().map(|(name, n)| format!("{name} {n}")).collect();
    let against = format!(
        "{:.0} beats in {} s by {scripts} scripts; besides, to see that the server is there: {}",
        cost.beats,
        WINDOW.as_secs(),
        other.join(", ")
    );
    let value = (scripts as f64 * BEATS_PER_COMMAND / cost.beats, "");
    let what = "Redis commands for 256 beats, 10 000 holds";
    // A call has at most so many, or the server would do nothing else for longer than a millisecond;
    // those that come due together seldom fill it.
    report.add("P6", what, value, Limit::Most(2.0), against);

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
    let against = format!("ttl {} s, beaten every {} s", TTL_MS / 1000, BEAT.as_secs());
    report.add("P6", "resident memory, 10 000 holds", (rss, "MiB"), Limit::Most(40.0), against);
    Ok(())
}
