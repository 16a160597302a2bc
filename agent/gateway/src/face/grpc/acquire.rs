//! The grant of a mailbox.

use std::sync::Arc;

use tenure_core::model::{
    Answer, Claim, ClaimAnswer, ClaimId, Request, StandingEntry, TakeOver, Terms,
};
use tenure_host::clock;
use tenure_proto::prism::admin::v1::{AcquireLeaseRequest, AcquireLeaseResponse};
use tenure_wire::{Attributes, Code};
use tokio::sync::oneshot;
use tracing::debug;
use uuid::Builder;

use super::control::{Asked, Holder, Relation, in_time, millis, strange};
use super::runners::{Numbers, Runner};
use crate::face::refused::Refused;
use crate::mailbox::{self, Told, Wanted};

/// How often the store is asked: for the claim, for a new one after an earlier one that has ended, and for one that
/// takes over.
const ATTEMPTS_MAX: usize = 4;

/// The outcome of a claim.
enum Outcome {
    Granted {
        claim: ClaimId,
        token: u64,
    },
    /// With the reason, for people.
    Denied(String),
}

impl Asked {
    /// Grants a mailbox. Goes on when its caller hangs up, so that nothing is held that nobody knows of: a caller that is
    /// there still may ask again, and is given the same lease.
    pub(super) async fn acquire(
        self,
        sent: &AcquireLeaseRequest,
    ) -> Result<AcquireLeaseResponse, Refused> {
        let wanted = mailbox::check_acquire(sent, &self.policy)?;
        let (reply, answer) = oneshot::channel();
        // It counts as long as it goes on.
        let call = self.caller.call();
        tokio::spawn(async move {
            let _call = call;
            let outcome = self.claim(&wanted).await;
            if reply.is_closed()
                && let Ok(Outcome::Granted { claim, .. }) = outcome
                && self.is_gone()
            {
                let resource = self.resource.clone();
                // A lease that cannot be released now ends with its ttl.
                let _ = self.ask(Request::Release { claim, resource }).await;
                return;
            }
            let _ = reply.send(outcome.map(|outcome| self.answered(outcome, &wanted)));
        });
        answer.await.unwrap_or_else(|_| Err(strange()))
    }

    /// True if nobody was told of the caller's lease, and nobody can ask for it again: its run is a connection that is gone.
    fn is_gone(&self) -> bool {
        let is_lost = self.by_connection && self.line.lost_at().is_some();
        is_lost && self.runners().of(self.session, &self.resource).is_none()
    }

    fn answered(&self, outcome: Outcome, wanted: &Wanted) -> AcquireLeaseResponse {
        let (claim, token) = match outcome {
            Outcome::Denied(message) => {
                self.tell(Some(Told::Denied));
                debug!(mailbox = %self.resource, runner = %self.runner, message, "denied a lease");
                return AcquireLeaseResponse { message, ..AcquireLeaseResponse::default() };
            }
            Outcome::Granted { claim, token } => (claim, token),
        };
        self.tell(None);
        let now = clock::now();
        let (status, numbers) = self.last_told();
        let runner = Runner {
            session: self.session,
            resource: self.resource.clone(),
            heard_at: now,
            ttl: wanted.ttl,
            until: now + wanted.ttl + wanted.grace,
            line: Arc::clone(&self.line),
            status: Some(status),
            numbers,
        };
        self.runners().note(now, claim, runner);
        AcquireLeaseResponse {
            success: true,
            message: String::new(),
            lease_expires: Some(in_time(wanted.ttl)),
            valid_for_ms: millis(mailbox::valid_for(wanted.ttl)),
            fencing_token: token,
        }
    }

    /// Status and numbers of the run's last heartbeat for this mailbox.
    fn last_told(&self) -> (Arc<str>, Numbers) {
        let known = self.runners().of(self.session, &self.resource);
        known
            .map(|(_, runner)| (runner.status.unwrap_or_default(), runner.numbers))
            .unwrap_or_default()
    }

