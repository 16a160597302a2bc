//! What a principal has, as far as it passed through this gateway.
//!
//! The store is the truth. This is what its answers said, and counts for the time that a store gives it
//! unless it is renewed. With several gateways each counts what passes through it.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::model::{
    Answer, Beat, BeatAnswer, Claim, ClaimId, Failure, GoneReason, HistoryEntry, Request, Resource,
    Revocation, SessionId, SessionRecord, Subject,
};
use tenure_core::time::Boottime;
use tenure_stores::settings::value::show;
use tenure_wire::{Happened, Kind, Role};

use super::bounds::{Denied, KeyBounds};
use super::fact::{Event, Fact, NOT_FOUND, outcome};
use super::live::{Live, Stage, bytes_of_claim, grace};
use super::own::{Own, Registered, bytes_of_session};
use super::past::Told;
use super::quotas::Allowance;

/// Sessions and claims of a principal, its calls under way, and its pace.
#[derive(Debug, Default)]
pub struct Account {
    own: Mutex<Own>,
    /// Calls under way, and calls with beats.
    calls: [Arc<AtomicUsize>; 2],
}

/// A call that is counted until this is dropped.
#[derive(Debug)]
pub struct CallUnderWay(Arc<AtomicUsize>);

impl Drop for CallUnderWay {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl Account {
    /// Lets one call through; beats go by a pace of their own, so that calls cost no hold.
    ///
    /// # Errors
    ///
    /// With how long to wait, when it comes too early.
    pub fn pace(&self, now: Boottime, beats: bool, per_second: u32) -> Result<(), Duration> {
        let mut own = self.own();
        if beats { own.beats.take(now, per_second) } else { own.calls.take(now, per_second) }
    }

    /// Counts one more call, or one more call with beats.
    ///
    /// # Errors
    ///
    /// When as many are under way as there may be.
    pub fn begin_call(
        &self,
        beats: bool,
        bounds: &KeyBounds,
        allowance: &Allowance,
    ) -> Result<CallUnderWay, Denied> {
        let calls = &self.calls[usize::from(beats)];
        let count = calls.fetch_add(1, Relaxed);
        let call = CallUnderWay(Arc::clone(calls));
        allowance.calls(bounds).judge("call", count).map(|()| call)
    }

    /// Makes room for what a request asks for. It is [`Account::settle`]d with the store's answer.
    ///
    /// # Errors
    ///
    /// When there is no room within the bounds.
    pub fn admit(
        &self,
        now: Boottime,
        request: &Request,
        bounds: &KeyBounds,
        allowance: &Allowance,
    ) -> Result<(), Denied> {
        let mut own = self.own();
        own.kept.join(allowance.kept());
        match request {
            Request::Announce(record) => {
                let session = record.owner.session;
                let bytes = bytes_of_session(record);
                let known = own.sessions.get(&session).map(|known| known.bytes);
                own.judge(now, |own| {
                    if known.is_none() {
                        allowance.sessions(bounds).judge("session", own.sessions.len())?;
                    }
                    let more = bytes.saturating_sub(known.unwrap_or(0));
                    allowance.judge_bytes(bounds, own.kept.own, more)
                })?;
                // The session is there when the store says so; until then it takes room.
                if known.is_none() {
                    own.registered(session, registered(now, record, false));
                }
            }
            Request::Claim(Claim { id, resource, owner, ttl, enqueue, terms })
                if !own.claims.contains_key(id) =>
            {
                let bytes = bytes_of_claim(resource, Some(owner));
                own.judge(now, |own| {
                    allowance.holds(bounds).judge("hold", own.claims.len())?;
                    if *enqueue {
                        allowance.waiters(bounds).judge("waiter", own.waiting)?;
                    }
                    allowance.judge_bytes(bounds, own.kept.own, bytes)
                })?;
                let grace = grace(terms);
                let live = Live {
                    grace,
                    bytes,
                    stage: Stage::Asked { queues: *enqueue },
                    resource: resource.clone(),
                    holder: Some(Arc::clone(&owner.name)),
                    session: Some(owner.session),
                    until: now + *ttl + grace,
                    told: Told::default(),
                };
                own.put(*id, live);
            }
            _ => {}
        }
        Ok(())
    }

