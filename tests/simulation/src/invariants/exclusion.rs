//! I1: never more holders whose *valid until* has not passed than permits, in true time.
//!
//! A holder believes its page. So two things are checked, both at the true instant at which they
//! could go wrong: when the upstream grants, the pages that still say *held* and the new grant
//! together are within the limit in force; and a page never says *held* of a claim that the
//! upstream has let go. Excepted are grants that the upstream takes back without being asked by
//! the holder's agent (preempted, revoked, its data lost), until that agent hears of it: for no instant
//! where both holders are on one host, and for a beat and a round trip in a good network. An
//! upstream that lost its data and knows it (quarantine) has no such exception for its grants.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure::wire::Kind;
use tenure_core::model::{ClaimId, Resource, SessionId};

use super::super::time::TrueTime;
use super::Verdict;
use super::ledger::{End, Ledger, Moment};

/// The longest time between two beats, and a round trip in a good network.
const BEHIND_MAX: Duration = Duration::from_millis(2500);

/// A slot of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Slot {
    /// On which host.
    pub(crate) host: usize,
    /// The page's session.
    pub(crate) session: SessionId,
    pub(crate) slot: u32,
}

#[derive(Debug, Clone, Copy)]
struct Belief {
    claim: ClaimId,
    until: TrueTime,
}

/// Everything that pages say.
#[derive(Default)]
pub(crate) struct Exclusion {
    beliefs: BTreeMap<Slot, Belief>,
    /// Those of pages without an agent.
    orphans: Vec<Belief>,
    heard: Vec<(usize, ClaimId)>,
}

impl Exclusion {
    /// A page was written; `until` is the true instant at which it stops saying *held*.
    pub(crate) fn written(
        &mut self,
        now: TrueTime,
        ledger: &Ledger,
        slot: Slot,
        claim: ClaimId,
        until: Option<TrueTime>,
    ) -> Verdict {
        let Some(until) = until.filter(|until| *until > now) else {
            self.beliefs.remove(&slot);
            return Ok(());
        };
        let fact = ledger.fact(claim);
        let rival = self.beliefs.iter().find(|(at, belief)| {
            at.host == slot.host
                // This write replaces the ledger's entry of the slot itself.
                && **at != slot
                && belief.claim != claim
                && belief.until > now
                && fact.is_some_and(|fact| {
                    fact.resource.kind != Kind::Semaphore
                        && ledger.fact(belief.claim).is_some_and(|it| it.resource == fact.resource)
                })
        });
        if let Some((at, belief)) = rival {
            return Err(format!(
                "the page of session {} says that {claim} is held, and on the same host that of {} \
                 says so of {}",
                slot.session, at.session, belief.claim
            ));
        }
        self.beliefs.insert(slot, Belief { claim, until });
        match fact.and_then(|fact| fact.end) {
            Some(end) if !end.is_unannounced() => Err(format!(
                "the page of session {} says until {until:?} that {claim} is held, which the \
                 upstream has let go: {end:?}",
                slot.session
            )),
            _ => Ok(()),
        }
    }

    /// The slots of a page but those to keep were voided.
    pub(crate) fn voided(&mut self, host: usize, session: SessionId, keep: &[u32]) {
        self.beliefs
            .retain(|at, _| (at.host, at.session) != (host, session) || keep.contains(&at.slot));
    }

    /// A page was removed.
    pub(crate) fn removed(&mut self, host: usize, session: SessionId) {
        self.beliefs.retain(|slot, _| (slot.host, slot.session) != (host, session));
    }

    /// The upstream did something.
    pub(crate) fn moment(&mut self, now: TrueTime, ledger: &Ledger, moment: &Moment) -> Verdict {
        match moment {
            Moment::Ended(claim, end) => self.ended(now, *claim, *end),
            Moment::Granted { resource, claim, holders, limit } => {
                self.granted(now, ledger, resource, *claim, (*holders, *limit))
            }
        }
    }

    fn ended(&mut self, now: TrueTime, claim: ClaimId, end: End) -> Verdict {
        let believed = self.beliefs.values().chain(&self.orphans);
        let believed = believed.copied().find(|it| it.claim == claim && it.until > now);
        match believed {
            Some(belief) if !end.is_unannounced() => Err(format!(
                "the upstream let go of {claim} ({end:?}), and a page says until {:?} that it is \
                 held",
                belief.until
            )),
            _ => Ok(()),
        }
    }

