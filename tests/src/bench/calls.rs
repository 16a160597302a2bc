//! P1: one client acquires and releases, again and again.

use std::time::Duration;

use serde_json::{Value, json};
use uuid::Uuid;

use super::floor::call_echo;
use super::samples::timed_us;
use super::two_agents::client;
use super::{Effort, Floor, Limit, Report, Samples, time_line};
use crate::harness::{Agent, Client, Http};

/// Calls before the first that counts.
pub(super) const WARM_UP: usize = 200;
/// The rest between two pairs of a program that has something else to do.
const PAUSE: Duration = Duration::from_millis(5);
/// Fewer of those are measured, by this factor.
const PAUSED_DIVISOR: usize = 20;

/// Acquires and releases at two agents in turns: the median of the rounds' medians of each, µs.
pub(super) fn pairs_in_turns(
    effort: &Effort,
    kind: &str,
    agents: [&Agent; 2],
) -> anyhow::Result<[f64; 2]> {
    let mut medians = [Vec::new(), Vec::new()];
    let mut clients = agents.map(client);
    for round in 0..=effort.rounds {
        for ((http, session), medians) in clients.iter_mut().zip(&mut medians) {
            let mut times = Vec::with_capacity(effort.calls);
            for _ in 0..if round == 0 { WARM_UP } else { effort.calls } {
                let (us, done) = timed_us(|| call_pair(http, *session, kind, "cleanup"));
                done?;
                times.push(us);
            }
            if round > 0 {
                medians.push(Samples::new(times).median());
            }
        }
    }
    Ok(medians.map(|medians| Samples::new(medians).median()))
}

/// One acquire and one release, each parsed like the floor's answer.
pub(super) fn call_pair(
    http: &mut Http,
    session: Uuid,
    kind: &str,
    name: &str,
) -> anyhow::Result<()> {
    let hold = acquire(http, session, kind, name)?;
    release(http, session, &hold)
}

/// The hold.
pub(super) fn acquire(
    http: &mut Http,
    session: Uuid,
    kind: &str,
    name: &str,
) -> anyhow::Result<Value> {
    let mut acquire = json!({"session": session, "kind": kind});
    if kind != "master" {
        acquire["name"] = json!(name);
    }
    let answer = http.try_call("POST", "/v1/acquire", acquire.to_string().as_bytes())?;
    anyhow::ensure!(answer.status == 200, "acquire: {}", answer.text());
    let mut granted: Value = serde_json::from_slice(&answer.body)?;
    Ok(granted["hold"].take())
}

pub(super) fn release(http: &mut Http, session: Uuid, hold: &Value) -> anyhow::Result<()> {
    let release = json!({"session": session, "hold": hold});
    let answer = http.try_call("POST", "/v1/release", release.to_string().as_bytes())?;
    anyhow::ensure!(answer.status == 200, "release: {}", answer.text());
    let _: Value = serde_json::from_slice(&answer.body)?;
    Ok(())
}

pub(super) fn acquire_and_release(effort: &Effort, report: &mut Report) -> anyhow::Result<()> {
    let raw = Floor::start("raw")?;
    let echo = Floor::start("http")?;
    let agent = Agent::start();
    let mut echo_client = echo.http();
    let mut client = agent.http();
    let session = client.register(&json!({"keepalive_ms": 86_400_000})).session;
    for _ in 0..WARM_UP {
        call_echo(&mut echo_client)?;
        call_pair(&mut client, session, "leader", "cleanup")?;
    }

    let mut raws = Vec::new();
    let mut tight = Rounds::default();
    let mut paused = Rounds::default();
    let mut echo_pair = || call_echo(&mut echo_client).and_then(|()| call_echo(&mut echo_client));
    let mut pair = || call_pair(&mut client, session, "leader", "cleanup");
    for _ in 0..effort.rounds {
        raws.push(raw.raw_us(effort)?.median());
        tight.measure(effort.calls, Duration::ZERO, &mut echo_pair, &mut pair)?;
        paused.measure(effort.calls / PAUSED_DIVISOR, PAUSE, &mut echo_pair, &mut pair)?;
    }
    let raw = Samples::new(raws).median();
    tight.report("acquire + release, p50", 1.6, &format!("raw socket echo {raw:.1} µs"), report);
    let title = "acquire + release, 5 ms after the one before, p50";
    paused.report(title, 2.2, "paused alike", report);
    time_line::of_pairs("P1", None, effort, report)
}

/// Medians of the rounds, and the tails of pairs, µs.
#[derive(Default)]
struct Rounds {
    echoes: Vec<f64>,
    pairs: Vec<f64>,
    tails: Vec<f64>,
}

impl Rounds {
    fn measure(
        &mut self,
        calls: usize,
        pause: Duration,
        echo_pair: &mut impl FnMut() -> anyhow::Result<()>,
        pair: &mut impl FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        self.echoes.push(times_us(calls, pause, echo_pair)?.median());
        let times = times_us(calls, pause, pair)?;
        self.pairs.push(times.median());
        self.tails.push(times.quantile(0.99));
        Ok(())
    }

    fn report(self, title: &str, factor: f64, more: &str, report: &mut Report) {
        let [echo, pair, tail] =
            [self.echoes, self.pairs, self.tails].map(|values| Samples::new(values).median());
        report.add(
            "P1",
            title,
            (pair, "µs"),
            Limit::Most(factor * echo),
            format!("2 × HTTP echo {echo:.1} µs ({more}); p99 {tail:.0} µs"),
        );
    }
}

/// Times of some calls, µs, with a pause after each.
fn times_us(
    calls: usize,
    pause: Duration,
    call: &mut impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<Samples> {
    let mut times = Vec::with_capacity(calls);
    for _ in 0..calls {
        let (us, result) = timed_us(&mut *call);
        result?;
        times.push(us);
        if !pause.is_zero() {
            std::thread::sleep(pause);
        }
    }
    Ok(Samples::new(times))
}
