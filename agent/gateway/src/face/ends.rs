//! Ends of holds and sessions that no call of their holder told of: preemptions and losses that a shared store only hints at,
//! and deaths that nothing hints at.
//!
//! Of several gateways the one through which a session was heard of last writes them down.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::model::{
    Answer, BEATS_MAX, Beat, ClaimId, Request, Resource, StandingEntry, Subject, UpstreamStanding,
    Within,
};
use tenure_host::clock;

use super::Face;
use crate::access::Principal;
use crate::trail::By;

/// The ttl of a beat of what has ended: the shortest, for it is asked for the reason alone. A holder may have taken the
/// same claim anew meanwhile, and no beat makes it end earlier, but a longer one would make it end later.
const BEAT_TTL: Duration = Duration::from_millis(1);

/// Stores tell how long a session has left in ms.
const CLOCK_STEP: Duration = Duration::from_millis(5);
/// How often a gateway looks for what ran out.
const LOOK_EVERY: Duration = Duration::from_millis(500);

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
        if has_ended(&standing, claim) && self.tells_end(principal, claim).await {
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
            for fact in owner.account.settle_ends(&asked, result) {
                changes.tell_fact(&fact);
                let by = By { principal: Some(Arc::clone(&owner.name)), ..By::default() };
                trail.tell(by, fact);
            }
        });
        // While the store is away nothing is known; the holder's own call may tell.
        let _ = self.store.ask_then(principal.mark, request, then).await;
    }

    /// True if the end of a claim is this gateway's to write down. A session that lives longer than this gateway knows was
    /// heard of later by another one, which writes it.
    pub(super) async fn tells_end(&self, principal: &Principal, claim: ClaimId) -> bool {
        let Some((session, until)) = principal.account.session_of(claim) else { return true };
        let asked_at = clock::now();
        let within = Within::Session(session);
        let request = Request::Members { within, listed: true, page: None };
        let Ok(Answer::Members(Some(found))) = self.store.look(request).await else { return true };
        let id = session.to_string();
        let left = found.sessions.iter().find(|it| *it.session == *id).and_then(|it| it.runs_out);
        let is_elsewhere = left.is_some_and(|left| asked_at + left > until + CLOCK_STEP);
        if is_elsewhere {
            principal.account.forget(claim);
        }
        !is_elsewhere
    }

    /// Asks how what nobody has renewed in time has ended, and writes it down, until the gateway is to end.
    pub async fn watch_ends(self: Arc<Face>) {
        let drain = self.drain.clone();
        let watching = async {
            loop {
                #[expect(clippy::disallowed_methods, reason = "nothing is decided by it")]
                tokio::time::sleep(LOOK_EVERY).await;
                for principal in self.access.principals() {
                    let overdue = principal.account.overdue(clock::now());
                    for subjects in overdue.chunks(BEATS_MAX) {
                        self.write_ends_down(&principal, subjects.to_vec()).await;
                    }
                }
            }
        };
        drain.run_until_cancelled(watching).await;
    }
}

/// True if a claim neither holds nor waits. Of a long list that is not known.
pub(super) fn has_ended(standing: &UpstreamStanding, claim: ClaimId) -> bool {
    let is_whole = |listed: &[StandingEntry], count: u64| listed.len() as u64 >= count;
    is_whole(&standing.holders, standing.holding)
        && is_whole(&standing.waiters, standing.waiting)
        && standing.holders.iter().chain(&standing.waiters).all(|entry| entry.claim != claim)
}
