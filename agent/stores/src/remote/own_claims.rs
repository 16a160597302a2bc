//! Pure. The claims and sessions that this agent has in the store, as far as its calls tell.
//!
//! They decide which hints concern the agent, and which holds to verify because somebody else may have
//! changed them.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tenure_core::model::{
    Answer, BeatAnswer, Change, ClaimAnswer, ClaimId, Failure, Report, Request, Resource,
    SessionId, Subject,
};
use tenure_core::time::Boottime;
use tenure_wire::Kind;

use super::hints::Hint;
use super::interests::Interests;

/// Claims in one call that verifies, so that it takes the store no longer than a millisecond.
const VERIFY_PER_CALL_MAX: usize = 256;
/// The time that the store takes for one of them, roughly …
const VERIFY_COST: Duration = Duration::from_micros(3);
/// … and how many times as long it is left alone after a call.
const REST: u32 = 10;
/// A change of a held key so soon after a beat of it is most likely that beat …
const OWN_DOING: Duration = Duration::from_millis(20);
/// … and looked at this much later, together with others. So is a new hold: one that is released before
/// costs no look.
const VERIFY_SOON: Duration = Duration::from_millis(50);
/// A semaphore, which others renew their permits of, is looked at so long after the last look.
const VERIFY_LATER: Duration = Duration::from_secs(2);
/// Claims that nobody speaks of any more are forgotten after so many times their ttl.
const FORGET_AFTER_TTLS: u32 = 3;
/// How often such claims are looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Not answered yet.
    Claiming,
    Waiting,
    Held,
}

#[derive(Debug)]
struct Claimed {
    resource: Resource,
    stage: Stage,
    /// It was hinted that it is granted, and it has not been renewed since.
    hinted: bool,
    forget_at: Boottime,
}

/// A hold of a resource; more than one only of a semaphore.
#[derive(Debug, Default)]
struct Held {
    claims: BTreeSet<ClaimId>,
    /// When one of them was beaten last, or that was answered.
    beaten_at: Boottime,
    verified_at: Boottime,
    /// When to look at it: its key was changed, perhaps by somebody else.
    look_at: Option<Boottime>,
}

/// A step in the life of a claim of this agent, for work that depends on who uses a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimStep {
    /// The agent has a claim from now on.
    Tracked,
    /// The claim waits in the resource's queue.
    Waits,
    /// It waits no longer.
    WaitsNoMore,
    /// The agent has the claim no longer.
    Forgotten,
}

/// The holds and waits that this agent has in the store.
#[derive(Debug, Default)]
pub(super) struct OwnClaims {
    claims: HashMap<ClaimId, Claimed>,
    held: HashMap<Resource, Held>,
    /// Announced sessions with their tenant and project.
    sessions: HashMap<SessionId, (Arc<str>, Arc<str>)>,
    /// Claims that are the first to wait for an exclusive resource, over all hosts: what becomes of its holder
    /// concerns them.
    next: HashMap<Resource, ClaimId>,
    pub(super) interests: Interests,
    /// The resources to look at, and when.
    suspected: BTreeSet<(Boottime, Resource)>,
    /// The rest of a semaphore of which there is more to look at than one call takes.
    rest: VecDeque<(ClaimId, Resource)>,
    verifying: bool,
    rest_until: Boottime,
    sweep_at: Option<Boottime>,
    /// Taken after every input.
    steps: Vec<(Resource, ClaimStep)>,
}

