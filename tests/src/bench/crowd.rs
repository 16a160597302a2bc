//! P18b: threads of several programs on two hosts that take turns on one lock, by each SDK and by what imitates the locks
//! that people use today.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::peers::{Brand, Peer};
use super::report::Side;
use super::shared_redis::SharedRedis;
use super::{Effort, Report, Samples};
use crate::harness::{Agent, boottime_ns, start_agent};

/// The programs on each host, and the threads or tasks of each: as many as `peers.py` and `peers.mjs` have.
const PROGRAMS: usize = 3;
const THREADS: usize = 8;
/// How long they take turns in a round, s.
const ROUND_S: u64 = 2;
/// What is compared.
const WHAT: &str = "a turn on one lock, of 8 threads in each of 3 programs on 2 hosts";

pub(super) fn of_threads_on_two_hosts(effort: &Effort, report: &mut Report) -> anyhow::Result<()> {
    let redis = SharedRedis::start();
    // Not the agents' own, whose keys they watch.
    let theirs = SharedRedis::start();
    let agents = [0, 1].map(|host| start_agent(host, &redis.url(), ""));
    let sockets = agents.each_ref().map(|agent| agent.socket().display().to_string());
    report.compare("P18b", WHAT, Side::Tenure, "Rust SDK", &in_rust(&agents, effort)?);
    let both = [theirs.url(), theirs.url()];
    for (brand, side, addresses) in [
        (Brand::TenurePython, Side::Tenure, &sockets),
        (Brand::CompatPython, Side::Tenure, &sockets),
        (Brand::TenureTypescript, Side::Tenure, &sockets),
        (Brand::CompatTypescript, Side::Tenure, &sockets),
        (Brand::RedisPy, Side::Peer, &both),
        (Brand::Redlock, Side::Peer, &both),
    ] {
        match of_programs(brand, addresses, effort) {
            Ok(turns) => report.compare("P18b", WHAT, side, brand.label(), &turns),
            Err(error) => report.leave_out("P18b", brand.label(), &error),
        }
    }
    Ok(())
}

/// The time of a turn in each round, ms.
fn of_programs(brand: Brand, addresses: &[String], effort: &Effort) -> anyhow::Result<Samples> {
    let start = |address: &String| Peer::start(brand, address, "crowd");
    let programs = (0..PROGRAMS).flat_map(|_| addresses).map(start);
    let mut programs = programs.collect::<anyhow::Result<Vec<Peer>>>()?;
    let mut round = || {
        programs.iter_mut().try_for_each(|program| program.start_turns(ROUND_S))?;
        programs.iter_mut().map(Peer::turns).sum::<anyhow::Result<u64>>()
    };
    // Sessions and connections are made in the first one.
    round()?;
    let turns = (0..effort.rounds).map(|_| round()).collect::<anyhow::Result<Vec<u64>>>()?;
    Ok(Samples::new(turns.into_iter().map(|turns| ms_of_a_turn(turns, ROUND_S as f64)).collect()))
}

fn ms_of_a_turn(turns: u64, seconds: f64) -> f64 {
    seconds * 1000.0 / turns as f64
}

/// The same by tasks of the Rust SDK, with a session for each program.
fn in_rust(agents: &[Agent; 2], effort: &Effort) -> anyhow::Result<Samples> {
    let runtime = tokio::runtime::Runtime::new()?;
    let mut sessions = Vec::new();
    for agent in agents.iter().cycle().take(PROGRAMS * agents.len()) {
        sessions.push(runtime.block_on(async {
            let connected = tenure::Agent::connect_to(agent.socket()).await?;
            anyhow::Ok(connected.session().open().await?)
        })?);
    }
    let mut times = Vec::new();
    for _ in 0..effort.rounds {
        let (began, turns) = (boottime_ns(), Arc::new(AtomicU64::new(0)));
        let end = began + ROUND_S * 1_000_000_000;
        let tasks: Vec<_> = sessions.iter().cycle().take(sessions.len() * THREADS).collect();
        let tasks: Vec<_> = tasks
            .into_iter()
            .map(|session| {
                let (role, turns) = (session.leader("rust-crowd"), Arc::clone(&turns));
                runtime.spawn(async move {
                    while boottime_ns() < end {
                        role.acquire().await?.release().await?;
                        turns.fetch_add(1, Ordering::Relaxed);
                    }
                    anyhow::Ok(())
                })
            })
            .collect();
        for task in tasks {
            runtime.block_on(task)??;
        }
        let turns = turns.load(Ordering::Relaxed);
        times.push(ms_of_a_turn(turns, (boottime_ns() - began) as f64 / 1e9));
    }
    Ok(Samples::new(times))
}
