//! P14: what sessions of one project cost while they come and go, and all of them are told of it.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;

use super::growth::ROOM_FOR_MANY;
use super::samples::timed_us;
use super::{Effort, Limit, Report, Samples};
use crate::harness::{Agent, Client, cpu_ns, rss_kib};

/// Sessions that stay, each with an event stream.
const SIZES: [usize; 2] = [10, 1000];
/// Others come and go before the first that counts, and at most while it is measured.
const WARM_UP: usize = 50;
const GUESTS_MAX: usize = 1000;
/// Between two looks at the streams.
const READ_EVERY: Duration = Duration::from_millis(20);
/// Between two looks at the agent's memory, in guests.
const LOOK_EVERY: usize = 50;

pub(super) fn of_one_project(effort: &Effort, report: &mut Report) -> anyhow::Result<()> {
    let mut first = None;
    for members in SIZES {
        let agent = Agent::setup().config(ROOM_FOR_MANY).start();
        let mut http = agent.http();
        let with = json!({"project": "p", "keepalive_ms": 86_400_000});
        let mut streams = Vec::with_capacity(members);
        for _ in 0..members {
            let session = http.register(&with).session;
            let mut stream = UnixStream::connect(agent.socket())?;
            write!(stream, "GET /v1/events?session={session} HTTP/1.1\r\nhost: agent\r\n\r\n")?;
            stream.set_nonblocking(true)?;
            streams.push(stream);
        }
        let over = AtomicBool::new(false);
        let mut times = Vec::new();
        let mut rss = 0;
        let before_ns = cpu_ns(agent.pid());
        let told = std::thread::scope(|scope| {
            let reading = scope.spawn(|| read_all(&mut streams, &over));
            for guest in 0..WARM_UP + effort.calls.min(GUESTS_MAX) {
                let (us, session) = timed_us(|| http.register(&with).session);
                if guest >= WARM_UP {
                    times.push(us);
                }
                http.end(session);
                if guest % LOOK_EVERY == 0 {
                    rss = rss.max(rss_kib(agent.pid()));
                }
            }
            over.store(true, Ordering::Relaxed);
            reading.join().map_err(|_| anyhow::anyhow!("the streams were not read"))?
        })?;
        let guests = times.len();
        let used_ms = (cpu_ns(agent.pid()) - before_ns) as f64 / 1e6;
        let times = Samples::new(times);
        let limit = 2.0 * *first.get_or_insert(times.median());
        let what = format!("registering in a project with {members} sessions, p50");
        let against = format!(
            "p99 {:.0} µs; {guests} came and went; {:.2} ms of processor time each",
            times.quantile(0.99),
            used_ms / (WARM_UP + guests) as f64
        );
        report.add("P14", &what, (times.median(), "µs"), Limit::Most(limit), against);
        let what = format!("memory with {members} sessions of a project");
        let against = format!("their streams were told {:.1} MiB", told as f64 / 1048576.0);
        report.add("P14", &what, (rss as f64 / 1024.0, "MiB"), Limit::Most(300.0), against);
    }
    Ok(())
}

/// Reads all streams until it is over; how many bytes came.
fn read_all(streams: &mut [UnixStream], over: &AtomicBool) -> anyhow::Result<usize> {
    let mut buffer = vec![0; 65_536];
    let mut told = 0;
    while !over.load(Ordering::Relaxed) {
        for stream in &mut *streams {
            match stream.read(&mut buffer) {
                Ok(0) => anyhow::bail!("the agent closed a stream"),
                Ok(read) => told += read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.into()),
            }
        }
        std::thread::sleep(READ_EVERY);
    }
    Ok(told)
}
