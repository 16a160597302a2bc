//! Looks at holds whose key was changed: by a beat of this agent, most likely, or by somebody else.

use std::collections::VecDeque;
use std::time::Duration;

use tenure_core::model::{Change, ClaimId, Report, Resource};
use tenure_core::time::Boottime;
use tenure_wire::Kind;

use super::{OwnClaims, Stage};
use crate::remote::hints::Hint;

/// Claims in one call that verifies, so that it takes the store no longer than a millisecond.
pub(super) const VERIFY_PER_CALL_MAX: usize = 160;
/// The time that the store takes for one of them, roughly …
const VERIFY_COST: Duration = Duration::from_micros(5);
/// … and how many times as long it is left alone after a call.
const REST: u32 = 10;
/// A change of a held key while a beat of it is on its way, for so long at most, is most likely that beat …
pub(super) const BEAT_WITHIN: Duration = Duration::from_secs(1);
/// … and so it is this soon after its answer.
pub(super) const OWN_DOING: Duration = Duration::from_millis(20);
/// A look that can wait is taken this much later, together with others. A new hold is looked at so late, too: one
/// that is released before costs no look.
pub(super) const VERIFY_SOON: Duration = Duration::from_millis(50);
/// A semaphore, which others renew their permits of, is looked at so long after the last look.
pub(super) const VERIFY_LATER: Duration = Duration::from_secs(1);

impl OwnClaims {
    /// Somebody, perhaps this agent, changed the key that says who holds a resource.
    pub(super) fn changed(&mut self, now: Boottime, resource: &Resource) {
        let Some(held) = self.held.get_mut(resource) else { return };
        let is_own_doing = now < held.own_until;
        let soon = if is_own_doing { now + VERIFY_SOON } else { now };
        let claim = held.claims.first().filter(|_| self.interests.is_on());
        match (resource.kind, claim) {
            // To watch it anew is to read it, and that tells whose it is. What others did may end it sooner, too.
            (Kind::Leader | Kind::Lease, Some(claim)) => {
                self.interests.want_held(*claim, resource);
                if !is_own_doing {
                    self.look_after(now, resource, false);
                }
            }
            (Kind::Semaphore, Some(claim)) if is_own_doing => {
                if self.interests.is_to_be_read(resource) {
                    return;
                }
                if now >= held.counted_at + VERIFY_LATER {
                    held.counted_at = now;
                    self.interests.want_held(*claim, resource);
                } else {
                    // Others who renew permits of it must not have it seen again and again.
                    self.look_after(soon, resource, true);
                }
            }
            (Kind::Master, Some(_)) if is_own_doing => {
                self.interests.want(resource);
                self.look_after(soon, resource, false);
            }
            _ => self.look_after(soon, resource, false),
        }
    }

    /// The key that says who holds a resource is gone: it is looked at now.
    pub(in crate::remote) fn came_about(
        &mut self,
        now: Boottime,
        resource: Resource,
        reports: &mut VecDeque<Report>,
    ) {
        if let Some(held) = self.held.get_mut(&resource) {
            held.verified_at = Boottime::ZERO;
            held.own_until = Boottime::ZERO;
        }
        self.handle_hint(now, Hint::Resource(resource), reports);
    }

    /// A claim was read, and has its resource no more.
    pub(in crate::remote) fn seen_lost(
        &mut self,
        now: Boottime,
        claim: ClaimId,
        resource: &Resource,
        reports: &mut VecDeque<Report>,
    ) {
        if self.hold_of(resource) != Some(claim) {
            return;
        }
        match resource.kind {
            Kind::Semaphore => self.came_about(now, resource.clone(), reports),
            Kind::Leader | Kind::Lease | Kind::Master => {
                for change in [
                    Change::Lost { claim, resource: resource.clone() },
                    Change::Resource(resource.clone()),
                ] {
                    reports.push_back(Report::Change(change));
                }
            }
        }
    }

    /// So many hold a semaphore. Who was one of them, and was not looked at since there were as many, is
    /// looked at.
    pub(in crate::remote) fn counted(&mut self, now: Boottime, semaphore: &Resource, holders: u64) {
        let Some(held) = self.held.get_mut(semaphore) else { return };
        if held.holders.replace(holders) != Some(holders) {
            self.look_after(now, semaphore, false);
        }
    }

    pub(super) fn look_after(&mut self, instant: Boottime, resource: &Resource, own_doing: bool) {
        let Some(held) = self.held.get_mut(resource) else { return };
        let look_at = match resource.kind {
            Kind::Semaphore => instant.max(held.verified_at + VERIFY_LATER),
            _ => instant,
        };
        held.is_own_doing = own_doing && (held.is_own_doing || held.look_at.is_none());
        if held.look_at.is_some_and(|at| at <= look_at) {
            return;
        }
        if let Some(later) = held.look_at.replace(look_at) {
            self.suspected.remove(&(later, resource.clone()));
        }
        self.suspected.insert((look_at, resource.clone()));
    }

    /// Nothing tells of their changes.
    pub(in crate::remote) fn suspect_semaphores(&mut self, now: Boottime) {
        let semaphores = self.held.keys().filter(|resource| resource.kind == Kind::Semaphore);
        for semaphore in semaphores.cloned().collect::<Vec<_>>() {
            self.changed(now, &semaphore);
        }
    }

    /// When [`OwnClaims::take_suspects`] has something, or something is to be forgotten.
    pub(in crate::remote) fn poll_timeout(&self) -> Option<Boottime> {
        let look_at = match self.rest.is_empty() {
            true => self.suspected.first().map(|(at, _)| (*at).max(self.rest_until)),
            false => Some(self.rest_until),
        };
        [look_at.filter(|_| !self.verifying), self.sweep_at].into_iter().flatten().min()
    }

    /// Holds that may have been taken away. One call at a time, and a rest after it.
    pub(in crate::remote) fn take_suspects(&mut self, now: Boottime) -> Vec<(ClaimId, Resource)> {
        if self.verifying || now < self.rest_until {
            return Vec::new();
        }
        while self.rest.len() < VERIFY_PER_CALL_MAX
            && self.suspected.first().is_some_and(|(at, _)| *at <= now)
        {
            let Some((_, resource)) = self.suspected.pop_first() else { break };
            let Some(held) = self.held.get_mut(&resource) else { continue };
            held.look_at = None;
            let claim = held.claims.first().filter(|_| self.interests.is_on());
            if let Some(claim) = claim.filter(|_| std::mem::take(&mut held.is_own_doing)) {
                held.counted_at = now;
                self.interests.want_held(*claim, &resource);
                continue;
            }
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
    pub(in crate::remote) fn verified(&mut self) {
        self.verifying = false;
    }
}
