//! PURE. What this agent has in Redis, as far as its calls tell: to know which hints concern it.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tenure_core::model::{
    Answer, BeatAnswer, ClaimAnswer, ClaimId, Failure, Request, Resource, SessionId, Subject,
};
use tenure_core::time::Boottime;
use tenure_wire::Kind;

use super::care::Care;

/// Claims in one call that looks whether they are still there, so that it takes Redis no longer than a
/// millisecond.
pub(super) const VERIFY_PER_CALL_MAX: usize = 256;
/// How long Redis takes for one of them, roughly …
const VERIFY_COST: Duration = Duration::from_micros(3);
/// … and how many times as long it is left alone after a call.
const REST: u32 = 10;
/// A change of a held key so soon after a beat of it is most likely that beat …
const OWN_DOING: Duration = Duration::from_millis(20);
/// … and looked at this much later, together with others. So is the next change of a semaphore, which
/// others renew their permits of.
const DOUBT_LATER: Duration = Duration::from_secs(2);
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

/// The holds and waits that this agent has in Redis.
#[derive(Debug, Default)]
pub(super) struct Known {
    claims: HashMap<ClaimId, Claimed>,
    held: HashMap<Resource, Held>,
    /// Announced sessions with their tenant and project.
    sessions: HashMap<SessionId, (Arc<str>, Arc<str>)>,
    /// The resources to look at, and when.
    doubted: BTreeSet<(Boottime, Resource)>,
    /// The rest of a semaphore of which there is more to look at than one call takes.
    rest: VecDeque<(ClaimId, Resource)>,
    verifying: bool,
    rest_until: Boottime,
    sweep_at: Option<Boottime>,
}

