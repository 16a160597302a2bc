//! P5: a host that is gone without a word, among many other keys that expire some day: how long
//! after the expiry the next host has what was held, and when Redis tells of an expiry by itself.

use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use std::time::Duration;

use redis::Connection;
use serde_json::{Value, json};
use uuid::Uuid;

use super::report::Side;
use super::shared_redis::SharedRedis;
use super::two_agents::{KEEPALIVE_MS, KINDS, TwoAgents, client};
use super::{Effort, Limit, Report, Samples};
use crate::harness::{Agent, Client, Events, Http, Session, boottime_ns};

const WHAT: &str = "expiry → somebody else has it, or is told";
/// Volatile keys of other programs.
const OTHER_KEYS: usize = 100_000;
/// Their ttl, ms: they do not expire meanwhile.
const OTHER_TTL_MS: usize = 3_600_000;
/// Keys written at once.
const KEYS_PER_PIPE: usize = 10_000;
/// The ttl of the holds. They are beaten until the agent stops, so that two thirds of it are left then.
const TTL_MS: u64 = 2000;
/// Upper bounds of the histogram, ms.
const BOUNDS_MS: [f64; 7] = [1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 100.0];
/// Keys that nobody looks at, for the event that Redis sends when it comes across an expired key.
const UNSEEN_KEYS: usize = 50;
const UNSEEN_TTL_MS: u64 = 1000;
/// Between two looks at whether the watch is over.
const LOOK_EVERY: Duration = Duration::from_millis(100);

pub(super) fn takeover_after_expiry(effort: &Effort, report: &mut Report) -> anyhow::Result<()> {
    let mut hosts = TwoAgents::start();
    fill(&mut hosts.redis.connect()?)?;
    let unseen = Unseen::watch(&hosts.redis, Duration::from_millis(effort.expiry_watch_ms))?;
    let mut times = KINDS.map(|_| Vec::new());
    for _ in 0..effort.stops {
        for (times, late) in times.iter_mut().zip(stop_one(&mut hosts)?) {
            times.push(late);
        }
    }
    for (kind, times) in KINDS.into_iter().zip(times) {
        let times = Samples::new(times);
        let against = format!(
            "{} stops, {OTHER_KEYS} other volatile keys; {:.1} to {:.1} ms",
            effort.stops,
            times.quantile(0.0),
            times.quantile(1.0)
        );
        let title = format!("{kind}: host gone, expiry → granted");
        for (part, name) in [(0.5, "p50"), (0.99, "p99")] {
            let value = (times.quantile(part), "ms");
            report.add("P5", &format!("{title}, {name}"), value, Limit::Most(5.0), against.clone());
        }
        report.histogram(&title, &BOUNDS_MS, &times);
        report.compare("P5", WHAT, Side::Tenure, kind, &times);
    }
    let late = Samples::new(unseen.late_ms()?);
    let came = late.values().iter().filter(|ms| ms.is_finite()).count();
    let name = format!(
        "Redis' own expired event ({came} of {UNSEEN_KEYS} within {} s)",
        effort.expiry_watch_ms / 1000
    );
    report.compare("P5", WHAT, Side::Peer, &name, &late);
    Ok(())
}

fn fill(connection: &mut Connection) -> anyhow::Result<()> {
    for start in (0..OTHER_KEYS).step_by(KEYS_PER_PIPE) {
        let mut pipe = redis::pipe();
        for key in start..start + KEYS_PER_PIPE {
            let ttl = OTHER_TTL_MS + key;
            pipe.cmd("SET").arg(format!("other:{key}")).arg("x").arg("PX").arg(ttl).ignore();
        }
        pipe.query::<()>(connection)?;
    }
    Ok(())
}

/// The holds of the first agent.
struct Held {
    http: Http,
    session: Session,
    events: Events,
    /// By kind.
    holds: Vec<Uuid>,
}

fn terms(kind: &str) -> Value {
    match kind {
        "lease" => json!({"ttl_ms": TTL_MS, "grace_ms": 0}),
        _ => json!({"ttl_ms": TTL_MS}),
    }
}

fn hold_all(agent: &Agent) -> Held {
    let mut http = agent.http();
    let session = http.register(&json!({"keepalive_ms": KEEPALIVE_MS}));
    let events = agent.events(session.session);
    let holds =
        KINDS.map(|kind| http.acquire(session.session, kind, "role", &terms(kind)).hold).to_vec();
    Held { http, session, events, holds }
}

