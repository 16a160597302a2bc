//! What Redis is busy for, for each thing that it does.
//!
//! Seen on Redis 7.0 on a machine of two cores, by `SLOWLOG` and `INFO commandstats`, and by the time of the whole
//! process for pushes and calls that renew. Beats of holds are steady ones with ten thousand holds. Claims and
//! releases are those of scripts that were slower than today's. Most scenarios compare sums, so that proportions
//! count and no machine's speed.

use std::time::Duration;

use tenure::wire::Kind;
use tenure_core::model::{Answer, Beat, BeatAnswer, ClaimAnswer, Request, Subject};
use tenure_stores::redis::chores::Chore;

use super::backend::Asked;

const fn us_tenths(tenths: u64) -> Duration {
    Duration::from_nanos(tenths * 100)
}

/// Reading a command, and writing its answer.
pub(super) const COMMAND: Duration = us_tenths(15);
/// One write to one agent, for all that it is told of at once …
const PUSH: Duration = us_tenths(55);
/// … and for each key in it.
const PUSHED_KEY: Duration = us_tenths(1);
/// A key that is looked at and tracked.
const WATCHED_KEY: Duration = us_tenths(5);
/// A channel that is subscribed to, or no longer.
const CHANNEL: Duration = us_tenths(10);
/// A claim in a call that verifies.
const VERIFIED: Duration = us_tenths(20);
/// A semaphore that is looked after.
const CARED: Duration = us_tenths(450);
/// A candidate for caretaker, and its sweep where nothing is dead.
const STOOD: Duration = us_tenths(250);
/// A key in a step of a survey.
const SURVEYED_KEY: Duration = us_tenths(10);
/// A session that comes or goes.
const ANNOUNCED: Duration = us_tenths(300);
/// A look at a resource …
const INSPECTED: Duration = us_tenths(200);
/// … and at each of its holders, waiters and sessions.
const INSPECTED_ENTRY: Duration = us_tenths(40);
/// A claim that comes to wait, or a grant to one that waits.
const QUEUED: Duration = us_tenths(550);
/// A call that renews, before its first beat: a wake-up of the server, and the functions of the script.
const RENEWAL: Duration = us_tenths(600);
/// A beat of a waiter.
const BEAT_OF_WAITER: Duration = us_tenths(160);
const BEAT_OF_SESSION: Duration = us_tenths(100);

fn claim(kind: Kind) -> Duration {
    us_tenths(match kind {
        Kind::Leader => 300,
        Kind::Semaphore => 730,
        Kind::Lease => 770,
        Kind::Master => 570,
    })
}

fn release(kind: Kind) -> Duration {
    us_tenths(match kind {
        Kind::Leader => 200,
        Kind::Semaphore => 450,
        Kind::Lease => 770,
        Kind::Master => 570,
    })
}

fn beat(Beat { subject, .. }: &Beat, answer: &BeatAnswer) -> Duration {
    let Subject::Claim { resource, .. } = subject else { return BEAT_OF_SESSION };
    if matches!(answer, BeatAnswer::Waiting { .. }) {
        return BEAT_OF_WAITER;
    }
    us_tenths(match resource.kind {
        Kind::Leader => 40,
        Kind::Semaphore => 75,
        Kind::Lease => 70,
        Kind::Master => 120,
    })
}

/// The cost of telling one agent of so many changes at once.
pub(super) fn push(keys: usize) -> Duration {
    PUSH + PUSHED_KEY * count(keys)
}

/// The cost of a request, the grants that follow from it not counted.
pub(super) fn request(request: &Request, answer: &Answer) -> Duration {
    let script = match (request, answer) {
        (Request::Claim(_), Answer::Claim(ClaimAnswer::Waiting { .. })) => QUEUED,
        (Request::Claim(it), _) => claim(it.resource.kind),
        (Request::Release { resource, .. }, _) => release(resource.kind),
        (Request::Renew(beats), Answer::Renew(answers)) => {
            let beats = beats.iter().zip(answers).map(|(of, answer)| beat(of, answer));
            RENEWAL + beats.sum::<Duration>()
        }
        (_, Answer::Standing(standing)) => {
            let members = standing.members.min(standing.sessions.len() as u64);
            let listed = standing.holders.len() + standing.waiters.len() + members as usize;
            INSPECTED + INSPECTED_ENTRY * count(listed)
        }
        (Request::Revoke { resource, .. }, _) => release(resource.kind),
        _ => ANNOUNCED,
    };
    COMMAND + script
}

/// The cost of a grant to somebody who waits.
pub(super) fn grant() -> Duration {
    QUEUED
}

/// The cost of what is not a request; of a survey with so many keys to walk through.
pub(super) fn other(asked: &Asked, keys: usize) -> Duration {
    match asked {
        // HELLO, CLIENT TRACKING and the subscription to the agent's channel.
        Asked::Listen => COMMAND * 3,
        Asked::Hear(audiences) | Asked::StopHearing(audiences) => {
            COMMAND * 2 + CHANNEL * count(audiences.len())
        }
        Asked::Watch(topics) => COMMAND * 2 + WATCHED_KEY * count(topics.len()),
        Asked::Verify(claims) => COMMAND + VERIFIED * count(claims.len()),
        Asked::Chore(Chore::Care(semaphores)) => COMMAND + CARED * count(semaphores.len()),
        Asked::Chore(Chore::Stand | Chore::Sweep) => COMMAND + STOOD,
        Asked::Chore(Chore::Survey(_)) => COMMAND + SURVEYED_KEY * count(keys),
        Asked::Request(_) => COMMAND,
    }
}

fn count(of: usize) -> u32 {
    u32::try_from(of).unwrap_or(u32::MAX)
}