impl Known {
    /// A call is about to be sent.
    pub(super) fn handle_request(&mut self, now: Boottime, request: &Request, care: &mut Care) {
        match request {
            Request::Claim(claim) => self.meet(now, claim.id, &claim.resource, claim.ttl, care),
            Request::Renew(beats) => {
                for beat in beats {
                    if let Subject::Claim { claim, resource } = &beat.subject {
                        self.meet(now, *claim, resource, beat.ttl, care);
                    }
                }
            }
            Request::Release { claim, .. } => self.forget(*claim, care),
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
        care: &mut Care,
    ) {
        match (request, result) {
            (Request::Claim(claim), Ok(Answer::Claim(answer))) => match answer {
                ClaimAnswer::Held { .. } => self.found(now, claim.id, Stage::Held, care),
                ClaimAnswer::Waiting { .. } => self.found(now, claim.id, Stage::Waiting, care),
                ClaimAnswer::Contended { .. }
                | ClaimAnswer::Gone(_)
                | ClaimAnswer::Quarantined { .. } => self.forget(claim.id, care),
            },
            // It was never sent, and perhaps never will be.
            (Request::Claim(claim), Err(Failure::Unavailable(_))) => self.forget(claim.id, care),
            (Request::Renew(beats), Ok(Answer::Renew(answers))) => {
                for (beat, answer) in beats.iter().zip(answers) {
                    let Subject::Claim { claim, .. } = &beat.subject else { continue };
                    match answer {
                        BeatAnswer::Held { .. } => self.found(now, *claim, Stage::Held, care),
                        BeatAnswer::Waiting { .. } => {
                            self.found(now, *claim, Stage::Waiting, care);
                        }
                        BeatAnswer::Gone(_) | BeatAnswer::Session { .. } => {
                            self.forget(*claim, care);
                        }
                    }
                }
            }
            _ => {}
        }
    }

    /// Somebody, perhaps this agent, changed the key that says who holds a resource.
    pub(super) fn changed(&mut self, now: Boottime, resource: &Resource) {
        let Some(held) = self.held.get_mut(resource) else { return };
        let look_at = if now.since(held.beaten_at) < OWN_DOING {
            now + DOUBT_LATER
        } else if resource.kind == Kind::Semaphore {
            now.max(held.verified_at + DOUBT_LATER)
        } else {
            now
        };
        if held.look_at.is_some_and(|at| at <= look_at) {
            return;
        }
        if let Some(later) = held.look_at.replace(look_at) {
            self.doubted.remove(&(later, resource.clone()));
        }
        self.doubted.insert((look_at, resource.clone()));
    }

    /// Changes were not heard of: everything held is looked at. Of semaphores alone, as the keeper asks
    /// for the rest.
    pub(super) fn doubt_semaphores(&mut self, now: Boottime) {
        let semaphores = self.held.keys().filter(|resource| resource.kind == Kind::Semaphore);
        for semaphore in semaphores.cloned().collect::<Vec<_>>() {
            self.changed(now, &semaphore);
        }
    }

    /// The resource of a claim of this agent.
    pub(super) fn resource_of(&self, claim: ClaimId) -> Option<Resource> {
        self.claims.get(&claim).map(|claimed| claimed.resource.clone())
    }

    /// Somebody granted a claim, or took what told of it away. What it is of, if it is one of this
    /// agent's that waits and is not asked about already.
    pub(super) fn granted(&mut self, claim: ClaimId) -> Option<Resource> {
        let claimed = self.claims.get_mut(&claim)?;
        let is_news = claimed.stage != Stage::Held && !std::mem::replace(&mut claimed.hinted, true);
        is_news.then(|| claimed.resource.clone())
    }

    /// The tenant and project of an announced session.
    pub(super) fn project_of(&self, session: SessionId) -> Option<&(Arc<str>, Arc<str>)> {
        self.sessions.get(&session)
    }

    /// The hold of an exclusive resource, if it is this agent's.
    pub(super) fn hold_of(&self, resource: &Resource) -> Option<ClaimId> {
        self.held.get(resource)?.claims.first().copied()
    }

    /// When [`Known::take_doubted`] has something, or something is to be forgotten.
    pub(super) fn poll_timeout(&self) -> Option<Boottime> {
        let look_at = match self.rest.is_empty() {
            true => self.doubted.first().map(|(at, _)| (*at).max(self.rest_until)),
            false => Some(self.rest_until),
        };
        [look_at.filter(|_| !self.verifying), self.sweep_at].into_iter().flatten().min()
    }

    /// Holds that may have been taken away. One call at a time, and a rest after it.
    pub(super) fn take_doubted(&mut self, now: Boottime) -> Vec<(ClaimId, Resource)> {
        if self.verifying || now < self.rest_until {
            return Vec::new();
        }
        while self.rest.len() < VERIFY_PER_CALL_MAX
            && self.doubted.first().is_some_and(|(at, _)| *at <= now)
        {
            let Some((_, resource)) = self.doubted.pop_first() else { break };
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

    /// Forgets what nobody speaks of any more: the keeper lost it, and the upstream lets go by itself.
    pub(super) fn sweep(&mut self, now: Boottime, care: &mut Care) {
        if self.sweep_at.is_none_or(|at| now < at) {
            return;
        }
        let silent = self.claims.iter().filter(|(_, claimed)| claimed.forget_at <= now);
        let silent: Vec<_> = silent.map(|(id, _)| *id).collect();
        for id in silent {
            self.forget(id, care);
        }
        self.sweep_at = (!self.claims.is_empty()).then(|| now + SWEEP_EVERY);
    }

    fn meet(
        &mut self,
        now: Boottime,
        id: ClaimId,
        resource: &Resource,
        ttl: Duration,
        care: &mut Care,
    ) {
        self.sweep_at.get_or_insert(now + SWEEP_EVERY);
        let forget_at = now + ttl * FORGET_AFTER_TTLS;
        if let Some(claimed) = self.claims.get_mut(&id) {
            claimed.forget_at = forget_at;
            if let Some(held) = self.held.get_mut(resource) {
                held.beaten_at = now;
            }
            return;
        }
        if resource.kind == Kind::Semaphore {
            care.share(resource);
        }
        let (resource, stage) = (resource.clone(), Stage::Claiming);
        self.claims.insert(id, Claimed { resource, stage, hinted: false, forget_at });
    }

    fn found(&mut self, now: Boottime, id: ClaimId, stage: Stage, care: &mut Care) {
        let Some(claimed) = self.claims.get_mut(&id) else { return };
        claimed.hinted = false;
        let resource = claimed.resource.clone();
        let before = std::mem::replace(&mut claimed.stage, stage);
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
            self.leave(id, &resource, before, care);
            if stage == Stage::Waiting && resource.kind == Kind::Semaphore {
                care.waits(now, &resource);
            }
        }
    }

    fn forget(&mut self, id: ClaimId, care: &mut Care) {
        let Some(claimed) = self.claims.remove(&id) else { return };
        self.leave(id, &claimed.resource, claimed.stage, care);
        if claimed.resource.kind == Kind::Semaphore {
            care.unshare(&claimed.resource);
        }
    }

    /// A claim is not at that stage any more.
    fn leave(&mut self, id: ClaimId, resource: &Resource, stage: Stage, care: &mut Care) {
        match stage {
            Stage::Claiming => {}
            Stage::Waiting if resource.kind == Kind::Semaphore => care.waits_no_more(resource),
            Stage::Waiting => {}
            Stage::Held => {
                let Some(held) = self.held.get_mut(resource) else { return };
                held.claims.remove(&id);
                if held.claims.is_empty() {
                    let look_at = held.look_at;
                    self.held.remove(resource);
                    if let Some(look_at) = look_at {
                        self.doubted.remove(&(look_at, resource.clone()));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::model::{Beat, GoneReason};
    use uuid::Uuid;

    use super::*;

    const NOW: Boottime = Boottime::from_nanos(1_000_000_000_000);
    const TTL: Duration = Duration::from_secs(30);

    fn leader(name: &str) -> Resource {
        Resource { tenant: "default".into(), kind: Kind::Leader, name: name.into() }
    }

    fn renewal(id: ClaimId, resource: &Resource) -> Request {
        let subject = Subject::Claim { claim: id, resource: resource.clone() };
        Request::Renew(vec![Beat { subject, ttl: TTL }])
    }

    fn held() -> Result<Answer, Failure> {
        Ok(Answer::Renew(vec![BeatAnswer::Held { token: 7, limit: None }]))
    }

    fn semaphore(name: &str) -> Resource {
        Resource { kind: Kind::Semaphore, ..leader(name) }
    }

    fn holding(resource: &Resource) -> (Known, Care, ClaimId) {
        let (mut known, mut care) = (Known::default(), Care::new(0));
        let id = ClaimId(Uuid::from_u128(1));
        let request = renewal(id, resource);
        known.handle_request(NOW, &request, &mut care);
        known.handle_answer(NOW, &request, &held(), &mut care);
        (known, care, id)
    }

    #[test]
    fn a_change_of_a_held_key_is_looked_at_at_once_unless_it_was_most_likely_a_beat() {
        let resource = leader("cleanup");
        let (mut known, _care, id) = holding(&resource);
        known.changed(NOW, &resource);
        assert!(known.take_doubted(NOW).is_empty());
        let later = NOW + Duration::from_secs(1);
        known.changed(later, &resource);
        assert_eq!(known.take_doubted(later), [(id, resource.clone())]);
        known.changed(later, &resource);
        assert!(known.take_doubted(later).is_empty(), "one call at a time");
        known.verified();
        let rested = known.poll_timeout().unwrap();
        assert_eq!(known.take_doubted(rested), [(id, resource)]);
    }

    #[test]
    fn permits_are_looked_at_at_once_but_not_at_every_beat_of_others() {
        let gpu = semaphore("gpu");
        let (mut known, _care, id) = holding(&gpu);
        let mut now = NOW + Duration::from_secs(5);
        known.changed(now, &gpu);
        assert_eq!(known.take_doubted(now), [(id, gpu.clone())]);
        known.verified();
        for _ in 0..10 {
            now = now + Duration::from_millis(100);
            known.changed(now, &gpu);
            assert!(known.take_doubted(now).is_empty());
        }
        let again = NOW + Duration::from_secs(5) + DOUBT_LATER;
        assert_eq!(known.poll_timeout(), Some(again));
        assert_eq!(known.take_doubted(again), [(id, gpu)]);
    }

    #[test]
    fn many_permits_are_looked_at_in_small_calls_with_rests() {
        const HOLDS: usize = VERIFY_PER_CALL_MAX * 2 + 1;
        let gpu = semaphore("gpu");
        let (mut known, mut care, _) = holding(&gpu);
        for id in 2..=HOLDS {
            let request = renewal(ClaimId(Uuid::from_u128(id as u128)), &gpu);
            known.handle_request(NOW, &request, &mut care);
            known.handle_answer(NOW, &request, &held(), &mut care);
        }
        let mut now = NOW + Duration::from_secs(5);
        known.changed(now, &gpu);
        let mut seen = Vec::new();
        for calls in 0..3 {
            let taken = known.take_doubted(now);
            assert_eq!(taken.len(), if calls < 2 { VERIFY_PER_CALL_MAX } else { 1 });
            seen.extend(taken);
            known.verified();
            let rested = known.rest_until;
            assert!(known.take_doubted(now).is_empty() && rested > now, "it rests");
            now = rested;
        }
        seen.sort();
        seen.dedup();
        assert_eq!((seen.len(), known.doubted.len()), (HOLDS, 0));
    }

    #[test]
    fn a_grant_is_hinted_once_until_it_was_asked_about() {
        let gpu = semaphore("gpu");
        let (mut known, mut care) = (Known::default(), Care::new(0));
        let id = ClaimId(Uuid::from_u128(1));
        let request = renewal(id, &gpu);
        known.handle_request(NOW, &request, &mut care);
        let waits = Ok(Answer::Renew(vec![BeatAnswer::Waiting { position: 1, limit: None }]));
        for _ in 0..2 {
            known.handle_answer(NOW, &request, &waits, &mut care);
            assert_eq!(known.granted(id), Some(gpu.clone()));
            assert_eq!(known.granted(id), None);
        }
        known.handle_answer(NOW, &request, &held(), &mut care);
        assert_eq!(known.granted(id), None, "it is known to be held");
    }

    #[test]
    fn what_was_released_stays_forgotten_when_an_earlier_beat_is_answered() {
        let resource = leader("cleanup");
        let (mut known, mut care, id) = holding(&resource);
        let beat = renewal(id, &resource);
        known.handle_request(NOW, &beat, &mut care);
        let release = Request::Release { claim: id, resource: resource.clone() };
        known.handle_request(NOW, &release, &mut care);
        known.handle_answer(NOW, &beat, &held(), &mut care);
        assert_eq!((known.claims.len(), known.hold_of(&resource)), (0, None));
    }

    #[test]
    fn claims_that_nobody_speaks_of_are_forgotten() {
        let (mut known, mut care, _id) = holding(&leader("cleanup"));
        let first = known.poll_timeout().unwrap();
        known.sweep(first, &mut care);
        assert_eq!(known.claims.len(), 1);
        let late = first + TTL * FORGET_AFTER_TTLS;
        known.sweep(late, &mut care);
        assert_eq!((known.claims.len(), known.held.len(), known.poll_timeout()), (0, 0, None));
    }

    #[test]
    fn a_lost_hold_is_no_longer_known() {
        let resource = leader("cleanup");
        let (mut known, mut care, id) = holding(&resource);
        let gone = Ok(Answer::Renew(vec![BeatAnswer::Gone(GoneReason::Preempted)]));
        known.handle_answer(NOW, &renewal(id, &resource), &gone, &mut care);
        assert_eq!((known.resource_of(id), known.hold_of(&resource)), (None, None));
    }
}
