//! Where the time goes: the way of a call, stage by stage, and what the threads on it do for one.
//!
//! The agents of a time line keep the instant of every stage (`tenure_host::marks`); what is measured beside it is
//! measured without.

use std::collections::BTreeMap;
use std::fs;

use serde::{Deserialize, Serialize};

use super::calls::{WARM_UP, acquire, release};
use super::handover::hand_overs;
use super::shared_redis::SharedRedis;
use super::two_agents::client;
use super::{Effort, Report, Samples};
use crate::harness::{Agent, Mark, boottime_ns};

/// Pairs of calls at most: an agent keeps only so many marks.
const PAIRS_MAX: usize = 2000;
/// A thread marks what it wrote just afterwards. By then the client may have read it on another core, ns.
const LATE_MAX: u64 = 100_000;

/// A stage, by the mark at its end, and how it is called in the table. Of two agents the second one may have it.
struct Stage {
    mark: &'static str,
    name: &'static str,
    elsewhere: bool,
}

const fn stage(mark: &'static str, name: &'static str) -> Stage {
    Stage { mark, name, elsewhere: false }
}

const fn elsewhere(mark: &'static str, name: &'static str) -> Stage {
    Stage { mark, name, elsewhere: true }
}

const READ: Stage = stage("read", "client writes → API has read (wakes the API)");
const ASKED: Stage = stage("asked", "→ parsed and checked");
const TAKEN: Stage = stage("taken", "→ heart takes it (wakes the heart)");
const SENT: Stage = stage("sent", "→ journaled, and the command is sent");
const HEARD: Stage = stage("heard", "→ answer read (wakes Redis, wakes the heart)");
const ANSWERED: Stage = stage("answered", "→ API has the reply (wakes the API)");
const WROTE: Stage = stage("wrote", "→ answer written");
const END: &str = "→ client has read (wakes the client)";

const HERE: [Stage; 6] =
    [READ, ASKED, TAKEN, stage("decided", "→ decided and journaled"), ANSWERED, WROTE];
const THROUGH_REDIS: [Stage; 8] =
    [READ, ASKED, TAKEN, SENT, HEARD, stage("decided", "→ decided and journaled"), ANSWERED, WROTE];
const HANDED_OVER: [Stage; 7] = [
    READ,
    ASKED,
    TAKEN,
    SENT,
    elsewhere("heard", "→ the other heart has read the push (wakes the store, wakes it)"),
    elsewhere("decided", "→ it decided, journaled, and told its API"),
    elsewhere("wrote", "→ event written (wakes the other API)"),
];

/// A call, by the instants just before it was sent and just after its answer was read, ns.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call {
    pub(super) began: u64,
    pub(super) ended: u64,
    /// The agent that it began at.
    pub(super) agent: usize,
}

/// The stages of a call, and the threads that it takes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TimeLine {
    /// The target's id.
    pub id: String,
    pub what: String,
    /// Each with its median, µs.
    pub stages: Vec<(String, f64)>,
    /// The median of the whole, µs.
    pub whole: f64,
    /// What the threads did meanwhile, for each call, or pair of calls.
    pub threads: Vec<Thread>,
    /// Mean time of a script, µs, if there were any.
    pub script: Option<f64>,
}

/// The work of threads that have the same name.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Thread {
    pub name: String,
    /// How often they slept and were woken up.
    pub wake_ups: f64,
    /// Time on a core, µs.
    pub busy: f64,
}

/// What threads have done since they started: how often they went to sleep, and ns on a core.
type Work = BTreeMap<String, (u64, u64)>;

fn work_of(processes: &[(&str, u32)]) -> Work {
    let mut work = Work::new();
    for (process, pid) in processes {
        let tasks = fs::read_dir(format!("/proc/{pid}/task"));
        for task in tasks.into_iter().flatten().flatten() {
            let file = |name| fs::read_to_string(task.path().join(name)).unwrap_or_default();
            let slept = file("status")
                .lines()
                .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")?.trim().parse().ok())
                .unwrap_or(0);
            let busy = file("schedstat").split(' ').next().and_then(|ns| ns.parse().ok());
            let sum = work.entry(format!("{process}: {}", file("comm").trim())).or_default();
            *sum = (sum.0 + slept, sum.1 + busy.unwrap_or(0));
        }
    }
    work
}

/// What they did between two looks, for each of so many.
fn threads(before: &Work, after: &Work, of: usize) -> Vec<Thread> {
    let each = |count: u64| count as f64 / of as f64;
    let threads = after.iter().map(|(name, (slept, busy))| {
        let (slept_before, busy_before) = before.get(name).copied().unwrap_or_default();
        let wake_ups = each(slept.saturating_sub(slept_before));
        Thread { name: name.clone(), wake_ups, busy: each(busy.saturating_sub(busy_before)) / 1e3 }
    });
    threads.filter(|thread| thread.wake_ups >= 0.05 || thread.busy >= 0.5).collect()
}

/// Medians of the stages of calls, µs, and of the whole.
fn stages(
    way: &[Stage],
    marks: &[Vec<Mark>],
    calls: &[Call],
) -> anyhow::Result<(Vec<(String, f64)>, f64)> {
    let mut times = vec![Vec::new(); way.len() + 1];
    let mut wholes = Vec::new();
    for call in calls {
        let Some(passed) = passed(way, marks, call) else { continue };
        let ends = passed.iter().copied().chain([call.ended]);
        let begins = [call.began].into_iter().chain(passed.iter().copied());
        for ((begin, end), times) in begins.zip(ends).zip(&mut times) {
            times.push((end - begin) as f64 / 1e3);
        }
        wholes.push((call.ended - call.began) as f64 / 1e3);
    }
    anyhow::ensure!(wholes.len() * 2 > calls.len(), "the agent marked {} calls", wholes.len());
    let names = way.iter().map(|stage| stage.name).chain([END]);
    let medians = times.into_iter().map(|times| Samples::new(times).median());
    let stages = names.map(str::to_owned).zip(medians).collect();
    Ok((stages, Samples::new(wholes).median()))
}

