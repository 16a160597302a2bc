//! Grants that hints carry without an instant of any clock.

use tenure_core::model::{Answer, BeatAnswer, ClaimAnswer, ClaimId, GrantHint, Request, Subject};
use tenure_core::time::Boottime;

use super::OwnClaims;
use crate::relay::Carried;

/// Of two clocks one may be slower than the other by this part.
const DRIFT_PART: u32 = 200;

impl OwnClaims {
    /// A call that was sent at `sent_at` or later was answered. Whoever waits by that answer is granted nothing before
    /// `sent_at`.
    pub(in crate::remote) fn found_waiting(
        &mut self,
        sent_at: Boottime,
        request: &Request,
        answer: &Answer,
    ) {
        match (request, answer) {
            (Request::Claim(claim), Answer::Claim(ClaimAnswer::Waiting { .. })) => {
                self.waited(sent_at, claim.id);
            }
            (Request::Renew(beats), Answer::Renew(answers)) => {
                for (beat, answer) in beats.iter().zip(answers) {
                    if let Subject::Claim { claim, .. } = beat.subject
                        && matches!(answer, BeatAnswer::Waiting { .. })
                    {
                        self.waited(sent_at, claim);
                    }
                }
            }
            _ => {}
        }
    }

    fn waited(&mut self, sent_at: Boottime, claim: ClaimId) {
        if let Some(claimed) = self.claims.get_mut(&claim) {
            claimed.waited_at = claimed.waited_at.max(Some(sent_at));
        }
    }

    /// What a grant says, by our clock. It was made when the claim waited, so it is kept no shorter than from the last
    /// instant at which that was known. `None` if it was never known: then the keeper asks.
    pub(super) fn kept_until(&self, claim: ClaimId, carried: Carried) -> Option<GrantHint> {
        let Carried { token, limit, kept } = carried;
        let waited_at = self.claims.get(&claim)?.waited_at?;
        Some(GrantHint { token, limit, confirm_by: waited_at + (kept - kept / DRIFT_PART) })
    }
}
