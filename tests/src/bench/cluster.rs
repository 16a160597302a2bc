//! P16: three gateways that keep everything themselves, in network namespaces of their own, beside an etcd of three
//! nodes on loopback. Both are called at their leader, by one client that waits for each answer, and by many.

use std::time::Duration;

use tenure::wire::Kind;
use tenure_core::model::{Answer, ClaimAnswer};
use tokio::runtime::{Builder, Runtime};
use uuid::Uuid;

use super::peers::{EtcdClient, EtcdCluster};
use super::samples::timed_us;
use super::{Effort, Limit, Report, Samples};
use crate::harness::{LeaderKills, Nodes, Outcome, Way, Wish, boottime_ns, cpu_ns, rss_kib};

const NODES: usize = 3;
/// Clients at once.
const CLIENTS: usize = 32;
/// Fewer say nothing of a p99.
const KILLS: usize = 50;
const QUICK_KILLS: usize = 5;
const ETCD_KILLS: usize = 4;
const TTL: Duration = Duration::from_secs(60);
/// The ttl of a lease of etcd that ends after a kill, s; its least.
const ETCD_TTL_S: i64 = 2;
const ROUNDS: usize = 3;

pub(super) fn beside_etcd(effort: &Effort, report: &mut Report) -> anyhow::Result<()> {
    let is_quick = effort.calls < Effort::FULL.calls;
    let mut nodes = Nodes::start(NODES)
        .ok_or_else(|| anyhow::anyhow!("it takes root, for network namespaces"))?;
    idle(&nodes, effort, report);
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let etcd = EtcdCluster::start()?;
    let at_etcd = etcd.leader(&runtime)?;
    let leader = nodes.settle();
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let (mut our_rate, mut their_rate) = (Vec::new(), Vec::new());
    let mut client = etcd.client(&runtime, at_etcd)?;
    // In turns: a machine is slower at one time than at another.
    for round in 0..ROUNDS {
        ours.extend(
            nodes.hosts.on(leader, || claims_us(&nodes, leader, round, effort.calls / ROUNDS)),
        );
        theirs.extend(runtime.block_on(etcd_claims_us(&mut client, effort.calls / ROUNDS))?);
        our_rate.push(pairs_per_s(&nodes, leader, round, effort.round_ms));
        their_rate.push(etcd_pairs_per_s(&runtime, &etcd, at_etcd, effort.round_ms)?);
    }
    let (ours, theirs) = (Samples::new(ours), Samples::new(theirs));
    for (part, name) in [(0.5, "p50"), (0.99, "p99")] {
        let peer = theirs.quantile(part);
        report.add(
            "P16",
            &format!("claim at the leader, one client, {name}"),
            (ours.quantile(part) / 1e3, "ms"),
            Limit::Most(1.2 * peer / 1e3),
            format!("etcd's transaction over gRPC {:.2} ms", peer / 1e3),
        );
    }
    let (our_rate, their_rate) =
        (Samples::new(our_rate).median(), Samples::new(their_rate).median());
    report.add(
        "P16",
        &format!("claim + release, {CLIENTS} clients"),
        (our_rate, "pairs/s"),
        Limit::Least(their_rate),
        format!("etcd {their_rate:.0} pairs/s"),
    );
    drop(etcd);
    let kills = LeaderKills::of(&mut nodes, if is_quick { QUICK_KILLS } else { KILLS });
    let count = kills.again_ms.len();
    let in_gap = kills.late_in_gap_ms.len();
    let (again, late) = (Samples::new(kills.again_ms), Samples::new(kills.late_ms));
    let late_in_gap = Samples::new(kills.late_in_gap_ms);
    let peer =
        Samples::new((0..ETCD_KILLS).map(|_| etcd_late_ms(&runtime)).collect::<Result<_, _>>()?);
    for (what, times, limit, peer) in [
        ("SIGKILL of the leader → a claim is granted", &again, 1500.0, String::new()),
        (
            "a lease that ended before that: end of the ttl → somebody else has it",
            &late_in_gap,
            1500.0,
            format!("; {in_gap} of them"),
        ),
        (
            "a lease that ended later: end of the ttl → somebody else has it",
            &late,
            250.0,
            format!(
                "; etcd {:.0} to {:.0} ms, {ETCD_KILLS} kills",
                peer.quantile(0.0),
                peer.quantile(1.0)
            ),
        ),
    ] {
        for (part, name) in [(0.5, "p50"), (0.99, "p99")] {
            let against = format!(
                "{count} kills, {:.0} to {:.0} ms{peer}",
                times.quantile(0.0),
                times.quantile(1.0)
            );
            let value = (times.quantile(part), "ms");
            report.add("P16", &format!("{what}, {name}"), value, Limit::Most(limit), against);
        }
    }
    let lost = (kills.lost as f64, "holds");
    report.add(
        "P16",
        "lost by kills of the leader",
        lost,
        Limit::Most(0.0),
        format!("{count} kills"),
    );
    Ok(())
}