/// When a call was at the end of each stage. Beats and connections of others leave marks, too, so each is the first
/// one after that of the stage before.
fn passed(way: &[Stage], marks: &[Vec<Mark>], call: &Call) -> Option<Vec<u64>> {
    let mut at = call.began;
    way.iter()
        .map(|stage| {
            let marks = &marks[(call.agent + usize::from(stage.elsewhere)) % marks.len()];
            let next = marks.partition_point(|mark| mark.at_ns < at);
            let found = marks[next..].iter().take_while(|mark| mark.at_ns <= call.ended + LATE_MAX);
            let mark = found.into_iter().find(|mark| mark.stage == stage.mark)?;
            at = mark.at_ns.min(call.ended);
            Some(at)
        })
        .collect()
}

/// Times acquires and releases of a leader by an agent of its own, on that Redis, or on none.
pub(super) fn of_pairs(
    id: &str,
    redis: Option<&SharedRedis>,
    effort: &Effort,
    report: &mut Report,
) -> anyhow::Result<()> {
    let upstream = redis.map_or_else(|| "embedded:".to_owned(), SharedRedis::url);
    let mut agent = Agent::setup().upstream(&upstream).marks().start();
    let (mut http, session) = client(&agent);
    for _ in 0..WARM_UP {
        let hold = acquire(&mut http, session, "leader", "line")?;
        release(&mut http, session, &hold)?;
    }
    let mut processes = vec![("agent", agent.pid())];
    processes.extend(redis.map(|redis| ("redis", redis.pid())));
    let pairs = effort.calls.min(PAIRS_MAX);
    let (mut acquires, mut releases) = (Vec::new(), Vec::new());
    let (before, scripts) = (work_of(&processes), redis.map(SharedRedis::script_time));
    for _ in 0..pairs {
        let began = boottime_ns();
        let hold = acquire(&mut http, session, "leader", "line")?;
        let between = boottime_ns();
        release(&mut http, session, &hold)?;
        acquires.push(Call { began, ended: between, agent: 0 });
        releases.push(Call { began: between, ended: boottime_ns(), agent: 0 });
    }
    let threads = threads(&before, &work_of(&processes), pairs);
    let script = redis.zip(scripts).map(|(redis, before)| redis.script_mean_us(before));
    let marks = [agent.stop_for_marks()];
    let way: &[Stage] = if redis.is_some() { &THROUGH_REDIS } else { &HERE };
    for (name, calls) in [("acquire", acquires), ("release", releases)] {
        let (stages, whole) = stages(way, &marks, &calls)?;
        let what = format!("leader: {name}; threads for each pair");
        let threads = threads.clone();
        report.time_line(TimeLine { id: id.to_owned(), what, stages, whole, threads, script });
    }
    Ok(())
}

/// Times hand-overs of a leader between two agents of their own, each with its way to that Redis, which may lead
/// through other servers.
pub(super) fn of_hand_overs(
    id: &str,
    urls: &[String; 2],
    redis: &SharedRedis,
    others: &[(&'static str, u32)],
    count: usize,
    report: &mut Report,
) -> anyhow::Result<()> {
    let mut agents = urls.each_ref().map(|url| Agent::setup().upstream(url).marks().start());
    let [one, other] = agents.each_ref().map(Agent::pid);
    let mut processes = vec![("one agent", one), ("other agent", other), ("redis", redis.pid())];
    processes.extend(others);
    let (before, scripts) = (work_of(&processes), redis.script_time());
    let calls = hand_overs(&agents, "leader", count);
    let threads = threads(&before, &work_of(&processes), count);
    let script = Some(redis.script_mean_us(scripts));
    let marks = agents.each_mut().map(Agent::stop_for_marks);
    let (stages, whole) = stages(&HANDED_OVER, &marks, &calls)?;
    let what = "leader: hand-over; threads for each, its 20 ms of rest included".to_owned();
    report.time_line(TimeLine { id: id.to_owned(), what, stages, whole, threads, script });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stage_ends_at_its_first_mark_after_the_one_before() {
        let mark = |stage: &str, at_ns| Mark { stage: stage.to_owned(), at_ns };
        let late = 30 + LATE_MAX;
        let here = vec![mark("taken", 5), mark("sent", 9), mark("taken", 12), mark("sent", 15)];
        let there = vec![mark("heard", 14), mark("heard", 20), mark("wrote", late)];
        let way = [TAKEN, SENT, elsewhere("heard", "heard")];
        let to_the_end = [TAKEN, elsewhere("wrote", "wrote")];
        let call = |began, ended| Call { began, ended, agent: 0 };
        let marks = [here, there];
        assert_eq!(passed(&way, &marks, &call(10, 30)), Some(vec![12, 15, 20]));
        assert_eq!(passed(&way, &marks, &Call { agent: 1, ..call(10, 30) }), None);
        assert_eq!(passed(&to_the_end, &marks, &call(10, 30)), Some(vec![12, 30]), "marked late");
        assert_eq!(passed(&to_the_end, &marks, &call(10, 29)), None, "too late to be its own");
    }
}