impl OwnClaims {
    /// A call is about to be sent.
    pub(super) fn handle_request(&mut self, now: Boottime, request: &Request) {
        match request {
            Request::Claim(claim) => self.track(now, claim.id, &claim.resource, claim.ttl),
            Request::Renew(beats) => {
                for beat in beats {
                    if let Subject::Claim { claim, resource } = &beat.subject {
                        self.track(now, *claim, resource, beat.ttl);
                    }
                }
            }
            Request::Release { claim, .. } => self.forget(*claim),
            Request::Announce(record) => {
                let place = (Arc::clone(&record.tenant), Arc::clone(&record.project));
                self.sessions.insert(record.owner.session, place);
            }
            Request::EndSession { session, .. } => {
                self.sessions.remove(session);
            }
            Request::Inspect(_)
            | Request::Holders(_)
            | Request::Routes { .. }
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
            // It was never sent, and perhaps never will be.
            (Request::Claim(claim), Err(Failure::Unavailable(_))) => self.forget(claim.id),
            (Request::Renew(beats), Ok(Answer::Renew(answers))) => {
                for (beat, answer) in beats.iter().zip(answers) {
                    let Subject::Claim { claim, resource } = &beat.subject else { continue };
                    match answer {
                        BeatAnswer::Held { .. } => self.found(now, *claim, Stage::Held),
                        BeatAnswer::Waiting { position, .. } => {
                            self.found(now, *claim, Stage::Waiting);
                            self.placed(*claim, resource, *position);
                        }
                        BeatAnswer::Gone(_) | BeatAnswer::Session { .. } => {
                            self.forget(*claim);
                        }
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
                if let Some(claim) = self.next.get(&resource) {
                    let (claim, resource) = (*claim, resource.clone());
                    tell(Change::Granted { claim, resource, grant: None });
                }
                tell(Change::Resource(resource));
            }
            Hint::Queue(_) => {}
            Hint::Granted(claim) => {
                if let Some(resource) = self.granted(claim) {
                    tell(Change::Granted { claim, resource, grant: None });
                }
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
                let Some((tenant, project)) = self.sessions.get(&session).cloned() else { return };
                let (kind, name) = (Kind::Master, Arc::clone(&project));
                let master = Resource { tenant: Arc::clone(&tenant), kind, name };
                if let Some(claim) = self.hold_of(&master) {
                    tell(Change::Lost { claim, resource: master });
                }
                let payload = json(&payload);
                tell(Change::Message { tenant, project, session: Some(session), payload });
            }
            Hint::Everything => {
                self.feed_started(now, self.interests.is_on());
                reports.push_back(Report::FeedLost);
            }
        }
    }

    /// Somebody, perhaps this agent, changed the key that says who holds a resource.
    fn changed(&mut self, now: Boottime, resource: &Resource) {
        let Some(held) = self.held.get_mut(resource) else { return };
        let after = match now.since(held.beaten_at) < OWN_DOING {
            true => VERIFY_SOON,
            false => Duration::ZERO,
        };
        self.look_after(now + after, resource);
    }

    fn look_after(&mut self, instant: Boottime, resource: &Resource) {
        let Some(held) = self.held.get_mut(resource) else { return };
        let look_at = match resource.kind {
            Kind::Semaphore => instant.max(held.verified_at + VERIFY_LATER),
            _ => instant,
        };
        if held.look_at.is_some_and(|at| at <= look_at) {
            return;
        }
        if let Some(later) = held.look_at.replace(look_at) {
            self.suspected.remove(&(later, resource.clone()));
        }
        self.suspected.insert((look_at, resource.clone()));
    }

    /// Changes were not heard of, and are from now on, if they are `watched`. Everything held is looked at;
    /// semaphores alone if that watches nothing, as the keeper asks for the rest.
    pub(super) fn feed_started(&mut self, now: Boottime, watched: bool) {
        self.interests.restart(watched);
        if !watched {
            return self.suspect_semaphores(now);
        }
        for resource in self.held.keys().cloned().collect::<Vec<_>>() {
            self.look_after(now, &resource);
        }
        for (id, claimed) in self.claims.iter().filter(|(_, it)| it.stage == Stage::Waiting) {
            if claimed.resource.kind == Kind::Semaphore {
                self.interests.want_grant(*id, &claimed.resource);
            }
        }
        for resource in self.next.keys() {
            self.interests.want(resource);
        }
    }

    /// Nothing tells of their changes.
    pub(super) fn suspect_semaphores(&mut self, now: Boottime) {
        let semaphores = self.held.keys().filter(|resource| resource.kind == Kind::Semaphore);
        for semaphore in semaphores.cloned().collect::<Vec<_>>() {
            self.changed(now, &semaphore);
        }
    }

    /// Somebody granted a claim, or took what told of it away. What it is of, if it is one of this
    /// agent's that waits and is not asked about already.
    fn granted(&mut self, claim: ClaimId) -> Option<Resource> {
        let claimed = self.claims.get_mut(&claim)?;
        let is_news = claimed.stage != Stage::Held && !std::mem::replace(&mut claimed.hinted, true);
        is_news.then(|| claimed.resource.clone())
    }

    /// The hold of an exclusive resource, if it is this agent's.
    fn hold_of(&self, resource: &Resource) -> Option<ClaimId> {
        self.held.get(resource)?.claims.first().copied()
    }

    /// When [`OwnClaims::take_suspects`] has something, or something is to be forgotten.
    pub(super) fn poll_timeout(&self) -> Option<Boottime> {
        let look_at = match self.rest.is_empty() {
            true => self.suspected.first().map(|(at, _)| (*at).max(self.rest_until)),
            false => Some(self.rest_until),
        };
        [look_at.filter(|_| !self.verifying), self.sweep_at].into_iter().flatten().min()
    }

    /// Holds that may have been taken away. One call at a time, and a rest after it.
    pub(super) fn take_suspects(&mut self, now: Boottime) -> Vec<(ClaimId, Resource)> {
        if self.verifying || now < self.rest_until {
            return Vec::new();
        }
        while self.rest.len() < VERIFY_PER_CALL_MAX
            && self.suspected.first().is_some_and(|(at, _)| *at <= now)
        {
            let Some((_, resource)) = self.suspected.pop_first() else { break };
            let Some(held) = self.held.get_mut(&resource) else { continue };
            held.look_at = None;
            held.verified_at = now;
            self.rest.extend(held.claims.iter().map(|id| (*id, resource.clone())));
        }
        let calls = self.rest.len().min(VERIFY_PER_CALL_MAX);
        let mut taken: Vec<_> = self.rest.drain(..calls).collect();
        taken.retain(|(id, _)| self.claims.get(id).is_some_and(|it| it.stage == Stage::Held));
        let cost = VERIFY_COST * u32::try_from(taken.len()).unwrap_or(u32::MAX);
        self.rest_until = now + cost * REST;
        self.verifying = !taken.is_empty();
        taken
    }

    /// The call was answered, or not; in that case the next beat tells.
    pub(super) fn verified(&mut self) {
        self.verifying = false;
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
                held.beaten_at = now;
            }
            return;
        }
        self.steps.push((resource.clone(), ClaimStep::Tracked));
        let resource = resource.clone();
        self.claims
            .insert(id, Claimed { resource, stage: Stage::Claiming, hinted: false, forget_at });
    }

