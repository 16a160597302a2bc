//! The sessions and claims of a principal, by the answers of a store.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::model::{
    Beat, BeatAnswer, Claim, ClaimAnswer, ClaimId, GoneReason, Owner, Resource, SessionId,
    SessionRecord, Subject, Terms,
};
use tenure_core::time::Boottime;
use tenure_wire::Kind;

use super::bounds::Denied;
use super::fact::{Event, Fact, outcome};
use super::live::{Live, RECORD_BYTES, Stage, bytes_of_claim, grace};
use super::pace::Pace;
use super::past::{Held, Past, Told};
use super::quotas::Kept;

/// How often what nobody renewed is looked for at most, since all is looked through.
pub(super) const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// Claims, and sessions, that ran out and whose end the store has not told yet. Beyond them the beats of their holders tell.
const OVERDUE_MAX: usize = 4096;

/// What ran out as far as this gateway knows. It may have been renewed through another one.
#[derive(Debug, Default)]
pub(super) struct Overdue {
    pub(super) claims: HashMap<ClaimId, Live>,
    pub(super) sessions: HashMap<SessionId, Registered>,
}

/// About 250 bytes for each session and claim that its principal has.
#[derive(Debug, Default)]
pub(super) struct Own {
    pub(super) sessions: HashMap<SessionId, Registered>,
    pub(super) claims: HashMap<ClaimId, Live>,
    /// Those of the claims that wait, or may.
    pub(super) waiting: usize,
    pub(super) kept: Kept,
    /// The claims of masters, by their sessions.
    pub(super) masters: HashMap<SessionId, ClaimId>,
    pub(super) past: Past,
    pub(super) overdue: Overdue,
    pub(super) sweep_at: Boottime,
    pub(super) calls: Pace,
    pub(super) beats: Pace,
}

/// A session.
#[derive(Debug)]
pub(super) struct Registered {
    pub(super) master: Resource,
    /// False until the store has said so.
    pub(super) is_there: bool,
    /// In the store.
    pub(super) bytes: usize,
    /// When a store forgets it, unless it is renewed.
    pub(super) until: Boottime,
}