    fn granted(
        &mut self,
        now: TrueTime,
        ledger: &Ledger,
        resource: &Resource,
        claim: ClaimId,
        (holders, limit): (usize, usize),
    ) -> Verdict {
        if holders > limit {
            return Err(format!(
                "{claim} was granted {resource} beyond its limit: {holders} grants, permits in \
                 all: {limit}"
            ));
        }
        self.beliefs.retain(|_, belief| belief.until > now);
        self.orphans.retain(|belief| belief.until > now);
        let mut others: Vec<ClaimId> = self
            .beliefs
            .values()
            .chain(&self.orphans)
            .filter(|belief| belief.claim != claim)
            .filter(|belief| {
                ledger.fact(belief.claim).is_some_and(|fact| {
                    fact.resource == *resource && !fact.end.is_some_and(End::is_overlapping)
                })
            })
            .map(|belief| belief.claim)
            .collect();
        others.dedup();
        if others.len() < limit {
            return Ok(());
        }
        Err(format!(
            "{claim} was granted {resource} while the pages of {others:?} say *held*; permits in \
             all: {limit}"
        ))
    }

    /// The agent was told by the upstream that it has this claim no longer.
    pub(crate) fn heard(&mut self, host: usize, claim: ClaimId) {
        self.heard.push((host, claim));
    }

    /// The pages of a host are removed without being zeroed: who maps them goes on by them, but no
    /// agent will ever write them again.
    pub(crate) fn orphaned(&mut self, host: usize) {
        let slots: Vec<Slot> = self.beliefs.keys().filter(|at| at.host == host).copied().collect();
        for slot in slots {
            if let Some(belief) = self.beliefs.remove(&slot) {
                self.orphans.push(belief);
            }
        }
    }

    /// The machine of a host is gone, and everybody with it who read a page there.
    pub(crate) fn rebooted(&mut self, host: usize) {
        self.orphaned(host);
        self.orphans.clear();
        self.crashed(host);
    }

    /// Everything runs and the network is good: what was taken away is off its page after a beat and
    /// a round trip.
    pub(crate) fn caught_up(&self, now: TrueTime, ledger: &Ledger) -> Verdict {
        for (slot, belief) in &self.beliefs {
            let Some(fact) = ledger.fact(belief.claim) else { continue };
            if belief.until > now
                && fact.end.is_some()
                && fact.ended_at.is_some_and(|at| now.since(at) > BEHIND_MAX)
            {
                return Err(format!(
                    "the page of session {} says that {} is held, {:?} after it ended upstream: {:?}",
                    slot.session,
                    belief.claim,
                    fact.ended_at.map(|at| now.since(at)),
                    fact.end
                ));
            }
        }
        Ok(())
    }

    /// The pending work of the agent is lost with it.
    pub(crate) fn crashed(&mut self, host: usize) {
        self.heard.retain(|(heard_on, _)| *heard_on != host);
    }

    /// The agent did what it had to do after what it heard.
    pub(crate) fn turn_ended(&mut self, now: TrueTime, host: usize) -> Verdict {
        for (heard_on, claim) in std::mem::take(&mut self.heard) {
            let still = self.beliefs.iter().any(|(slot, belief)| {
                slot.host == host && belief.claim == claim && belief.until > now
            });
            if heard_on == host && still {
                return Err(format!(
                    "host {host} was told by the upstream that {claim} is gone, and its page \
                     still says *held*"
                ));
            }
        }
        Ok(())
    }

    /// The holds on the pages of a host now.
    pub(crate) fn believed(&self, now: TrueTime, host: usize) -> Vec<(SessionId, ClaimId)> {
        let believed = self.believed_until(now, host).into_iter();
        believed.map(|(session, claim, _)| (session, claim)).collect()
    }

    /// The same, each with the instant at which its page stops saying so.
    pub(crate) fn believed_until(
        &self,
        now: TrueTime,
        host: usize,
    ) -> Vec<(SessionId, ClaimId, TrueTime)> {
        let believed = self.beliefs.iter();
        believed
            .filter(|(slot, belief)| slot.host == host && belief.until > now)
            .map(|(slot, belief)| (slot.session, belief.claim, belief.until))
            .collect()
    }
}
