//! Counts of answers, to know that a run tests what it is for.

use std::collections::BTreeMap;

use tenure_core::model::{Answer, BeatAnswer, ClaimAnswer, GoneReason};
use tenure_wire::Role;

/// How often what was answered.
#[derive(Debug, Default)]
pub struct Seen(pub BTreeMap<&'static str, u64>);

impl Seen {
    /// Adds another run's.
    pub fn add(&mut self, other: &Seen) {
        for (what, count) in &other.0 {
            *self.0.entry(what).or_default() += count;
        }
    }

    /// Counts an answer.
    pub(crate) fn count(&mut self, answer: &Answer) {
        let mut add = |what| *self.0.entry(what).or_default() += 1;
        match answer {
            Answer::Claim(ClaimAnswer::Held { .. }) => add("claim held"),
            Answer::Claim(ClaimAnswer::Waiting { .. }) => add("claim waiting"),
            Answer::Claim(ClaimAnswer::Contended { .. }) => add("claim contended"),
            Answer::Claim(ClaimAnswer::Gone(reason)) => add(gone("claim", *reason)),
            Answer::Claim(ClaimAnswer::Quarantined { .. }) => add("claim quarantined"),
            Answer::Renew(answers) => {
                for answer in answers {
                    add(match answer {
                        BeatAnswer::Held { .. } => "beat held",
                        BeatAnswer::Waiting { .. } => "beat waiting",
                        BeatAnswer::Gone(reason) => gone("beat", *reason),
                        BeatAnswer::Revoked(_) => "beat gone: revoked, with words",
                        BeatAnswer::Session { role: Role::Master } => "beat of a master",
                        BeatAnswer::Session { .. } => "beat of a peer",
                        BeatAnswer::Failed(_) => "beat failed",
                    });
                }
            }
            Answer::Released(true) => add("released"),
            Answer::Released(false) => add("released nothing"),
            Answer::Revoked(0) => add("revoked nothing"),
            Answer::Revoked(_) => add("revoked"),
            Answer::Standing(standing) => {
                add("standing");
                if !standing.waiters.is_empty() {
                    add("standing with waiters");
                }
                if !standing.sessions.is_empty() {
                    add("standing with sessions");
                }
            }
            Answer::Members(_) => add("members"),
            Answer::Routes(routes) if routes.routes.is_empty() => add("no routes"),
            Answer::Routes(_) => add("routes"),
            Answer::Resources { .. } => add("resources"),
            Answer::Recorded => add("recorded"),
            Answer::History(changes) if changes.is_empty() => add("no history"),
            Answer::History(_) => add("history"),
            Answer::Announced => add("announced"),
            Answer::Ended(_) => add("ended"),
        }
    }
}

fn gone(what: &'static str, reason: GoneReason) -> &'static str {
    match (what, reason) {
        ("claim", GoneReason::Released) => "claim gone: released",
        ("claim", GoneReason::Expired) => "claim gone: expired",
        ("claim", GoneReason::Preempted) => "claim gone: preempted",
        ("claim", GoneReason::Revoked) => "claim gone: revoked",
        ("claim", GoneReason::Conflict) => "claim gone: conflict",
        ("claim", _) => "claim gone: other",
        (_, GoneReason::Released) => "beat gone: released",
        (_, GoneReason::Expired) => "beat gone: expired",
        (_, GoneReason::Preempted) => "beat gone: preempted",
        (_, GoneReason::Revoked) => "beat gone: revoked",
        (_, GoneReason::Conflict) => "beat gone: conflict",
        (_, GoneReason::Unknown) => "beat gone: unknown",
    }
}
