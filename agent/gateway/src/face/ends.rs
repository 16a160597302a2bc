//! Ends of holds that no call of their holder told of: preemptions and losses that a shared store only hints at.

use std::sync::Arc;
use std::time::Duration;

#[cfg(doc)]
use tenure_core::model::BEATS_MAX;
use tenure_core::model::{
    Answer, Beat, ClaimId, Request, Resource, StandingEntry, Subject, UpstreamStanding,
};
use tenure_host::clock;

use super::Face;
use crate::access::Principal;
use crate::trail::By;

/// The ttl of a beat of what has ended: the shortest, for it is asked for the reason alone. A holder may have taken the
/// same claim anew meanwhile, and no beat makes it end earlier, but a longer one would make it end later.
const BEAT_TTL: Duration = Duration::from_millis(1);

impl Face {
    /// Asks what became of a claim, and writes its end down, if it has ended.
    pub(super) async fn learn_end(
        &self,
        principal: &Arc<Principal>,
        claim: ClaimId,
        resource: Resource,
    ) {
        let standing = self.store.look(Request::Inspect(resource.clone())).await;
        let Ok(Answer::Standing(standing)) = standing else { return };
        if has_ended(&standing, claim) {
            self.write_ends_down(principal, vec![Subject::Claim { claim, resource }]).await;
        }
    }

    /// Asks how claims of a principal have ended, [`BEATS_MAX`] at most, and writes it down.
    pub(super) async fn write_ends_down(&self, principal: &Arc<Principal>, ended: Vec<Subject>) {
        let beats = ended.into_iter().map(|subject| Beat { subject, ttl: BEAT_TTL });
        let request = Request::Renew(beats.collect());
        let (asked, owner, trail) = (request.clone(), Arc::clone(principal), self.trail.clone());
        let changes = Arc::clone(&self.people.changes);
        let then = Box::new(move |result: &_| {
            for fact in owner.account.settle(clock::now(), &asked, result) {
                changes.tell_fact(&fact);
                let by = By { principal: Some(Arc::clone(&owner.name)), ..By::default() };
                trail.tell(by, fact);
            }
        });
        // While the store is away nothing is known; the holder's own call may tell.
        let _ = self.store.ask_then(principal.mark, request, then).await;
    }
}

/// True if a claim neither holds nor waits. Of a long list that is not known.
pub(super) fn has_ended(standing: &UpstreamStanding, claim: ClaimId) -> bool {
    let is_whole = |listed: &[StandingEntry], count: u64| listed.len() as u64 >= count;
    is_whole(&standing.holders, standing.holding)
        && is_whole(&standing.waiters, standing.waiting)
        && standing.holders.iter().chain(&standing.waiters).all(|entry| entry.claim != claim)
}