impl Own {
    /// A claim of that resource that is held, or was until lately.
    pub(super) fn held(&mut self, now: Boottime, id: ClaimId, of: &Resource) -> Option<Held<'_>> {
        match self.claims.get_mut(&id) {
            Some(Live { stage: Stage::Held(token), resource, told, .. }) => {
                (resource == of).then_some(Held { token: *token, told, by: None })
            }
            _ => self.past.get(now, id, of),
        }
    }

    /// Judges, after a look for what nobody renewed.
    pub(super) fn judge(
        &mut self,
        now: Boottime,
        has_room: impl Fn(&Own) -> Result<(), Denied>,
    ) -> Result<(), Denied> {
        self.sweep(now);
        has_room(self)
    }

    /// Sets apart what nobody renewed.
    pub(super) fn sweep(&mut self, now: Boottime) {
        if now < self.sweep_at {
            return;
        }
        self.sweep_at = now + SWEEP_EVERY;
        let Own { sessions, kept, overdue, .. } = self;
        for (id, session) in sessions.extract_if(|_, session| session.until <= now) {
            kept.remove(session.bytes);
            if session.is_there && overdue.sessions.len() < OVERDUE_MAX {
                overdue.sessions.insert(id, session);
            }
        }
        self.past.sweep(now);
        let over = self.claims.iter().filter(|(_, live)| live.until <= now);
        for id in Vec::from_iter(over.map(|(id, _)| *id)) {
            let Some(live) = self.take(id) else { continue };
            let is_there = !matches!(live.stage, Stage::Asked { .. });
            if is_there && self.overdue.claims.len() < OVERDUE_MAX {
                self.overdue.claims.insert(id, live);
            }
        }
        let claims = &self.claims;
        self.masters.retain(|_, claim| claims.contains_key(claim));
    }

    /// The end of a beat that asks how something has ended. What lives on was renewed through another gateway, which will
    /// tell of its end.
    pub(super) fn end_answered(&mut self, beat: &Beat, answer: &BeatAnswer, facts: &mut Vec<Fact>) {
        match (&beat.subject, answer) {
            (_, BeatAnswer::Failed(_)) => {}
            (Subject::Session { session, .. }, BeatAnswer::Gone(_)) => {
                if self.overdue.sessions.remove(session).is_some() {
                    let fact = Fact::new(Event::Loss, outcome(GoneReason::Expired));
                    facts.push(Fact { session: Some(*session), ..fact });
                }
            }
            (Subject::Session { session, .. }, _) => {
                self.overdue.sessions.remove(session);
            }
            (Subject::Claim { claim, resource }, BeatAnswer::Gone(_) | BeatAnswer::Revoked(_)) => {
                self.claim_gone(*claim, resource, answer, facts);
            }
            (Subject::Claim { claim, .. }, _) => {
                self.overdue.claims.remove(claim);
            }
        }
    }

    fn claim_gone(
        &mut self,
        claim: ClaimId,
        resource: &Resource,
        answer: &BeatAnswer,
        facts: &mut Vec<Fact>,
    ) {
        let reason = answer.gone().unwrap_or(GoneReason::Unknown);
        facts.extend(self.gone(claim, resource, reason));
        if let BeatAnswer::Revoked(revocation) = answer {
            self.past.revoked(claim, &revocation.by);
        }
    }

    /// A session is in one project: announced in another one, it moves. A shorter ttl takes no time away in every store.
    pub(super) fn registered(&mut self, session: SessionId, mut new: Registered) {
        self.overdue.sessions.remove(&session);
        if let Some(was) = self.sessions.remove(&session) {
            self.kept.remove(was.bytes);
            new.until = new.until.max(was.until);
        }
        self.kept.add(new.bytes);
        self.sessions.insert(session, new);
    }

    /// True if there was such a session.
    pub(super) fn ended(&mut self, session: SessionId) -> bool {
        let was_overdue = self.overdue.sessions.remove(&session).is_some();
        let ended = self.sessions.remove(&session);
        ended.inspect(|ended| self.kept.remove(ended.bytes)).is_some() || was_overdue
    }

    /// A store has refused an announcement. A session that was there before is there still.
    pub(super) fn not_announced(&mut self, session: SessionId) {
        if self.sessions.get(&session).is_some_and(|known| !known.is_there) {
            self.ended(session);
        }
    }

    /// Takes the answer of a store that a project has no such session. True if the session was in that project: an answer
    /// about another project says nothing of it.
    pub(super) fn ended_in(&mut self, session: SessionId, tenant: &str, project: &str) -> bool {
        let known = self.sessions.get(&session).or_else(|| self.overdue.sessions.get(&session));
        let is_there = known
            .is_some_and(|known| (&*known.master.tenant, &*known.master.name) == (tenant, project));
        is_there && self.ended(session)
    }

    pub(super) fn claimed(
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
                return self.drop_asked(*id, resource);
            }
            ClaimAnswer::Gone(reason) => return facts.extend(self.gone(*id, resource, *reason)),
        };
        if matches!(stage, Stage::Held(_))
            && let Terms::Lease { take_over: Some(made_way), .. } = terms
        {
            // A shared store tells only those who ask for it, and its principal may be gone.
            facts.extend(self.gone(made_way.from, resource, GoneReason::Conflict));
        }
        let bytes = bytes_of_claim(resource, Some(owner));
        let (resource, session) = (resource.clone(), Some(owner.session));
        let holder = Some(Arc::clone(&owner.name));
        let grace = grace(terms);
        let (until, told) = (now + *ttl + grace, Told::default());
        let live = Live { stage, bytes, resource, holder, session, grace, until, told };
        self.stands(now, *id, live, facts);
    }

    /// Takes the answer to a beat; of a master's, `master` is its session, where the same call tells.
    pub(super) fn renewed(
        &mut self,
        now: Boottime,
        beat: &Beat,
        answer: &BeatAnswer,
        master: Option<SessionId>,
        facts: &mut Vec<Fact>,
    ) {
        let Beat { subject, ttl } = beat;
        let until = now + *ttl;
        match (subject, answer) {
            (Subject::Session { session, master }, BeatAnswer::Session { .. }) => {
                match self.sessions.get_mut(session) {
                    Some(known) => {
                        known.is_there = true;
                        known.until = known.until.max(until);
                    }
                    None => {
                        let (master, bytes, is_there) = (master.clone(), RECORD_BYTES, true);
                        self.registered(*session, Registered { master, is_there, bytes, until });
                    }
                }
            }
            (Subject::Session { session, master }, BeatAnswer::Gone(reason)) => {
                if self.ended_in(*session, &master.tenant, &master.name) {
                    let fact = Fact::new(Event::Loss, outcome(*reason));
                    facts.push(Fact { session: Some(*session), ..fact });
                }
            }
            (Subject::Claim { claim, resource }, BeatAnswer::Gone(_) | BeatAnswer::Revoked(_)) => {
                self.claim_gone(*claim, resource, answer, facts);
            }
            (_, BeatAnswer::Failed(_)) => {}
            (Subject::Claim { claim, resource }, answer) => {
                let stage = match answer {
                    BeatAnswer::Held { token, .. } => Stage::Held(*token),
                    _ => Stage::Waiting,
                };
                if let Some(live) = self.overdue.claims.remove(claim) {
                    self.put(*claim, live);
                }
                if let Some(live) = self.claims.get_mut(claim)
                    && live.stage == stage
                    && live.resource == *resource
                {
                    live.until = live.until.max(until + live.grace);
                    return;
                }
                let known = self.claims.get(claim);
                let session = known.and_then(|live| live.session).or(master);
                let holder = known.and_then(|live| live.holder.clone());
                let grace = known.map_or(Duration::ZERO, |live| live.grace);
                let bytes = known.map_or_else(|| bytes_of_claim(resource, None), |live| live.bytes);
                let (resource, until) = (resource.clone(), until + grace);
                let told = Told::default();
                let live = Live { stage, bytes, resource, holder, session, grace, until, told };
                self.stands(now, *claim, live, facts);
            }
            (Subject::Session { .. }, _) => {}
        }
    }

    /// Keeps how a claim stands. A grant is told once.
    pub(super) fn stands(
        &mut self,
        now: Boottime,
        id: ClaimId,
        mut live: Live,
        facts: &mut Vec<Fact>,
    ) {
        let was = self.claims.get(&id).filter(|was| was.resource == live.resource);
        live.told = was.map(|was| was.told).unwrap_or_default();
        live.until = live.until.max(was.map_or(live.until, |was| was.until));
        let was = was.map(|was| was.stage);
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

    /// Takes the answer of a store that a claim of a resource has ended. An answer about another resource says nothing of
    /// the claim.
    pub(super) fn gone(
        &mut self,
        id: ClaimId,
        resource: &Resource,
        reason: GoneReason,
    ) -> Option<Fact> {
        let live = self.take_of(id, resource)?;
        // A claim that was never granted and never waited was lost by nobody.
        (!matches!(live.stage, Stage::Asked { .. })).then(|| live.loss(id, reason))
    }

    pub(super) fn drop_asked(&mut self, id: ClaimId, resource: &Resource) {
        if self.claims.get(&id).is_some_and(|live| matches!(live.stage, Stage::Asked { .. })) {
            self.take_of(id, resource);
        }
    }

    pub(super) fn put(&mut self, id: ClaimId, live: Live) {
        self.waiting += usize::from(live.may_wait());
        self.kept.add(live.bytes);
        if let (Kind::Master, Some(session)) = (live.resource.kind, live.session) {
            self.masters.insert(session, id);
        }
        if let Some(was) = self.claims.insert(id, live) {
            self.waiting -= usize::from(was.may_wait());
            self.kept.remove(was.bytes);
        }
    }

    /// A claim, if it is of that resource.
    pub(super) fn take_of(&mut self, id: ClaimId, resource: &Resource) -> Option<Live> {
        let known = self.claims.get(&id).or_else(|| self.overdue.claims.get(&id));
        let is_of_it = known.is_some_and(|live| live.resource == *resource);
        if is_of_it { self.take(id) } else { None }
    }

    pub(super) fn take(&mut self, id: ClaimId) -> Option<Live> {
        let Some(live) = self.claims.remove(&id) else { return self.overdue.claims.remove(&id) };
        self.waiting -= usize::from(live.may_wait());
        self.kept.remove(live.bytes);
        if let Some(session) = live.session
            && self.masters.get(&session) == Some(&id)
        {
            self.masters.remove(&session);
        }
        if let Stage::Held(token) = live.stage {
            self.past.add(id, &live.resource, token, live.until, live.told);
        }
        Some(live)
    }
}

pub(super) fn bytes_of_session(record: &SessionRecord) -> usize {
    let SessionRecord { owner: Owner { host, name, .. }, tenant, project, surface, .. } = record;
    RECORD_BYTES + host.len() + name.len() + tenant.len() + project.len() + surface.len()
}
