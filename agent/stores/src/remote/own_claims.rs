//! Pure. The claims and sessions that this agent has in the store, as far as its calls tell.
//!
//! They decide which hints concern the agent, and which holds to verify because somebody else may have
//! changed them.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use tenure_core::model::{
    Answer, BeatAnswer, Change, ClaimAnswer, ClaimId, Failure, Report, Request, Resource, Subject,
};
use tenure_core::time::Boottime;
use tenure_wire::Kind;

use super::audiences::Audiences;
use super::backend::ClaimStep;
use super::hints::{Hint, json};
use super::interests::Interests;

mod carried;
mod looks;

use looks::{BEAT_WITHIN, OWN_DOING, VERIFY_SOON};

/// Claims that nobody speaks of any more are forgotten after so many times their ttl.
const FORGET_AFTER_TTLS: u32 = 3;
/// A grant and the change of its key come with no more than so many hints between them.
const TOLD_TOGETHER: usize = 4;
/// How often such claims are looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Not answered yet.
    Claiming,
    Waiting,
    Held,
}

/// The hints of a claim's grant since it was renewed last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hinted {
    No,
    /// The keeper was told, and asks.
    Told,
    /// Once more since, perhaps after the store answered the question: an answer that says "waiting" may be older
    /// than the grant.
    Again,
}

#[derive(Debug)]
struct Claimed {
    resource: Resource,
    stage: Stage,
    hinted: Hinted,
    /// An answer said that it waits, to a call that was sent no earlier.
    waited_at: Option<Boottime>,
    forget_at: Boottime,
}

/// A hold of a resource; more than one only of a semaphore.
#[derive(Debug, Default)]
struct Held {
    claims: BTreeSet<ClaimId>,
    /// A change before this instant is most likely a beat of one of them.
    own_until: Boottime,
    verified_at: Boottime,
    /// When a semaphore's holders were counted last …
    counted_at: Boottime,
    /// … and how many there were, those of others too.
    holders: Option<u64>,
    /// When to look at it: its key was changed, perhaps by somebody else.
    look_at: Option<Boottime>,
    /// Nothing but its own beats is known to have changed it: it is enough to count.
    is_own_doing: bool,
}

/// The holds and waits that this agent has in the store.
#[derive(Debug, Default)]
pub(super) struct OwnClaims {
    claims: HashMap<ClaimId, Claimed>,
    held: HashMap<Resource, Held>,
    /// Claims that are the first to wait for a resource, over all hosts: what becomes of its holder concerns
    /// them.
    next: HashMap<Resource, ClaimId>,
    pub(super) interests: Interests,
    pub(super) audiences: Audiences,
    /// The resources to look at, and when.
    suspected: BTreeSet<(Boottime, Resource)>,
    /// The rest of a semaphore of which there is more to look at than one call takes.
    rest: VecDeque<(ClaimId, Resource)>,
    verifying: bool,
    rest_until: Boottime,
    sweep_at: Option<Boottime>,
    /// Taken after every input.
    steps: Vec<(Resource, ClaimStep)>,
    /// Claims that are to be asked about once more. Taken after every answer.
    hinted_again: Vec<ClaimId>,
}

impl OwnClaims {
    /// A call is about to be sent.
    pub(super) fn handle_request(&mut self, now: Boottime, request: &Request) {
        match request {
            Request::Claim(claim) => self.track(now, claim.id, &claim.resource, claim.ttl),
            Request::Renew(beats) => {
                for beat in beats {
                    match &beat.subject {
                        Subject::Claim { claim, resource } => {
                            self.track(now, *claim, resource, beat.ttl);
                        }
                        Subject::Session { session, master } => {
                            self.audiences.join(now, *session, master, beat.ttl);
                        }
                    }
                }
            }
            Request::Release { claim, .. } => self.forget(*claim),
            // Agents tell each other nothing.
            Request::Announce(record) if record.is_agent() => {}
            Request::Announce(record) => {
                self.audiences.join(now, record.owner.session, &record.master(), record.ttl);
            }
            Request::EndSession { session, .. } => self.audiences.leave(now, *session),
            Request::Inspect(_)
            | Request::Holders(_)
            | Request::Members { .. }
            | Request::Routes { .. }
            | Request::Resources { .. }
            | Request::Record(_)
            | Request::History(_)
            | Request::Revoke { .. } => {}
        }
    }

