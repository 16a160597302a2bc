//! Limits of semaphores: to change that of others takes a right.

use tenure_core::model::{Answer, Claim, ClaimAnswer, Request, Terms};

use super::Face;
use super::carry::Recorder;
use super::refused::Refused;
use crate::access::{Caller, Right};

impl Face {
    /// Carries out a claim. Without the right it leaves the limit of a semaphore that other principals use as it is: the
    /// store sees to that in the same step, so that nobody slips in between.
    ///
    /// # Errors
    ///
    /// 403 where it would change such a limit; as the store fails.
    pub(super) async fn claim(
        &self,
        caller: &Caller,
        mut claim: Claim,
        recorder: Recorder,
    ) -> Result<Answer, Refused> {
        let mut asked = None;
        if let Terms::Semaphore { limit, keeps: false, only_own } = &mut claim.terms {
            *only_own = !caller.has(Right::Limit);
            asked = Some(*limit);
        }
        let name = claim.resource.name.clone();
        let answer = self.ask(caller, Request::Claim(claim), recorder).await?;
        if let Some(asked) = asked
            && let Answer::Claim(ClaimAnswer::Contended { limit: Some(in_force), .. }) = answer
            && in_force != asked
        {
            caller.needs(Right::Limit, || {
                format!(
                    "changing the limit of semaphore {name:?} from {in_force} to {asked} while other principals use it"
                )
            })?;
        }
        Ok(answer)
    }
}
