//! Taking away holds: those of others take a right, and the words of it are the gateway's own.

use std::sync::Arc;

use tenure_core::model::{Answer, Request, Resource, Revocation, StandingEntry, UpstreamStanding};
use tenure_wire::Code;

use super::Face;
use super::carry::Recorder;
use super::refused::Refused;
use crate::access::{Caller, Right};

/// Most own permits that one call takes away: each is a question of its own to the store.
const OWN_TAKEN_MAX: usize = 512;

impl Face {
    /// Takes a resource away from its holders. Without the right only from those of the caller itself: each is named to
    /// the store by its token, so that nothing is taken that another principal was granted meanwhile.
    ///
    /// # Errors
    ///
    /// 403 where another principal holds it and the caller has no right to that; as the store fails.
    pub(super) async fn revoke(
        &self,
        caller: &Caller,
        resource: Resource,
        token: Option<u64>,
        revocation: Option<&Revocation>,
    ) -> Result<Answer, Refused> {
        let words = Some(Arc::new(words(caller, revocation)));
        let request = |token| Request::Revoke {
            resource: resource.clone(),
            token,
            revocation: words.clone(),
        };
        let may_take = caller.bounds.judge_revocation(&resource).is_ok();
        if caller.has(Right::Revoke) && may_take {
            return self.ask(caller, request(token), Recorder::Gateway).await;
        }
        let mut taken = 0;
        for token in self.own_tokens(caller, &resource, token).await? {
            if let Answer::Revoked(count) =
                self.ask(caller, request(Some(token)), Recorder::Gateway).await?
            {
                taken += count;
            }
        }
        Ok(Answer::Revoked(taken))
    }

    /// The tokens of the grants that a revocation is about, if all of them are the caller's.
    async fn own_tokens(
        &self,
        caller: &Caller,
        resource: &Resource,
        token: Option<u64>,
    ) -> Result<Vec<u64>, Refused> {
        let request = Request::Holders(resource.clone());
        let allowance = &self.budgets.allowance;
        let read = allowance.reads.begin(allowance.reader(caller), &request, false).await;
        let answer = self.store.look(request).await?;
        if let Some(read) = &read {
            read.count(&answer);
        }
        let Answer::Standing(UpstreamStanding { holders, .. }) = answer else {
            return Ok(Vec::new());
        };
        let is_meant = |entry: &&StandingEntry| token.is_none_or(|token| token == entry.token);
        let mut tokens = Vec::new();
        for entry in holders.iter().filter(is_meant) {
            if !caller.principal.mark.is_of(entry.claim.0) {
                caller.needs(Right::Revoke, || {
                    let Resource { kind, name, .. } = resource;
                    format!("taking away {kind} {name:?} from another principal")
                })?;
                caller.bounds.judge_revocation(resource).map_err(|it| Refused::denied(&it))?;
            }
            tokens.push(entry.token);
        }
        if tokens.len() > OWN_TAKEN_MAX {
            let detail = format!(
                "token: this principal holds {} permits, and a call takes away {OWN_TAKEN_MAX} at most; name them one by \
                 one, or use a key with the right \"revoke\"",
                tokens.len()
            );
            return Err(Refused::new(Code::QuotaExceeded, detail));
        }
        Ok(tokens)
    }
}

/// A revocation in the gateway's words: who took it is never left to the caller, whose reason is kept.
fn words(caller: &Caller, said: Option<&Revocation>) -> Revocation {
    Revocation {
        by: caller.name(),
        reason: said.and_then(|said| said.reason.clone()),
        for_ms: said.map_or(0, |said| said.for_ms),
    }
}