    /// A call was answered, or not. A claim that was released meanwhile stays forgotten.
    pub(super) fn handle_answer(
        &mut self,
        now: Boottime,
        request: &Request,
        result: &Result<Answer, Failure>,
    ) {
        match (request, result) {
            (Request::Claim(claim), Ok(Answer::Claim(answer))) => match answer {
                ClaimAnswer::Held { .. } => self.found(now, claim.id, Stage::Held),
                ClaimAnswer::Waiting { position, .. } => {
                    self.found(now, claim.id, Stage::Waiting);
                    self.placed(claim.id, &claim.resource, *position);
                }
                ClaimAnswer::Contended { .. } => {
                    self.interests.want(&claim.resource);
                    self.forget(claim.id);
                }
                ClaimAnswer::Gone(_) | ClaimAnswer::Quarantined { .. } => {
                    self.forget(claim.id);
                }
            },
            // It was never sent, or refused, and perhaps never will be sent again.
            (Request::Claim(claim), Err(Failure::Unavailable(_) | Failure::Denied(_))) => {
                self.forget(claim.id);
            }
            (Request::Announce(record), Err(_)) if !record.is_agent() => {
                self.audiences.doubt_of(&record.master(), record.owner.session);
            }
            (Request::Renew(beats), Ok(Answer::Renew(answers))) => {
                for (beat, answer) in beats.iter().zip(answers) {
                    let Subject::Claim { claim, resource } = &beat.subject else { continue };
                    match answer {
                        BeatAnswer::Held { .. } => self.found(now, *claim, Stage::Held),
                        BeatAnswer::Waiting { position, .. } => {
                            self.found(now, *claim, Stage::Waiting);
                            self.placed(*claim, resource, *position);
                        }
                        BeatAnswer::Gone(_)
                        | BeatAnswer::Revoked(_)
                        | BeatAnswer::Session { .. } => {
                            self.forget(*claim);
                        }
                        BeatAnswer::Failed(_) => {}
                    }
                }
            }
            _ => {}
        }
    }

    /// Tells the keeper what of a hint concerns this agent.
    pub(super) fn handle_hint(
        &mut self,
        now: Boottime,
        hint: Hint,
        reports: &mut VecDeque<Report>,
    ) {
        let mut tell = |change| reports.push_back(Report::Change(change));
        match hint {
            Hint::Resource(resource) => {
                self.interests.changed(&resource);
                self.changed(now, &resource);
                let next = self.next.get(&resource).filter(|_| resource.kind != Kind::Semaphore);
                if let Some(claim) = next {
                    let (claim, resource) = (*claim, resource.clone());
                    tell(Change::Granted { claim, resource, grant: None });
                }
                tell(Change::Resource(resource));
            }
            Hint::Queue(_) | Hint::ToPrincipal(_) => {}
            Hint::Granted(claim, grant) => {
                let tells_more = grant.is_some();
                let Some(resource) = self.granted(claim, tells_more) else { return };
                let change = Report::Change(Change::Granted { claim, resource, grant });
                // Its key has often told of the same just before, and less.
                let mut last = reports.iter_mut().rev().take(TOLD_TOGETHER);
                let same = |it: &&mut Report| matches!(it, Report::Change(Change::Granted { claim: it, .. }) if *it == claim);
                match last.find(same) {
                    Some(report) if tells_more => *report = change,
                    Some(_) => {}
                    None => reports.push_back(change),
                }
            }
            Hint::Carried(claim, carried) => {
                let grant = self.kept_until(claim, carried);
                self.handle_hint(now, Hint::Granted(claim, grant), reports);
            }
            Hint::Lost(claim) => {
                if let Some(claimed) = self.claims.get(&claim) {
                    tell(Change::Lost { claim, resource: claimed.resource.clone() });
                }
            }
            Hint::ToProject { tenant, project, payload } => {
                let payload = json(&payload);
                tell(Change::Message { tenant, project, session: None, payload });
            }
            Hint::ToSession { session, payload } => {
                let Some(master) = self.audiences.master_of(session).cloned() else { return };
                if let Some(claim) = self.hold_of(&master) {
                    tell(Change::Lost { claim, resource: master.clone() });
                }
                let (payload, Resource { tenant, name: project, .. }) = (json(&payload), master);
                tell(Change::Message { tenant, project, session: Some(session), payload });
            }
            Hint::Everything => {
                self.feed_started(now, self.interests.is_on());
                reports.push_back(Report::FeedLost);
            }
        }
    }

    /// Changes were not heard of, and are from now on, if they are `watched`. Everything held is looked at;
    /// semaphores alone if that watches nothing, as the keeper asks for the rest.
    pub(super) fn feed_started(&mut self, now: Boottime, watched: bool) {
        self.audiences.started();
        self.interests.restart(watched);
        if !watched {
            return self.suspect_semaphores(now);
        }
        for resource in self.held.keys().cloned().collect::<Vec<_>>() {
            self.look_after(now, &resource, false);
        }
        for (id, claimed) in self.claims.iter().filter(|(_, it)| it.stage == Stage::Waiting) {
            if claimed.resource.kind == Kind::Semaphore {
                self.interests.want_grant(*id, &claimed.resource);
            }
        }
        for resource in self.next.keys().filter(|it| it.kind != Kind::Semaphore) {
            self.interests.want(resource);
        }
    }

    /// Somebody granted a claim, or took what told of it away. What it is of, if it is one of this
    /// agent's that waits, and is not asked about already or is told more of now.
    fn granted(&mut self, claim: ClaimId, tells_more: bool) -> Option<Resource> {
        let claimed = self.claims.get_mut(&claim).filter(|it| it.stage != Stage::Held)?;
        let is_asked = claimed.hinted != Hinted::No;
        claimed.hinted = if is_asked { Hinted::Again } else { Hinted::Told };
        (tells_more || !is_asked).then(|| claimed.resource.clone())
    }

