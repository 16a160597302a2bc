//! P18: every SDK through Redis, beside the locks that programs of its language use today.

use super::calls::WARM_UP;
use super::peers::{Brand, Peer};
use super::report::Side;
use super::samples::timed_us;
use super::shared_redis::SharedRedis;
use super::{Effort, Limit, Report, Samples};
use crate::harness::Agent;

/// Looks by round for each call of the effort.
const LOOKS_PER_CALL: usize = 5;
/// What is compared.
const WHAT: &str = "acquire + release by an SDK, in its own process";

pub(super) fn beside_locks(effort: &Effort, report: &mut Report) -> anyhow::Result<()> {
    let redis = SharedRedis::start();
    // Not the agent's own, whose keys it watches.
    let theirs = SharedRedis::start();
    let agent = Agent::setup().upstream(&redis.url()).start();
    let socket = agent.socket().display().to_string();
    let files = tempfile::TempDir::new()?;
    let files = files.path().display().to_string();
    let addresses = [
        (Brand::TenurePython, &socket, Some(1500.0)),
        (Brand::TenureTypescript, &socket, Some(15_000.0)),
        (Brand::RedisPy, &theirs.url(), None),
        (Brand::PythonRedisLock, &theirs.url(), None),
        (Brand::Redlock, &theirs.url(), None),
        (Brand::ProperLockfile, &files, None),
    ];
    let mut peers = Vec::new();
    for (brand, address, look_ns) in addresses {
        // A lock of its own for each: nobody waits.
        let started = Peer::start(brand, address, brand.label()).and_then(|mut peer| {
            peer.pairs(WARM_UP)?;
            Ok(peer)
        });
        match started {
            Ok(peer) => {
                peers.push(Measured { brand, peer, look_ns, pairs: Vec::new(), looks: Vec::new() })
            }
            Err(error) => report.leave_out("P18", brand.label(), &error),
        }
    }
    let mut rust = Rust::start(&agent)?;
    rust.pairs(WARM_UP)?;
    let mut rust_times = Vec::new();
    for _ in 0..effort.rounds {
        rust_times.extend(rust.pairs(effort.calls / 4)?);
        for measured in &mut peers {
            measured.round(effort)?;
        }
    }
    report.compare("P18", WHAT, Side::Tenure, "Rust SDK", &in_ms(rust_times));
    for measured in peers {
        measured.tell(report);
    }
    Ok(())
}

/// A client, and what it took.
struct Measured {
    brand: Brand,
    peer: Peer,
    /// Most that a look at a hold may take, ns; of Tenure's own.
    look_ns: Option<f64>,
    /// µs.
    pairs: Vec<f64>,
    /// ns, by round.
    looks: Vec<[f64; 2]>,
}

impl Measured {
    fn round(&mut self, effort: &Effort) -> anyhow::Result<()> {
        self.pairs.extend(self.peer.pairs(effort.calls / 4)?);
        if self.look_ns.is_some() {
            self.looks.push(self.peer.looks(effort.calls * LOOKS_PER_CALL)?);
        }
        Ok(())
    }

    fn tell(self, report: &mut Report) {
        let side = if self.look_ns.is_some() { Side::Tenure } else { Side::Peer };
        report.compare("P18", WHAT, side, self.brand.label(), &in_ms(self.pairs));
        let Some(most) = self.look_ns else { return };
        for (index, what) in ["is_held()", "check()"].into_iter().enumerate() {
            let ns = Samples::new(self.looks.iter().map(|round| round[index]).collect()).median();
            let what = format!("{}: {what}", self.brand.label());
            let against =
                "the loop that asks is in it; check() raises when the hold is lost".to_owned();
            report.add("P18", &what, (ns, "ns"), Limit::Most(most), against);
        }
    }
}

/// A program of the Rust SDK, in this process.
struct Rust {
    runtime: tokio::runtime::Runtime,
    role: tenure::Resource,
}

impl Rust {
    fn start(agent: &Agent) -> anyhow::Result<Rust> {
        let runtime = tokio::runtime::Runtime::new()?;
        let session = runtime.block_on(async {
            let connected = tenure::Agent::connect_to(agent.socket()).await?;
            anyhow::Ok(connected.session().open().await?)
        })?;
        Ok(Rust { runtime, role: session.leader("rust") })
    }

    /// The time of each, µs.
    fn pairs(&mut self, count: usize) -> anyhow::Result<Vec<f64>> {
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            let pair = async { anyhow::Ok(self.role.acquire().await?.release().await?) };
            let (us, done) = timed_us(|| self.runtime.block_on(pair));
            done?;
            times.push(us);
        }
        Ok(times)
    }
}

fn in_ms(us: Vec<f64>) -> Samples {
    Samples::new(us.into_iter().map(|us| us / 1000.0).collect())
}