/// Stops the first agent dead while it holds one of each kind, for which the second waits: the time
/// from the expiry in Redis until the event was read, ms, by kind.
fn stop_one(hosts: &mut TwoAgents) -> anyhow::Result<Vec<f64>> {
    let TwoAgents { agents: [doomed, other], redis } = hosts;
    let mut connection = redis.connect()?;
    let (mut http, waiter) = client(other);
    let events = other.events(waiter);
    let mut held = hold_all(doomed);
    let waiting = KINDS.map(|kind| http.queue(waiter, kind, "role", &terms(kind)).hold);
    std::thread::sleep(Duration::from_millis(TTL_MS / 2));

    doomed.pause();
    let mut expiries = Vec::new();
    for (kind, hold) in KINDS.into_iter().zip(&held.holds) {
        expiries.push(expiry_ns(&mut connection, kind, *hold)?);
    }
    let page = doomed.page(&held.session);
    let mut late = Vec::new();
    for ((waiting, expiry), hold) in waiting.into_iter().zip(expiries).zip(&held.holds) {
        let (seen, _) = events.granted_seen(waiting);
        anyhow::ensure!(!page.held(*hold), "two were valid at once");
        late.push((seen.at_ns as f64 - expiry as f64) / 1e6);
    }
    http.end(waiter);

    doomed.resume();
    for hold in &held.holds {
        held.events.lost(*hold);
    }
    held.http.end(held.session.session);
    Ok(late)
}

/// When a hold expires in Redis, as CLOCK_BOOTTIME ns; a millisecond is as exactly as Redis tells.
fn expiry_ns(connection: &mut Connection, kind: &str, hold: Uuid) -> anyhow::Result<u64> {
    let asked_at = boottime_ns();
    let left_ms: f64 = match kind {
        "semaphore" => {
            let mut ask = redis::pipe();
            ask.atomic().cmd("TIME").cmd("ZSCORE").arg("adv-sem:semaphore_main:role");
            let ((s, us), score): ((f64, f64), f64) =
                ask.arg(hold.simple().to_string()).query(connection)?;
            (score - s) * 1e3 - us / 1e3
        }
        _ => {
            let key = match kind {
                "leader" => "leader:role",
                "lease" => "tenure:lease:role",
                _ => "prism:master:default:default",
            };
            redis::cmd("PTTL").arg(key).query(connection)?
        }
    };
    anyhow::ensure!(left_ms > 0.0, "the {kind} was not held any more when its agent was stopped");
    Ok(asked_at + (left_ms * 1e6) as u64)
}

/// Keys that expire and that nobody asks for, and who is told of it.
struct Unseen {
    expiry_ns: u64,
    listener: JoinHandle<anyhow::Result<Vec<u64>>>,
}

impl Unseen {
    /// Sets the keys, and listens for so long after their expiry.
    fn watch(server: &SharedRedis, after: Duration) -> anyhow::Result<Unseen> {
        let mut connection = server.connect()?;
        redis::cmd("CONFIG").arg(&["SET", "notify-keyspace-events", "Ex"]).exec(&mut connection)?;
        let (subscribed, wait) = sync_channel(1);
        let mut own = server.connect()?;
        let until_ns = boottime_ns() + UNSEEN_TTL_MS * 1_000_000 + u64::try_from(after.as_nanos())?;
        let listener = std::thread::spawn(move || {
            let mut events = own.as_pubsub();
            events.subscribe("__keyevent@0__:expired")?;
            events.set_read_timeout(Some(LOOK_EVERY))?;
            subscribed.send(())?;
            let mut seen = Vec::new();
            while seen.len() < UNSEEN_KEYS && boottime_ns() < until_ns {
                match events.get_message() {
                    Ok(message) if message.get_payload::<String>()?.starts_with("unseen:") => {
                        seen.push(boottime_ns());
                    }
                    Ok(_) => {}
                    Err(error) if error.is_timeout() => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Ok(seen)
        });
        wait.recv()?;
        let mut pipe = redis::pipe();
        for key in 0..UNSEEN_KEYS {
            pipe.cmd("SET").arg(format!("unseen:{key}")).arg("x").arg("PX").arg(UNSEEN_TTL_MS);
        }
        pipe.ignore().query::<()>(&mut connection)?;
        Ok(Unseen { expiry_ns: boottime_ns() + UNSEEN_TTL_MS * 1_000_000, listener })
    }

    /// How late each event was, ms, in the end; infinite if it had not come.
    fn late_ms(self) -> anyhow::Result<Vec<f64>> {
        let seen = self.listener.join().expect("no listener panics")?;
        let mut late: Vec<f64> =
            seen.into_iter().map(|at| (at as f64 - self.expiry_ns as f64) / 1e6).collect();
        late.resize(UNSEEN_KEYS, f64::INFINITY);
        Ok(late)
    }
}
