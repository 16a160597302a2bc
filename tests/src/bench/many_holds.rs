//! P6: ten thousand holds of each sort, of one agent: what keeping them costs Redis and the machine.

use std::collections::BTreeMap;
use std::time::Duration;

use super::growth::{Crowd, ROOM_FOR_MANY, Sort};
use super::report::number;
use super::shared_redis::{SCRIPTS, SharedRedis};
use super::{Effort, Limit, Report, Samples, replay, straight};
use crate::harness::{Agent, cpu_ns, rss_kib};

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
/// No script may keep the others waiting for longer.
const LONG: Duration = Duration::from_millis(1);
/// Scripts that are repeated to see what each costs, and how often.
const REPEATED: usize = 150;
const REPETITIONS: usize = 5;
/// Calls of the floor.
const FLOOR_CALLS: usize = 200;
/// Other commands of a client, which no script calls. Commands inside of a script are counted like
/// any other, so that only these can be told apart.
const OTHER: [&str; 6] = ["ping", "hello", "auth", "select", "client", "script"];

pub(super) fn kept_through_redis(_: &Effort, report: &mut Report) -> anyhow::Result<()> {
    for sort in Sort::ALL {
        kept(sort, report)?;
    }
    Ok(())
}

fn kept(sort: Sort, report: &mut Report) -> anyhow::Result<()> {
    let redis = SharedRedis::start();
    let agent = Agent::setup().config(ROOM_FOR_MANY).upstream(&redis.url()).start();
    let crowd = Crowd::hold(&agent, sort, HOLDS, TTL_MS, BEAT);
    std::thread::sleep(SETTLE);
    let before = redis.commandstats();
    redis.log_slower_than(LONG)?;
    let cost = crowd.beaten_for(WINDOW, &agent, || cpu_ns(redis.pid()))?;
    let long = redis.slower()?;
    let rss = rss_kib(agent.pid()) as f64 / 1024.0;
    let calls = replay::called(&redis, REPEATED)?;
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
    let title = format!("{HOLDS} {}", sort.label());
    let against = format!(
        "{:.0} beats in {} s by {scripts} scripts; besides, to see that the server is there: {}",
        cost.beats,
        WINDOW.as_secs(),
        other.join(", ")
    );
    let value = (scripts as f64 * BEATS_PER_COMMAND / cost.beats, "");
    let what = format!("{title}: Redis commands for 256 beats");
    report.add("P6", &what, value, Limit::Most(1.0), against);
    let against = format!("of {scripts}; longest {:.2} ms", long.last().copied().unwrap_or(0.0));
    let value = (long.len() as f64, "");
    report.add("P6", &format!("{title}: scripts above 1 ms"), value, Limit::Most(0.0), against);

    let seconds = WINDOW.as_secs_f64();
    let per_call = Samples::new(straight::renewal_us(&redis, 256, FLOOR_CALLS)?).median();
    let floor = per_call / 256.0 * cost.beats / seconds / 1e4;
    let against = format!(
        "floor: a bare script renewing 256 keys, {per_call:.0} µs a call, would take {} %",
        number(floor),
    );
    let value = (100.0 * cost.upstream_seconds / seconds, "%");
    report.add("P6", &format!("{title}: Redis"), value, Limit::Most(5.0), against);
    let against = format!("{:.0} beats/s", cost.beats / seconds);
    let value = (100.0 * cost.agent_seconds / seconds, "%");
    report.add("P6", &format!("{title}: agent"), value, Limit::Most(3.0), against);
    let against = format!("ttl {} s, beaten every {} s", TTL_MS / 1000, BEAT.as_secs());
    let value = (rss, "MiB");
    report.add("P6", &format!("{title}: resident memory"), value, Limit::Most(40.0), against);

    // Who is told of changes would cost, too.
    drop(agent);
    let costs = Samples::new(replay::processor_us(&redis, &calls, REPETITIONS)?);
    let long = costs.values().iter().filter(|us| **us > LONG.as_micros() as f64).count();
    let against = format!(
        "of {REPEATED}, the best of {REPETITIONS} repetitions alone; p50 {:.0} µs, longest {:.0} µs",
        costs.median(),
        costs.quantile(1.0),
    );
    let what = format!("{title}: scripts above 1 ms of Redis' processor");
    report.add("P6", &what, (long as f64, ""), Limit::Most(0.0), against);
    Ok(())
}
