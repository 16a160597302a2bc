//! P3: from a release on one host to the next waiter's `granted` on another, and what peers take.

use std::time::Duration;

use serde_json::json;

use super::peers::{Brand, Peer, Peers};
use super::report::Side;
use super::time_line::Call;
use super::two_agents::{KINDS, TwoAgents, client};
use super::{Effort, Limit, Report, Samples, straight, time_line};
use crate::harness::{Agent, Client, boottime_ns};

const WHAT: &str = "release → the next one holds it";
/// Upper bounds of the histograms, ms.
const BOUNDS_MS: [f64; 11] = [0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 100.0];
/// How long a hold is held at least before it is released: everything has come to rest by then.
const REST: Duration = Duration::from_millis(20);
/// Peers that poll do so once in this time, or a part of it. Their rests are spread evenly over it,
/// so that the release comes at any moment between two polls.
const POLL: Duration = Duration::from_secs(1);
/// Multiples of the golden ratio's fraction spread evenly however many there are, and never keep
/// step with a poll.
const GOLDEN: f64 = 0.618_033_988_75;

pub(super) fn between_hosts(effort: &Effort, report: &mut Report) -> anyhow::Result<()> {
    let hosts = TwoAgents::start();
    for kind in KINDS {
        let times = hand_overs_ms(&hosts.agents, kind, effort.hand_overs);
        let title = format!("{kind}: release → granted on another host");
        let against = format!("{} releases; max {:.2} ms", effort.hand_overs, times.quantile(1.0));
        for (part, name, limit) in [(0.5, "p50", 0.8), (0.99, "p99", 3.0)] {
            let value = (times.quantile(part), "ms");
            report.add(
                "P3",
                &format!("{title}, {name}"),
                value,
                Limit::Most(limit),
                against.clone(),
            );
        }
        report.histogram(&title, &BOUNDS_MS, &times);
        report.compare("P3", WHAT, Side::Tenure, kind, &times);
    }
    let floor = Samples::new(straight::hand_overs_ms(&hosts.redis, effort.hand_overs)?);
    report.compare("P3", WHAT, Side::Floor, "script, message, script; no agent", &floor);
    let urls = [(); 2].map(|()| hosts.redis.url());
    time_line::of_hand_overs("P3", &urls, &hosts.redis, &[], effort.hand_overs, report)?;

    let servers = Peers::start();
    for brand in Brand::ALL {
        let clients = (servers.client(brand, "role"), servers.client(brand, "role"));
        add_peer(effort, report, ("P3", WHAT), brand.label(), clients);
    }
    // An agent also wakes the waiters of programs that know nothing of it.
    let package = || Peer::start(Brand::AdvancedSemaphores, &hosts.redis.url(), "foreign");
    let label = "asyncio-advanced-semaphores beside an agent";
    add_peer(effort, report, ("P3", WHAT), label, (package(), package()));
    Ok(())
}

/// Times from just before the release until the event was read, ms. The hosts take turns.
pub(super) fn hand_overs_ms(agents: &[Agent; 2], kind: &str, rounds: usize) -> Samples {
    let times = hand_overs(agents, kind, rounds).into_iter();
    Samples::new(times.map(|call| (call.ended - call.began) as f64 / 1e6).collect())
}

/// The same, with the instants.
pub(super) fn hand_overs(agents: &[Agent; 2], kind: &str, rounds: usize) -> Vec<Call> {
    let mut sides = agents.each_ref().map(|agent| {
        let (http, session) = client(agent);
        (http, session, agent.events(session))
    });
    let [one, two] = &mut sides;
    let (mut holder, mut waiter) = (one, two);
    let more = json!({});
    let mut hold = holder.0.acquire(holder.1, kind, "role", &more).hold;
    let calls = (0..rounds)
        .map(|round| {
            let waiting = waiter.0.queue(waiter.1, kind, "role", &more).hold;
            std::thread::sleep(REST);
            let began = boottime_ns();
            holder.0.release(holder.1, hold);
            let (seen, _) = waiter.2.granted_seen(waiting);
            hold = waiting;
            std::mem::swap(&mut holder, &mut waiter);
            Call { began, ended: seen.at_ns, agent: round % 2 }
        })
        .collect();
    holder.0.release(holder.1, hold);
    calls
}

/// A client that could be started.
pub(super) type Started = anyhow::Result<Peer>;

/// Adds a peer to the comparison of a target.
pub(super) fn add_peer(
    effort: &Effort,
    report: &mut Report,
    (id, what): (&str, &str),
    label: &str,
    clients: (Started, Started),
) {
    let measured = match clients {
        (Ok(one), Ok(two)) => peer_hand_overs_ms(one, two, effort.peer_hand_overs),
        (Err(error), _) | (_, Err(error)) => Err(error),
    };
    match measured {
        Ok(times) => report.compare(id, what, Side::Peer, label, &times),
        Err(error) => report.leave_out(id, label, &error),
    }
}

fn peer_hand_overs_ms(mut holder: Peer, mut waiter: Peer, rounds: u32) -> anyhow::Result<Samples> {
    // The waiter's connection and interpreter, too, have done everything once.
    waiter.pairs(1)?;
    holder.acquire()?;
    let times = (0..rounds)
        .map(|round| {
            waiter.start_acquire()?;
            let phase = (f64::from(round) * GOLDEN).fract();
            std::thread::sleep(REST + POLL.mul_f64(phase));
            let released_at = holder.release()?;
            let held_at = waiter.acquired()?;
            std::mem::swap(&mut holder, &mut waiter);
            Ok((held_at - released_at) as f64 / 1e6)
        })
        .collect::<anyhow::Result<_>>()?;
    Ok(Samples::new(times))
}
