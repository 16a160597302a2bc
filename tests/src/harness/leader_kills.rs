//! Leaders that are killed, one after the other.

use std::time::Duration;

use tenure::wire::Kind;
use tenure_core::model::{Answer, BeatAnswer, ClaimAnswer};
use uuid::Uuid;

use super::{Nodes, Outcome, Way, Wish, boottime_ns, eventually};

/// Holds that live through all of it.
const HOLDS: usize = 20;
const LONG: Duration = Duration::from_secs(60);
/// The ttl of a lease whose leader is killed.
const SHORT: Duration = Duration::from_secs(2);
/// Step between the instants of kills, as a part of the ttl (the golden ratio): each kill is far from all earlier ones,
/// so that few kills reach all phases of the lease, also phases whose end the election outlasts.
const SPREAD: f64 = 0.618_034;

/// The times that kills of leaders took.
#[derive(Debug, Default)]
pub struct LeaderKills {
    /// From a kill until a claim is granted, ms.
    pub again_ms: Vec<f64>,
    /// From the end of a lease's ttl, which the killed leader granted, until others have the lease, ms; for leases that
    /// ended once claims were granted again.
    pub late_ms: Vec<f64>,
    /// The same for leases that ended before claims were granted again, and so could not be granted earlier.
    pub late_in_gap_ms: Vec<f64>,
    /// Holds that were gone, or had another token.
    pub lost: usize,
}

impl LeaderKills {
    /// Kills so many.
    #[track_caller]
    pub fn of(nodes: &mut Nodes, rounds: usize) -> LeaderKills {
        let mut kills = LeaderKills::default();
        let mut held = Vec::new();
        for round in 0..rounds {
            let leader = nodes.settle();
            let survivor = (leader + 1) % nodes.all().len();
            let mut way = Way::new(&nodes.hosts, survivor, nodes.all()[survivor].gateway.port());
            // Ways move the thread that they are used on.
            let (lease, sent_at) = nodes.hosts.on(survivor, || {
                while held.len() < HOLDS {
                    held.push(take(&mut way, &format!("long-{}", held.len()), LONG));
                }
                let sent_at = boottime_ns();
                (take(&mut way, &format!("short-{round}"), SHORT).0, sent_at)
            });
            let alive = SHORT.mul_f64((round as f64 * SPREAD).fract());
            std::thread::sleep(alive.saturating_sub(Duration::from_nanos(boottime_ns() - sent_at)));
            let killed_at = boottime_ns();
            nodes.node(leader).gateway.kill();
            nodes.hosts.on(survivor, || {
                take(&mut way, &format!("again-{round}"), LONG);
                kills.again_ms.push(ms_since(killed_at));
                let is_in_gap = ms_since(sent_at) > SHORT.as_secs_f64() * 1e3;
                kills.lost +=
                    held.iter().filter(|(wish, token)| !is_held(&mut way, wish, *token)).count();
                take(&mut way, &lease.resource.name, SHORT);
                let late_ms = ms_since(sent_at) - SHORT.as_secs_f64() * 1e3;
                if is_in_gap { &mut kills.late_in_gap_ms } else { &mut kills.late_ms }
                    .push(late_ms);
            });
            nodes.node(leader).start_again();
        }
        kills
    }
}

fn ms_since(at_ns: u64) -> f64 {
    (boottime_ns() - at_ns) as f64 / 1e6
}

/// Claims something until it is granted.
#[track_caller]
fn take(way: &mut Way, name: &str, ttl: Duration) -> (Wish, u64) {
    let mark = eventually("the gateway to answer", || way.mark());
    let wish = Wish::new(mark.scoped(Uuid::new_v4()), Kind::Lease, name, ttl);
    let token = eventually("a grant", || match way.call(&wish.claim()) {
        Outcome::Answer(Answer::Claim(ClaimAnswer::Held { token, .. })) => Some(token),
        // The same claim sent again is one claim.
        _ => None,
    });
    (wish, token)
}

/// True if it is held still, with its token.
#[track_caller]
fn is_held(way: &mut Way, wish: &Wish, token: u64) -> bool {
    let beaten = eventually("an answer to a beat", || match way.call(&wish.beat()) {
        Outcome::Answer(Answer::Renew(beats)) => beats.into_iter().next(),
        _ => None,
    });
    matches!(beaten, BeatAnswer::Held { token: now, .. } if now == token)
}
