//! P14: what sessions of one project cost while they come and go, and all of them are told of it.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;

use super::growth::ROOM_FOR_MANY;
use super::samples::timed_us;
use super::{Effort, Limit, Report, Samples};
use crate::harness::{Agent, Client, Http, cpu_ns, rss_kib};

/// Sessions that stay, each with an event stream.
const SIZES: [usize; 2] = [10, 1000];
/// Others come and go before the first that counts, and in a round.
const WARM_UP: usize = 50;
const GUESTS_PER_ROUND: usize = 150;
/// Between two looks at the streams.
const READ_EVERY: Duration = Duration::from_millis(20);

/// A project with sessions that stay.
struct Project {
    agent: Agent,
    http: Http,
    members: usize,
    /// Medians and p99s of registering, µs.
    medians: Vec<f64>,
    tails: Vec<f64>,
    guests: usize,
    used_ns: u64,
    rss_kib: u64,
}

pub(super) fn of_one_project(effort: &Effort, report: &mut Report) -> anyhow::Result<()> {
    let mut streams = Vec::new();
    let mut projects = Vec::new();
    for members in SIZES {
        projects.push(start(members, &mut streams)?);
    }
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| read_all(&mut streams, &over));
        for project in &mut projects {
            come_and_go(project, WARM_UP);
        }
        // In turns, so that whatever else the machine does meets all of them.
        for _ in 0..effort.rounds {
            for project in &mut projects {
                let before_ns = cpu_ns(project.agent.pid());
                let times = Samples::new(come_and_go(project, GUESTS_PER_ROUND));
                project.used_ns += cpu_ns(project.agent.pid()) - before_ns;
                project.medians.push(times.median());
                project.tails.push(times.quantile(0.99));
                project.guests += times.values().len();
                project.rss_kib = project.rss_kib.max(rss_kib(project.agent.pid()));
            }
        }
        over.store(true, Ordering::Relaxed);
        reading.join().map_err(|_| anyhow::anyhow!("the streams were not read"))?
    })?;
    let mut first = None;
    for Project { members, medians, tails, guests, used_ns, rss_kib, .. } in projects {
        let (p50, p99) = (Samples::new(medians).median(), Samples::new(tails).median());
        let limit = 2.0 * *first.get_or_insert(p50);
        let what = format!("registering in a project with {members} sessions, p50");
        let each_ms = used_ns as f64 / 1e6 / guests as f64;
        let against = format!("p99 {p99:.0} µs; {each_ms:.2} ms of processor time each");
        report.add("P14", &what, (p50, "µs"), Limit::Most(limit), against);
        let what = format!("memory with {members} sessions of a project");
        let value = (rss_kib as f64 / 1024.0, "MiB");
        let against = format!("{guests} came and went");
        report.add("P14", &what, value, Limit::Most(300.0), against);
    }
    Ok(())
}

fn with_project() -> serde_json::Value {
    json!({"project": "p", "keepalive_ms": 86_400_000})
}

fn start(members: usize, streams: &mut Vec<UnixStream>) -> anyhow::Result<Project> {
    let agent = Agent::setup().config(ROOM_FOR_MANY).start();
    let mut http = agent.http();
    for _ in 0..members {
        let session = http.register(&with_project()).session;
        let mut stream = UnixStream::connect(agent.socket())?;
        write!(stream, "GET /v1/events?session={session} HTTP/1.1\r\nhost: agent\r\n\r\n")?;
        stream.set_nonblocking(true)?;
        streams.push(stream);
    }
    let (medians, tails) = (Vec::new(), Vec::new());
    Ok(Project { agent, http, members, medians, tails, guests: 0, used_ns: 0, rss_kib: 0 })
}

/// How long each took to register, µs.
fn come_and_go(project: &mut Project, guests: usize) -> Vec<f64> {
    (0..guests)
        .map(|_| {
            let (us, session) = timed_us(|| project.http.register(&with_project()).session);
            project.http.end(session);
            us
        })
        .collect()
}

/// Reads all streams until it is over.
fn read_all(streams: &mut [UnixStream], over: &AtomicBool) -> anyhow::Result<()> {
    let mut buffer = vec![0; 65_536];
    while !over.load(Ordering::Relaxed) {
        for stream in &mut *streams {
            match stream.read(&mut buffer) {
                Ok(0) => anyhow::bail!("the agent closed a stream"),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
        std::thread::sleep(READ_EVERY);
    }
    Ok(())
}