    /// Learns from the store's answer what is there now; the facts are new.
    pub fn settle(
        &self,
        now: Boottime,
        request: &Request,
        result: &Result<Answer, Failure>,
    ) -> Vec<Fact> {
        let mut own = self.own();
        let mut facts = Vec::new();
        match (request, result) {
            (Request::Claim(claim), Ok(Answer::Claim(answer))) => {
                own.claimed(now, claim, answer, &mut facts);
            }
            (Request::Claim(claim), Err(failure)) if !failure.is_uncertain() => {
                own.drop_asked(claim.id, &claim.resource);
            }
            (Request::Renew(beats), Ok(Answer::Renew(answers))) => {
                for (beat, answer) in beats.iter().zip(answers) {
                    let master = master_in(beats, answers, &beat.subject);
                    own.renewed(now, beat, answer, master, &mut facts);
                }
            }
            (Request::Release { claim, resource }, Ok(Answer::Released(found))) => {
                let live = own.take_of(*claim, resource);
                let outcome = if *found { "released" } else { NOT_FOUND };
                facts.push(Fact {
                    session: live.as_ref().and_then(|live| live.session),
                    claim: Some(*claim),
                    resource: Some(resource.clone()),
                    token: live.as_ref().and_then(Live::token),
                    holder: live.and_then(|live| live.holder),
                    ..Fact::new(Event::Release, outcome)
                });
            }
            (Request::Announce(record), Ok(Answer::Announced)) => {
                let session = record.owner.session;
                own.registered(session, registered(now, record, true));
                let resource = Some(record.master());
                let fact = Fact::new(Event::Register, "announced");
                let holder = Some(Arc::clone(&record.owner.name));
                facts.push(Fact { session: Some(session), resource, holder, ..fact });
            }
            (Request::Announce(record), Err(failure)) if !failure.is_uncertain() => {
                own.not_announced(record.owner.session);
            }
            (Request::EndSession { session, tenant, project }, Ok(Answer::Ended(found))) => {
                if *found {
                    own.ended(*session);
                } else {
                    own.ended_in(*session, tenant, project);
                }
                let outcome = if *found { "ended" } else { NOT_FOUND };
                facts.push(Fact { session: Some(*session), ..Fact::new(Event::Release, outcome) });
            }
            (Request::Revoke { resource, token, revocation }, Ok(Answer::Revoked(count))) => {
                let said = revocation.as_deref().filter(|_| *count > 0);
                let fact = Fact::new(Event::Revocation, &revoked(*count, said));
                facts.push(Fact { resource: Some(resource.clone()), token: *token, ..fact });
            }
            // One that is not known to have happened takes room for as long as it may last.
            _ => {}
        }
        facts
    }

    /// Learns from the store's answer what has ended; the facts are new.
    pub fn settle_ends(&self, request: &Request, result: &Result<Answer, Failure>) -> Vec<Fact> {
        let mut facts = Vec::new();
        if let (Request::Renew(beats), Ok(Answer::Renew(answers))) = (request, result) {
            let mut own = self.own();
            for (beat, answer) in beats.iter().zip(answers) {
                own.end_answered(beat, answer, &mut facts);
            }
        }
        facts
    }

    /// Claims and sessions that nobody has renewed through this gateway in time.
    pub fn overdue(&self, now: Boottime) -> Vec<Subject> {
        let mut own = self.own();
        own.sweep(now);
        let claims = own
            .overdue
            .claims
            .iter()
            .map(|(claim, live)| Subject::Claim { claim: *claim, resource: live.resource.clone() });
        let sessions = own.overdue.sessions.iter().map(|(session, known)| Subject::Session {
            session: *session,
            master: known.master.clone(),
        });
        claims.chain(sessions).collect()
    }

    /// The session of a claim, and until when it lives by what passed through this gateway.
    pub fn session_of(&self, claim: ClaimId) -> Option<(SessionId, Boottime)> {
        let own = self.own();
        let session = own.claims.get(&claim)?.session?;
        own.sessions.get(&session).map(|known| (session, known.until))
    }

