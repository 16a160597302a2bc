//! PURE. What this agent has in Redis, as far as its calls tell: to know which hints concern it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tenure::wire::Kind;

use super::care::Care;
use crate::host::clock::Boottime;
use crate::model::{
    Answer, BeatAnswer, ClaimAnswer, ClaimId, Failure, Request, Resource, SessionId, Subject,
};

/// Claims in one call that looks whether they are still there.
pub(super) const VERIFY_PER_CALL_MAX: usize = 2048;
/// A change of a held key so soon after a beat of it is most likely that beat …
const OWN_DOING: Duration = Duration::from_millis(20);
/// … and looked at this much later, together with others.
const DOUBT_LATER: Duration = Duration::from_secs(2);
/// Claims that nobody speaks of any more are forgotten after so many times their ttl.
const FORGET_AFTER_TTLS: u32 = 3;
/// How often such claims are looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(30);

#[derive(Debug)]
struct Claimed {
    resource: Resource,
    is_held: bool,
    /// When it was claimed or beaten last, or that was answered.
    beaten_at: Boottime,
    forget_at: Boottime,
}

/// What this agent has in Redis.
#[derive(Debug, Default)]
pub(super) struct Known {
    claims: HashMap<ClaimId, Claimed>,
    /// Holds of exclusive kinds, by what they hold.
    held: HashMap<Resource, ClaimId>,
    /// Announced sessions with their tenant and project.
    sessions: HashMap<SessionId, (Arc<str>, Arc<str>)>,
    /// Holds whose key was changed, perhaps by somebody else.
    doubted: HashSet<ClaimId>,
    /// When to look at them.
    look_at: Option<Boottime>,
    verifying: bool,
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
                ClaimAnswer::Held { .. } => self.found(now, claim.id, true),
                ClaimAnswer::Waiting { .. } => self.found(now, claim.id, false),
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
                        BeatAnswer::Held { .. } => self.found(now, *claim, true),
                        BeatAnswer::Waiting { .. } => self.found(now, *claim, false),
                        BeatAnswer::Gone(_) | BeatAnswer::Session { .. } => {
                            self.forget(*claim, care);
                        }
                    }
                }
            }
            _ => {}
        }
    }

    /// Somebody, perhaps this agent, changed the key of an exclusive resource.
    pub(super) fn changed(&mut self, now: Boottime, resource: &Resource) {
        let Some(id) = self.held.get(resource) else { return };
        let Some(claimed) = self.claims.get(id) else { return };
        let own_doing = now.since(claimed.beaten_at) < OWN_DOING;
        let look_at = if own_doing { now + DOUBT_LATER } else { now };
        self.doubted.insert(*id);
        self.look_at = Some(self.look_at.map_or(look_at, |earlier| earlier.min(look_at)));
    }

    /// What a claim of this agent is of.
    pub(super) fn resource_of(&self, claim: ClaimId) -> Option<Resource> {
        self.claims.get(&claim).map(|claimed| claimed.resource.clone())
    }

    /// Whether a claim of this agent waits, and for what.
    pub(super) fn waits_for(&self, claim: ClaimId) -> Option<&Resource> {
        self.claims.get(&claim).filter(|claimed| !claimed.is_held).map(|claimed| &claimed.resource)
    }

    /// The tenant and project of an announced session.
    pub(super) fn project_of(&self, session: SessionId) -> Option<&(Arc<str>, Arc<str>)> {
        self.sessions.get(&session)
    }

    /// The hold of an exclusive resource, if it is this agent's.
    pub(super) fn hold_of(&self, resource: &Resource) -> Option<ClaimId> {
        self.held.get(resource).copied()
    }

    /// When [`Known::take_doubted`] has something, or something is to be forgotten.
    pub(super) fn poll_timeout(&self) -> Option<Boottime> {
        let look_at = self.look_at.filter(|_| !self.verifying);
        [look_at, self.sweep_at].into_iter().flatten().min()
    }

    /// Holds that may have been taken away. One call at a time.
    pub(super) fn take_doubted(&mut self, now: Boottime) -> Vec<(ClaimId, Resource)> {
        let mut taken = Vec::new();
        if self.verifying || self.look_at.is_none_or(|at| now < at) {
            return taken;
        }
        // Those that could wait go along: one call instead of two.
        let doubted = self.doubted.iter().copied().take(VERIFY_PER_CALL_MAX);
        for id in doubted.collect::<Vec<_>>() {
            self.doubted.remove(&id);
            if let Some(claimed) = self.claims.get(&id).filter(|claimed| claimed.is_held) {
                taken.push((id, claimed.resource.clone()));
            }
        }
        self.look_at = (!self.doubted.is_empty()).then_some(now);
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
            claimed.beaten_at = now;
            claimed.forget_at = forget_at;
            return;
        }
        if resource.kind == Kind::Semaphore {
            care.share(now, resource);
        }
        let resource = resource.clone();
        self.claims.insert(id, Claimed { resource, is_held: false, beaten_at: now, forget_at });
    }

    fn found(&mut self, now: Boottime, id: ClaimId, is_held: bool) {
        let Some(claimed) = self.claims.get_mut(&id) else { return };
        claimed.beaten_at = now;
        if claimed.is_held == is_held {
            return;
        }
        claimed.is_held = is_held;
        if claimed.resource.kind == Kind::Semaphore {
            return;
        }
        if is_held {
            self.held.insert(claimed.resource.clone(), id);
        } else if self.held.get(&claimed.resource) == Some(&id) {
            self.held.remove(&claimed.resource);
        }
    }

    fn forget(&mut self, id: ClaimId, care: &mut Care) {
        let Some(claimed) = self.claims.remove(&id) else { return };
        if claimed.resource.kind == Kind::Semaphore {
            care.unshare(&claimed.resource);
        } else if self.held.get(&claimed.resource) == Some(&id) {
            self.held.remove(&claimed.resource);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Beat, GoneReason};
    use uuid::Uuid;

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

    fn holding(resource: &Resource) -> (Known, Care, ClaimId) {
        let (mut known, mut care) = (Known::default(), Care::default());
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
        assert_eq!(known.take_doubted(later), [(id, resource)]);
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
