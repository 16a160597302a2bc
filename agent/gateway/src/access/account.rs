//! What a principal has, as far as it passed through this gateway.
//!
//! The store is the truth. This is what its answers said, and counts for the time that a store gives it
//! unless it is renewed. With several gateways each counts what passes through it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::model::{
    Answer, Beat, BeatAnswer, Claim, ClaimAnswer, ClaimId, Failure, GoneReason, HistoryEntry,
    Request, Resource, SessionId, SessionRecord, Subject, Terms,
};
use tenure_core::time::Boottime;
use tenure_wire::{Happened, Kind};

use super::bounds::{Denied, KeyBounds};
use super::fact::{Event, Fact, NOT_FOUND, outcome};
use super::live::{Live, Stage, grace};
use super::pace::Pace;
use super::past::{Held, Past, Told};

/// How often what nobody renewed is looked for at most, since all is looked through.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// Sessions and claims of a principal, and its pace.
#[derive(Debug, Default)]
pub struct Account(Mutex<Own>);

/// About 250 bytes for each session and claim that its principal has.
#[derive(Debug, Default)]
struct Own {
    sessions: HashMap<SessionId, Boottime>,
    claims: HashMap<ClaimId, Live>,
    /// Those of the claims that wait, or may.
    waiting: usize,
    /// The claims of masters, by their sessions.
    masters: HashMap<SessionId, ClaimId>,
    past: Past,
    sweep_at: Boottime,
    calls: Pace,
    beats: Pace,
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
    ) -> Result<(), Denied> {
        let mut own = self.own();
        match request {
            Request::Announce(SessionRecord { owner, ttl, .. })
                if !own.sessions.contains_key(&owner.session) =>
            {
                own.judge(now, |own| own.has_room_for_session(bounds))?;
                // The session is there when the store says so; until then it takes room.
                own.sessions.insert(owner.session, now + *ttl);
            }
            Request::Claim(Claim { id, resource, owner, ttl, enqueue, terms })
                if !own.claims.contains_key(id) =>
            {
                own.judge(now, |own| own.has_room_for_claim(bounds, *enqueue))?;
                let grace = grace(terms);
                let live = Live {
                    grace,
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
                own.drop_asked(claim.id);
            }
            (Request::Renew(beats), Ok(Answer::Renew(answers))) => {
                for (beat, answer) in beats.iter().zip(answers) {
                    own.renewed(now, beat, answer, &mut facts);
                }
            }
            (Request::Release { claim, resource }, Ok(Answer::Released(found))) => {
                let live = own.take(*claim);
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
                own.sessions.insert(session, now + record.ttl);
                let resource = Some(record.master());
                let fact = Fact::new(Event::Register, "announced");
                let holder = Some(Arc::clone(&record.owner.name));
                facts.push(Fact { session: Some(session), resource, holder, ..fact });
            }
            (Request::Announce(record), Err(failure)) if !failure.is_uncertain() => {
                own.sessions.remove(&record.owner.session);
            }
            (Request::EndSession { session, .. }, Ok(Answer::Ended(found))) => {
                own.sessions.remove(session);
                let outcome = if *found { "ended" } else { NOT_FOUND };
                facts.push(Fact { session: Some(*session), ..Fact::new(Event::Release, outcome) });
            }
            (Request::Revoke { resource, token, .. }, Ok(Answer::Revoked(count))) => {
                let fact = Fact::new(Event::Revocation, &format!("revoked {count}"));
                facts.push(Fact { resource: Some(resource.clone()), token: *token, ..fact });
            }
            // One that is not known to have happened takes room for as long as it may last.
            _ => {}
        }
        facts
    }

    /// Learns from the store that a claim has ended; `None` if that is no news.
    pub fn lost(&self, claim: ClaimId, reason: GoneReason) -> Option<Fact> {
        self.own().take(claim).map(|live| live.loss(claim, reason))
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
        self.own().sessions.remove(&session)?;
        let fact = Fact::new(Event::Loss, outcome(GoneReason::Expired));
        Some(Fact { session: Some(session), ..fact })
    }

    /// Those of an agent's entries for the history that agree with a claim which is held or was until lately, each once.
    pub fn vouch(&self, now: Boottime, entries: Vec<HistoryEntry>) -> Vec<HistoryEntry> {
        let mut own = self.own();
        let known = entries.into_iter();
        known.filter_map(|entry| own.held(now, entry.claim)?.vouch(now, entry)).collect()
    }

    /// Takes back that the history was told of these: its store may have failed.
    pub fn untell(&self, now: Boottime, entries: &[(ClaimId, Happened)]) {
        let mut own = self.own();
        for (claim, what) in entries {
            if let Some(held) = own.held(now, *claim) {
                held.untell(*what);
            }
        }
    }

    /// True if it has nothing, any more.
    pub fn is_empty(&self, now: Boottime) -> bool {
        let own = self.own();
        let until = own.claims.values().map(|live| live.until);
        own.sessions.values().copied().chain(until).all(|until| until <= now)
    }

    fn own(&self) -> MutexGuard<'_, Own> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Own {
    /// A claim that is held, or was until lately.
    fn held(&mut self, now: Boottime, id: ClaimId) -> Option<Held<'_>> {
        match self.claims.get_mut(&id) {
            Some(Live { stage: Stage::Held(token), resource, told, .. }) => {
                Some(Held { resource, token: *token, told, by: None })
            }
            _ => self.past.get(now, id),
        }
    }

    /// Judges, after a look for what nobody renewed.
    fn judge(
        &mut self,
        now: Boottime,
        has_room: impl Fn(&Own) -> Result<(), Denied>,
    ) -> Result<(), Denied> {
        if now >= self.sweep_at {
            self.sweep_at = now + SWEEP_EVERY;
            self.sessions.retain(|_, until| *until > now);
            self.past.sweep(now);
            let over = self.claims.iter().filter(|(_, live)| live.until <= now);
            for id in Vec::from_iter(over.map(|(id, _)| *id)) {
                self.take(id);
            }
            let claims = &self.claims;
            self.masters.retain(|_, claim| claims.contains_key(claim));
        }
        has_room(self)
    }

    fn has_room_for_session(&self, bounds: &KeyBounds) -> Result<(), Denied> {
        let max = bounds.scope.sessions_max;
        KeyBounds::judge_count("sessions_max", "session", self.sessions.len(), max)
    }

    fn has_room_for_claim(&self, bounds: &KeyBounds, enqueue: bool) -> Result<(), Denied> {
        let max = bounds.scope.holds_max;
        KeyBounds::judge_count("holds_max", "hold", self.claims.len(), max)?;
        match enqueue {
            true => {
                let max = bounds.waiters_max;
                KeyBounds::judge_count("waiters_max", "waiter", self.waiting, max)
            }
            false => Ok(()),
        }
    }

    fn claimed(
        &mut self,
        now: Boottime,
        claim: &Claim,
        answer: &ClaimAnswer,
        facts: &mut Vec<Fact>,
    ) {
        let Claim { id, resource, owner, ttl, terms, .. } = claim;
        let stage = match answer {
            ClaimAnswer::Held { token, .. } => Stage::Held(*token),
            ClaimAnswer::Waiting { .. } => Stage::Waiting,
            ClaimAnswer::Contended { .. } | ClaimAnswer::Quarantined { .. } => {
                return self.drop_asked(*id);
            }
            ClaimAnswer::Gone(reason) => return facts.extend(self.gone(*id, *reason)),
        };
        if matches!(stage, Stage::Held(_))
            && let Terms::Lease { take_over: Some(made_way), .. } = terms
        {
            // A shared store tells only those who ask for it, and its principal may be gone.
            facts.extend(self.gone(made_way.from, GoneReason::Conflict));
        }
        let (resource, session) = (resource.clone(), Some(owner.session));
        let holder = Some(Arc::clone(&owner.name));
        let grace = grace(terms);
        let (until, told) = (now + *ttl + grace, Told::default());
        let live = Live { stage, resource, holder, session, grace, until, told };
        self.stands(now, *id, live, facts);
    }

    fn renewed(&mut self, now: Boottime, beat: &Beat, answer: &BeatAnswer, facts: &mut Vec<Fact>) {
        let Beat { subject, ttl } = beat;
        let until = now + *ttl;
        match (subject, answer) {
            (Subject::Session { session, .. }, BeatAnswer::Session { .. }) => {
                self.sessions.insert(*session, until);
            }
            (Subject::Session { session, .. }, BeatAnswer::Gone(reason)) => {
                if self.sessions.remove(session).is_some() {
                    let fact = Fact::new(Event::Loss, outcome(*reason));
                    facts.push(Fact { session: Some(*session), ..fact });
                }
            }
            (Subject::Claim { claim, .. }, BeatAnswer::Gone(_) | BeatAnswer::Revoked(_)) => {
                let reason = answer.gone().unwrap_or(GoneReason::Unknown);
                facts.extend(self.gone(*claim, reason));
                if let BeatAnswer::Revoked(revocation) = answer {
                    self.past.revoked(*claim, &revocation.by);
                }
            }
            (_, BeatAnswer::Failed(_)) => {}
            (Subject::Claim { claim, resource }, answer) => {
                let stage = match answer {
                    BeatAnswer::Held { token, .. } => Stage::Held(*token),
                    _ => Stage::Waiting,
                };
                if let Some(live) = self.claims.get_mut(claim)
                    && live.stage == stage
                {
                    live.until = until + live.grace;
                    return;
                }
                let known = self.claims.get(claim);
                let session = known.and_then(|live| live.session);
                let holder = known.and_then(|live| live.holder.clone());
                let grace = known.map_or(Duration::ZERO, |live| live.grace);
                let (resource, until) = (resource.clone(), until + grace);
                let told = Told::default();
                let live = Live { stage, resource, holder, session, grace, until, told };
                self.stands(now, *claim, live, facts);
            }
            (Subject::Session { .. }, _) => {}
        }
    }

    /// Keeps how a claim stands. A grant is told once.
    fn stands(&mut self, now: Boottime, id: ClaimId, mut live: Live, facts: &mut Vec<Fact>) {
        let was = self.claims.get(&id).map(|was| was.stage);
        live.told = self.claims.get(&id).map(|was| was.told).unwrap_or_default();
        if let Stage::Held(token) = live.stage
            && was != Some(live.stage)
        {
            live.told.granted_at = was.map(|_| now);
            // Granted before this gateway began, or through another.
            let outcome = if was.is_none() { "found_held" } else { "granted" };
            facts.push(Fact {
                session: live.session,
                claim: Some(id),
                resource: Some(live.resource.clone()),
                token: Some(token),
                holder: live.holder.clone(),
                ..Fact::new(Event::Grant, outcome)
            });
        }
        if live.stage == Stage::Waiting && matches!(was, Some(Stage::Asked { .. })) {
            facts.push(Fact {
                session: live.session,
                claim: Some(id),
                resource: Some(live.resource.clone()),
                holder: live.holder.clone(),
                ..Fact::new(Event::Wait, "waiting")
            });
        }
        self.put(id, live);
    }

    fn gone(&mut self, id: ClaimId, reason: GoneReason) -> Option<Fact> {
        let live = self.take(id)?;
        // A claim that was never granted and never waited was lost by nobody.
        (!matches!(live.stage, Stage::Asked { .. })).then(|| live.loss(id, reason))
    }

    fn drop_asked(&mut self, id: ClaimId) {
        if self.claims.get(&id).is_some_and(|live| matches!(live.stage, Stage::Asked { .. })) {
            self.take(id);
        }
    }

    fn put(&mut self, id: ClaimId, live: Live) {
        self.waiting += usize::from(live.may_wait());
        if let (Kind::Master, Some(session)) = (live.resource.kind, live.session) {
            self.masters.insert(session, id);
        }
        if let Some(was) = self.claims.insert(id, live) {
            self.waiting -= usize::from(was.may_wait());
        }
    }

    fn take(&mut self, id: ClaimId) -> Option<Live> {
        let live = self.claims.remove(&id)?;
        self.waiting -= usize::from(live.may_wait());
        if let Some(session) = live.session
            && self.masters.get(&session) == Some(&id)
        {
            self.masters.remove(&session);
        }
        if let Stage::Held(token) = live.stage {
            self.past.add(id, live.resource.clone(), token, live.until, live.told);
        }
        Some(live)
    }
}

#[cfg(test)]
#[path = "account_tests.rs"]
mod tests;