    /// Tells the keeper of claims that wait by an answer which may be older than their last hint.
    pub(super) fn tell_again(&mut self, now: Boottime, reports: &mut VecDeque<Report>) {
        for claim in std::mem::take(&mut self.hinted_again) {
            self.handle_hint(now, Hint::Granted(claim, None), reports);
        }
    }

    /// The hold of an exclusive resource, if it is this agent's.
    pub(super) fn hold_of(&self, resource: &Resource) -> Option<ClaimId> {
        self.held.get(resource)?.claims.first().copied()
    }

    /// The steps since the last time, in their order.
    pub(super) fn take_steps(&mut self) -> Vec<(Resource, ClaimStep)> {
        std::mem::take(&mut self.steps)
    }

    /// Forgets what nobody speaks of any more: the keeper lost it, and the upstream lets go by itself.
    pub(super) fn sweep(&mut self, now: Boottime) {
        if self.sweep_at.is_none_or(|at| now < at) {
            return;
        }
        let silent = self.claims.iter().filter(|(_, claimed)| claimed.forget_at <= now);
        let silent: Vec<_> = silent.map(|(id, _)| *id).collect();
        for id in silent {
            self.forget(id);
        }
        self.sweep_at = (!self.claims.is_empty()).then(|| now + SWEEP_EVERY);
    }

    fn track(&mut self, now: Boottime, id: ClaimId, resource: &Resource, ttl: Duration) {
        self.sweep_at.get_or_insert(now + SWEEP_EVERY);
        let forget_at = now + ttl * FORGET_AFTER_TTLS;
        if let Some(claimed) = self.claims.get_mut(&id) {
            claimed.forget_at = forget_at;
            if let Some(held) = self.held.get_mut(resource) {
                held.own_until = now + BEAT_WITHIN;
            }
            return;
        }
        self.steps.push((resource.clone(), ClaimStep::Tracked));
        let resource = resource.clone();
        self.claims.insert(
            id,
            Claimed {
                resource,
                stage: Stage::Claiming,
                hinted: Hinted::No,
                waited_at: None,
                forget_at,
            },
        );
    }

    fn found(&mut self, now: Boottime, id: ClaimId, stage: Stage) {
        let Some(claimed) = self.claims.get_mut(&id) else { return };
        let hinted = std::mem::replace(&mut claimed.hinted, Hinted::No);
        let resource = claimed.resource.clone();
        let before = std::mem::replace(&mut claimed.stage, stage);
        let is_permit = resource.kind == Kind::Semaphore;
        if is_permit && stage == Stage::Waiting && (before != stage || hinted != Hinted::No) {
            self.interests.want_grant(id, &resource);
        }
        if stage == Stage::Waiting && hinted == Hinted::Again {
            self.hinted_again.push(id);
        }
        if stage == Stage::Held {
            let held = self.held.entry(resource.clone()).or_default();
            held.own_until = now + OWN_DOING;
            if resource.kind != Kind::Semaphore {
                // Whatever the last one was, it is no more.
                held.claims.clear();
            }
            held.claims.insert(id);
        }
        if before != stage {
            self.leave(id, &resource, before);
            if stage == Stage::Held && self.interests.is_on() {
                self.look_after(now + VERIFY_SOON, &resource, false);
            }
        }
    }

    /// A claim that waits has come to that place.
    pub(super) fn placed(&mut self, id: ClaimId, resource: &Resource, position: u64) {
        let waits = self.claims.get(&id).is_some_and(|it| it.stage == Stage::Waiting);
        if position > 1 || !waits {
            return;
        }
        if self.next.insert(resource.clone(), id).is_none() {
            self.steps.push((resource.clone(), ClaimStep::IsNext));
        }
        // A semaphore's holders are many, and change without a grant.
        if resource.kind != Kind::Semaphore {
            self.interests.want(resource);
        }
    }

    fn forget(&mut self, id: ClaimId) {
        let Some(claimed) = self.claims.remove(&id) else { return };
        self.leave(id, &claimed.resource, claimed.stage);
        self.steps.push((claimed.resource, ClaimStep::Forgotten));
    }

    /// A claim is not at that stage any more.
    fn leave(&mut self, id: ClaimId, resource: &Resource, stage: Stage) {
        match stage {
            Stage::Claiming => {}
            Stage::Waiting => {
                if self.next.get(resource) == Some(&id) {
                    self.next.remove(resource);
                    self.steps.push((resource.clone(), ClaimStep::IsNextNoMore));
                }
            }
            Stage::Held => {
                let Some(held) = self.held.get_mut(resource) else { return };
                held.claims.remove(&id);
                if held.claims.is_empty() {
                    let look_at = held.look_at;
                    self.held.remove(resource);
                    if let Some(look_at) = look_at {
                        self.suspected.remove(&(look_at, resource.clone()));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
