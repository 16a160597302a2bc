//! P2: one client acquires and releases through Redis, again and again, and so do the peers.

use super::calls::{WARM_UP, call_pair};
use super::floor::call_echo;
use super::peers::{Brand, Peer, Peers};
use super::report::Side;
use super::samples::timed_us;
use super::shared_redis::SharedRedis;
use super::straight::Straight;
use super::two_agents::{KINDS, client};
use super::{Effort, Floor, Limit, Report, Samples, time_line};
use crate::harness::Agent;

/// Calls of a peer for each of ours: they take ten times as long.
const PEER_CALLS_DIVISOR: usize = 10;
/// `etcdctl lock NAME true` by round.
const PROCESSES: usize = 10;

/// Times of one sort of call: the medians of the rounds, and everything.
#[derive(Default)]
struct Times {
    medians: Vec<f64>,
    all: Vec<f64>,
}

impl Times {
    fn add(&mut self, times: Vec<f64>) {
        self.all.extend_from_slice(&times);
        self.medians.push(Samples::new(times).median());
    }

    fn measure(
        &mut self,
        calls: usize,
        mut call: impl FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let mut times = Vec::with_capacity(calls);
        for _ in 0..calls {
            let (us, result) = timed_us(&mut call);
            result?;
            times.push(us);
        }
        self.add(times);
        Ok(())
    }

    fn p50(&self) -> f64 {
        Samples::new(self.medians.clone()).median()
    }

    fn all_ms(self) -> Samples {
        Samples::new(self.all.into_iter().map(|us| us / 1000.0).collect())
    }

    fn p99(&self) -> f64 {
        Samples::new(self.all.clone()).quantile(0.99)
    }
}

pub(super) fn acquire_and_release(effort: &Effort, report: &mut Report) -> anyhow::Result<()> {
    let redis = SharedRedis::start();
    let echo_server = Floor::start("http")?;
    let agent = Agent::setup().upstream(&redis.url()).start();
    let mut echo_client = echo_server.http();
    let mut straight = Straight::new(&redis)?;
    let (mut http, session) = client(&agent);

    let servers = Peers::start();
    let mut peers = Vec::new();
    for brand in Brand::ALL {
        match servers.client(brand, "cleanup").and_then(warmed_up) {
            Ok(peer) => peers.push((brand, peer, Times::default())),
            Err(error) => report.leave_out("P2", brand.label(), &error),
        }
    }

    for _ in 0..WARM_UP {
        call_echo(&mut echo_client)?;
        straight.round_trip()?;
        straight.pair()?;
        for kind in KINDS {
            call_pair(&mut http, session, kind, "cleanup")?;
        }
    }
    let [mut echo, mut round_trip, mut script, mut process] = [(); 4].map(|()| Times::default());
    let mut pairs = KINDS.map(|_| Times::default());
    for _ in 0..effort.rounds {
        echo.measure(effort.calls, || call_echo(&mut echo_client))?;
        round_trip.measure(effort.calls, || straight.round_trip())?;
        script.measure(effort.calls, || straight.pair())?;
        for (kind, times) in KINDS.into_iter().zip(&mut pairs) {
            times.measure(effort.calls, || call_pair(&mut http, session, kind, "cleanup"))?;
        }
        for (_, peer, times) in &mut peers {
            times.add(peer.pairs(effort.calls / PEER_CALLS_DIVISOR)?);
        }
        if let Ok(etcd) = servers.etcd() {
            process.measure(PROCESSES, || {
                let status = etcd.control(&["lock", "process", "true"]).status()?;
                anyhow::ensure!(status.success(), "etcdctl lock: {status}");
                Ok(())
            })?;
        }
    }

    let (echo, round_trip, bare) = (echo.p50(), round_trip.p50(), script.p50());
    for (kind, times) in KINDS.into_iter().zip(&pairs) {
        report.add(
            "P2",
            &format!("{kind} through Redis: acquire + release, p50"),
            (times.p50(), "µs"),
            Limit::Most(1.5 * (2.0 * echo + 2.0 * round_trip)),
            format!(
                "2 × HTTP echo {echo:.1} µs + 2 × Redis round trip {round_trip:.1} µs; p99 {:.0} µs; two bare \
                 scripts {bare:.1} µs",
                times.p99()
            ),
        );
    }
    let what = "acquire + release";
    for (kind, times) in KINDS.into_iter().zip(pairs) {
        report.compare("P2", what, Side::Tenure, kind, &times.all_ms());
    }
    report.compare("P2", what, Side::Floor, "two bare scripts, without an agent", &script.all_ms());
    for (brand, _, times) in peers {
        report.compare("P2", what, Side::Peer, brand.label(), &times.all_ms());
    }
    match servers.etcd() {
        Ok(_) => {
            report.compare("P2", what, Side::Peer, "etcdctl lock NAME true", &process.all_ms())
        }
        Err(error) => report.leave_out("P2", "etcdctl lock NAME true", &error),
    }
    time_line::of_pairs("P2", Some(&redis), effort, report)
}

/// Connections and interpreters are slow at first.
fn warmed_up(mut peer: Peer) -> anyhow::Result<Peer> {
    peer.pairs(WARM_UP)?;
    Ok(peer)
}