    fn found(&mut self, now: Boottime, id: ClaimId, stage: Stage) {
        let Some(claimed) = self.claims.get_mut(&id) else { return };
        let was_hinted = std::mem::take(&mut claimed.hinted);
        let resource = claimed.resource.clone();
        let before = std::mem::replace(&mut claimed.stage, stage);
        let is_permit = resource.kind == Kind::Semaphore;
        if is_permit && stage == Stage::Waiting && (before != stage || was_hinted) {
            self.interests.want_grant(id, &resource);
        }
        if stage == Stage::Held {
            let held = self.held.entry(resource.clone()).or_default();
            held.beaten_at = now;
            if resource.kind != Kind::Semaphore {
                // Whatever the last one was, it is no more.
                held.claims.clear();
            }
            held.claims.insert(id);
        }
        if before != stage {
            self.leave(id, &resource, before);
            if stage == Stage::Held && self.interests.is_on() {
                self.look_after(now + VERIFY_SOON, &resource);
            }
            if stage == Stage::Waiting {
                self.steps.push((resource, ClaimStep::Waits));
            }
        }
    }

    /// A claim that waits has come to that place.
    fn placed(&mut self, id: ClaimId, resource: &Resource, position: u64) {
        if resource.kind == Kind::Semaphore || position > 1 || !self.claims.contains_key(&id) {
            return;
        }
        self.next.insert(resource.clone(), id);
        self.interests.want(resource);
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
                self.steps.push((resource.clone(), ClaimStep::WaitsNoMore));
                if self.next.get(resource) == Some(&id) {
                    self.next.remove(resource);
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

fn json(payload: &[u8]) -> serde_json::Value {
    serde_json::from_slice(payload)
        .unwrap_or_else(|_| String::from_utf8_lossy(payload).into_owned().into())
}

#[cfg(test)]
mod tests;