    /// Forgets a claim whose end another gateway tells of.
    pub fn forget(&self, claim: ClaimId) {
        self.own().take(claim);
    }

    /// Learns from the store that a claim has ended; `None` if that is no news.
    pub fn lost(&self, claim: ClaimId, reason: GoneReason) -> Option<Fact> {
        self.own().take(claim).map(|live| live.loss(claim, reason))
    }

    /// True if a claim's id is that of one in another tenant, which a store may not notice: it would be counted once.
    pub fn is_elsewhere(&self, now: Boottime, claim: &Claim) -> bool {
        let own = self.own();
        own.claims.get(&claim.id).is_some_and(|known| {
            known.until > now && known.resource.tenant != claim.resource.tenant
        })
    }

    /// True if a claim of that id holds or waits, as far as is known here.
    pub fn has(&self, claim: ClaimId) -> bool {
        let own = self.own();
        own.claims.get(&claim).is_some_and(|live| !matches!(live.stage, Stage::Asked { .. }))
    }

    /// The claim by which a session is master, as far as is known here.
    pub fn master_of(&self, session: SessionId) -> Option<(ClaimId, Resource)> {
        let own = self.own();
        let claim = *own.masters.get(&session)?;
        own.claims.get(&claim).map(|live| (claim, live.resource.clone()))
    }

    /// Learns that a session is not there any more; `None` if that is no news.
    pub fn session_lost(&self, session: SessionId) -> Option<Fact> {
        let is_news = self.own().ended(session);
        let fact = Fact::new(Event::Loss, outcome(GoneReason::Expired));
        is_news.then_some(Fact { session: Some(session), ..fact })
    }

    /// Those of an agent's entries for the history that agree with a claim which is held or was until lately, each once.
    pub fn vouch(&self, now: Boottime, entries: Vec<HistoryEntry>) -> Vec<HistoryEntry> {
        let mut own = self.own();
        let known = entries.into_iter();
        let vouch =
            |entry: HistoryEntry| own.held(now, entry.claim, &entry.resource)?.vouch(now, entry);
        known.filter_map(vouch).collect()
    }

    /// Takes back that the history was told of these: its store may have failed.
    pub fn untell(&self, now: Boottime, entries: &[(ClaimId, Resource, Happened)]) {
        let mut own = self.own();
        for (claim, resource, what) in entries {
            if let Some(held) = own.held(now, *claim, resource) {
                held.untell(*what);
            }
        }
    }

    /// True if it has nothing, any more.
    pub fn is_empty(&self, now: Boottime) -> bool {
        let own = self.own();
        let until = own.claims.values().map(|live| live.until);
        own.sessions.values().map(|session| session.until).chain(until).all(|until| until <= now)
    }

    fn own(&self) -> MutexGuard<'_, Own> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The session by which a claim is master, if the same call beats that session.
fn master_in(beats: &[Beat], answers: &[BeatAnswer], of: &Subject) -> Option<SessionId> {
    let Subject::Claim { resource, .. } = of else { return None };
    if resource.kind != Kind::Master {
        return None;
    }
    beats.iter().zip(answers).find_map(|(beat, answer)| match (&beat.subject, answer) {
        (Subject::Session { session, master }, BeatAnswer::Session { role: Role::Master })
            if master == resource =>
        {
            Some(*session)
        }
        _ => None,
    })
}

/// The outcome of a revocation: its reason, and how long the losers may not acquire the resource again.
fn revoked(count: u64, said: Option<&Revocation>) -> String {
    let mut outcome = format!("revoked {count}");
    if let Some(Revocation { reason, for_ms, .. }) = said {
        if *for_ms > 0 {
            outcome += &format!(" for {}", show(Duration::from_millis(*for_ms)));
        }
        if let Some(reason) = reason {
            outcome += &format!(": {reason}");
        }
    }
    outcome
}

fn registered(now: Boottime, record: &SessionRecord, is_there: bool) -> Registered {
    let (master, bytes, until) = (record.master(), bytes_of_session(record), now + record.ttl);
    Registered { master, is_there, bytes, until }
}

#[cfg(test)]
#[path = "account_tests.rs"]
mod tests;