    async fn claim(&self, wanted: &Wanted) -> Result<Outcome, Refused> {
        let Wanted { ttl, grace, attributes, .. } = wanted.clone();
        let (status, _) = self.last_told();
        let status = (!status.is_empty()).then(|| status.to_string());
        let attributes = Attributes { status, ..attributes };
        let mark = self.caller.principal.mark;
        let terms = Terms::Lease { grace, attributes, take_over: None };
        let own = mailbox::claim(mark, self.session, &self.resource.name);
        let mut claim = self.claim_of(own, ttl, terms);
        for _ in 0..ATTEMPTS_MAX {
            let Answer::Claim(answer) = self.ask(Request::Claim(claim.clone())).await? else {
                return Err(strange());
            };
            match answer {
                ClaimAnswer::Held { token, .. } => {
                    return Ok(Outcome::Granted { claim: claim.id, token });
                }
                // It was held by an earlier call of this run, and given up.
                ClaimAnswer::Gone(_) => claim.id = self.another_claim()?,
                ClaimAnswer::Quarantined { free_in } => {
                    let detail = format!(
                        "the store has lost its state and grants nothing until earlier leases are over, in {} s",
                        free_in.as_secs().max(1)
                    );
                    return Err(Refused::unavailable(detail, free_in));
                }
                ClaimAnswer::Waiting { .. } => return Err(strange()),
                ClaimAnswer::Contended { holder, .. } => {
                    let Some(holder) = holder else {
                        let message = "mailbox already leased by a runner that is not known";
                        return Ok(Outcome::Denied(message.to_owned()));
                    };
                    if let Some(denied) = self.contend(&holder, wanted, &mut claim).await? {
                        return Ok(Outcome::Denied(denied));
                    }
                }
            }
        }
        Ok(Outcome::Denied("mailbox already leased: its holder changes all the time".to_owned()))
    }

    /// Prepares another attempt after the mailbox was found taken; the reason if there is none.
    async fn contend(
        &self,
        holder: &StandingEntry,
        wanted: &Wanted,
        claim: &mut Claim,
    ) -> Result<Option<String>, Refused> {
        let name = &holder.owner.name;
        match self.relation(holder) {
            Relation::Stranger => {
                return Ok(Some(format!("mailbox already leased by {}", self.called(holder))));
            }
            Relation::Own => {
                claim.id = holder.claim;
                return Ok(None);
            }
            Relation::OtherRun => {}
        }
        let Some(Holder { times, entry, .. }) = self.holder().await? else { return Ok(None) };
        if entry.claim != holder.claim {
            return Ok(None);
        }
        let connection = self.connection(holder);
        let judged = match wanted.legacy {
            true => Ok(std::time::Duration::ZERO),
            false => mailbox::take_over_after(clock::now(), &times, &self.policy, connection),
        };
        match judged {
            Ok(unbeaten) => {
                if let Terms::Lease { take_over, .. } = &mut claim.terms {
                    *take_over = Some(Box::new(TakeOver { from: holder.claim, unbeaten }));
                }
                Ok(None)
            }
            Err(wait) => {
                let until = match wait {
                    None => "and is connected".to_owned(),
                    Some(wait) => format!(
                        "whose last heartbeat was {} s ago; if it has ended, try again in {} s",
                        times.unbeaten.as_secs(),
                        wait.as_secs() + 1
                    ),
                };
                Ok(Some(format!(
                    "mailbox already leased by {name}: held by another {name}, a process that goes by this \
                     runner_id, {until}"
                )))
            }
        }
    }

    pub(super) fn another_claim(&self) -> Result<ClaimId, Refused> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes)
            .map_err(|error| Refused::new(Code::UpstreamUnavailable, error.to_string()))?;
        let id = Builder::from_random_bytes(bytes).into_uuid();
        Ok(ClaimId(self.caller.principal.mark.scoped(id)))
    }
}
