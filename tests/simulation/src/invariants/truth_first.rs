//! I8: no reply, event or page says *held* before the upstream said so, pages say what the agent knows,
//! and a checkpoint is answered with what the upstream has said since it was asked.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tenure::wire::LostReason;
use tenure_core::keeper::Ticket;
use tenure_core::model::{ClaimId, SessionId};
use tenure_core::time::Boottime;

use super::super::time::TrueTime;
use super::Verdict;
use super::ledger::Ledger;

/// A turn takes no longer, unless the machine stands still.
const A_TURN: Duration = Duration::from_millis(5);

/// Compares what is said with what the upstream granted.
#[derive(Default)]
pub(crate) struct TruthFirst {
    taken: BTreeSet<ClaimId>,
    /// When checkpoints were asked for.
    asked: BTreeMap<Ticket, TrueTime>,
    /// When an agent last had an answer about a claim.
    heard: BTreeMap<ClaimId, TrueTime>,
    /// The machine that stood still last within a turn, with the time.
    stood_still: Option<(usize, Boottime, Boottime)>,
}

impl TruthFirst {
    /// The holds on the pages of a host are those of its agent.
    pub(crate) fn agree(
        &self,
        host: usize,
        pages: &[(SessionId, ClaimId)],
        agent: &[(SessionId, ClaimId)],
    ) -> Verdict {
        if let Some((session, claim)) = pages.iter().find(|held| !agent.contains(held)) {
            return Err(format!(
                "the page of session {session} on host {host} says that {claim} is held; its \
                 agent does not"
            ));
        }
        if let Some((session, claim)) = agent.iter().find(|held| !pages.contains(held)) {
            return Err(format!(
                "the agent of host {host} says that {claim} of session {session} is held; its page \
                 does not"
            ));
        }
        Ok(())
    }

    /// A checkpoint is asked for.
    pub(crate) fn checkpoint(&mut self, now: TrueTime, ticket: Ticket) {
        self.asked.insert(ticket, now);
    }

    /// An agent has an answer of its upstream about these.
    pub(crate) fn heard(&mut self, now: TrueTime, claims: impl Iterator<Item = ClaimId>) {
        self.heard.extend(claims.map(|claim| (claim, now)));
    }

    /// A checkpoint is answered: these are held.
    pub(crate) fn checkpointed(&mut self, ticket: Ticket, held: &[(ClaimId, u64)]) -> Verdict {
        let Some(asked) = self.asked.remove(&ticket) else { return Ok(()) };
        let unheard =
            held.iter().find(|(claim, _)| self.heard.get(claim).is_none_or(|heard| *heard < asked));
        match unheard {
            None => Ok(()),
            Some((claim, _)) => Err(format!(
                "a checkpoint asked for at {asked:?} says that {claim} is held, of which the upstream                  was last heard at {:?}",
                self.heard.get(claim)
            )),
        }
    }

    /// A machine stood still within a turn of its agent.
    pub(crate) fn stood_still(&mut self, host: usize, from: Boottime, to: Boottime) {
        let again = self
            .stood_still
            .filter(|(of, _, last)| *of == host && *last <= from && from.since(*last) <= A_TURN);
        self.stood_still = Some((host, again.map_or(from, |(_, from, _)| from), to));
    }

    /// A reply of a host says that the claim is held until then.
    pub(crate) fn in_time(
        &self,
        host: usize,
        claim: ClaimId,
        until: u64,
        now: Boottime,
    ) -> Verdict {
        // No agent can know how long it stood between its grant and its reply: the reader sees it by the clock.
        let stood = self
            .stood_still
            .filter(|(of, _, to)| *of == host && *to <= now && now.since(*to) <= A_TURN);
        let looked = stood.map_or(now, |(_, from, _)| from);
        // The agent decides by the instant at which its turn began.
        if Boottime::from_nanos(until) + A_TURN > looked {
            return Ok(());
        }
        Err(format!("a reply says at {now:?} that {claim} is held, until {until} ns"))
    }

    /// Something ran out while the machine slept, and is said to be lost for that reason.
    pub(crate) fn after_sleep(&self, claim: ClaimId, reason: LostReason) -> Verdict {
        match reason {
            LostReason::Expired => {
                Err(format!("{claim} ran out while its machine slept, and was lost: {reason}"))
            }
            _ => Ok(()),
        }
    }

    /// A store says that it took this away; perhaps in the step in which it was granted.
    pub(crate) fn taken(&mut self, claim: ClaimId) {
        self.taken.insert(claim);
    }

    /// `by` says that the claim is held with that token.
    pub(crate) fn said(&self, ledger: &Ledger, by: &str, claim: ClaimId, token: u64) -> Verdict {
        match ledger.fact(claim) {
            // A replayed event may speak of an earlier grant.
            Some(fact) if fact.token == token || fact.earlier.contains(&token) => Ok(()),
            Some(fact) => Err(format!(
                "{by} says that {claim} is held with token {token}; the upstream granted it with \
                 {}",
                fact.token
            )),
            None if self.taken.contains(&claim) => Ok(()),
            None => Err(format!("{by} says that {claim} is held; the upstream never granted it")),
        }
    }
}