fn idle(nodes: &Nodes, effort: &Effort, report: &mut Report) {
    nodes.settle();
    let pids: Vec<_> = nodes.all().iter().map(|node| node.gateway.pid()).collect();
    let before: Vec<_> = pids.iter().map(|pid| cpu_ns(*pid)).collect();
    std::thread::sleep(Duration::from_millis(effort.idle_ms));
    let used = pids
        .iter()
        .zip(before)
        .map(|(pid, before)| cpu_ns(*pid) - before)
        .max()
        .unwrap_or_default();
    let percent = used as f64 / 1e4 / effort.idle_ms as f64;
    let rss = pids.iter().map(|pid| rss_kib(*pid)).max().unwrap_or_default() as f64 / 1024.0;
    let against = || "the greatest of three".to_owned();
    report.add("P16", "node at rest, processor time", (percent, "%"), Limit::Most(1.0), against());
    report.add("P16", "node at rest, resident memory", (rss, "MiB"), Limit::Most(40.0), against());
}

/// A claim of a lease that is free, and its release.
fn pair(way: &mut Way, name: &str) -> f64 {
    let id = way.mark().expect("the gateway answers").scoped(Uuid::new_v4());
    let wish = Wish::new(id, Kind::Lease, name, TTL);
    let (us, claimed) = timed_us(|| way.call(&wish.claim()));
    assert!(
        matches!(claimed, Outcome::Answer(Answer::Claim(ClaimAnswer::Held { .. }))),
        "it is free"
    );
    assert!(matches!(way.call(&wish.release()), Outcome::Answer(_)), "it is released");
    us
}

fn way(nodes: &Nodes, node: usize) -> Way {
    Way::new(&nodes.hosts, node, nodes.all()[node].gateway.port())
}

fn claims_us(nodes: &Nodes, leader: usize, round: usize, calls: usize) -> Vec<f64> {
    let mut way = way(nodes, leader);
    (0..calls).map(|call| pair(&mut way, &format!("one-{round}-{call}"))).collect()
}

async fn etcd_claims_us(client: &mut EtcdClient, calls: usize) -> anyhow::Result<Vec<f64>> {
    let lease = client.lease(TTL.as_secs().cast_signed()).await?;
    let mut times = Vec::with_capacity(calls);
    for call in 0..calls {
        let key = format!("one-{call}");
        let began = boottime_ns();
        anyhow::ensure!(client.claim(&key, lease).await?, "{key} is taken");
        times.push((boottime_ns() - began) as f64 / 1e3);
        client.release(&key).await?;
    }
    Ok(times)
}

fn pairs_per_s(nodes: &Nodes, leader: usize, round: usize, round_ms: u64) -> f64 {
    let until = boottime_ns() + round_ms * 1_000_000;
    let pairs: usize = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                scope.spawn(move || {
                    let mut way = way(nodes, leader);
                    nodes.hosts.on(leader, || {
                        let pairs = (0..).take_while(|call| {
                            pair(&mut way, &format!("many-{round}-{client}-{call}"));
                            boottime_ns() < until
                        });
                        pairs.count()
                    })
                })
            })
            .collect();
        clients.into_iter().map(|client| client.join().expect("no client panics")).sum()
    });
    pairs as f64 * 1e3 / round_ms as f64
}

fn etcd_pairs_per_s(
    runtime: &Runtime,
    etcd: &EtcdCluster,
    leader: usize,
    round_ms: u64,
) -> anyhow::Result<f64> {
    let until = boottime_ns() + round_ms * 1_000_000;
    let mut clients = Vec::new();
    for number in 0..CLIENTS {
        let mut client = etcd.client(runtime, leader)?;
        clients.push(runtime.spawn(async move {
            let lease = client.lease(TTL.as_secs().cast_signed()).await?;
            let mut pairs = 0_usize;
            while boottime_ns() < until {
                let key = format!("many-{number}-{pairs}");
                anyhow::ensure!(client.claim(&key, lease).await?, "{key} is taken");
                client.release(&key).await?;
                pairs += 1;
            }
            anyhow::Ok(pairs)
        }));
    }
    let mut pairs = 0;
    for client in clients {
        pairs += runtime.block_on(client)??;
    }
    Ok(pairs as f64 * 1e3 / round_ms as f64)
}

/// From the end of a lease's ttl, whose leader was killed, until its key is gone, ms.
fn etcd_late_ms(runtime: &Runtime) -> anyhow::Result<f64> {
    let mut etcd = EtcdCluster::start()?;
    let leader = etcd.leader(runtime)?;
    let mut client = etcd.client(runtime, leader)?;
    let granted_at = boottime_ns();
    let lease = runtime.block_on(client.lease(ETCD_TTL_S))?;
    anyhow::ensure!(runtime.block_on(client.claim("key", lease))?, "it is taken");
    etcd.kill(leader);
    let mut survivor = etcd.client(runtime, (leader + 1) % NODES)?;
    // Nobody leads at first.
    while runtime.block_on(survivor.is_taken("key")).unwrap_or(true) {}
    Ok((boottime_ns() - granted_at) as f64 / 1e6 - ETCD_TTL_S as f64 * 1e3)
}
