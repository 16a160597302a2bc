//! The renewal of a mailbox.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::model::{
    Answer, Beat, BeatAnswer, Claim, ClaimAnswer, ClaimId, GoneReason, Owner, Request, Subject,
    Terms,
};
use tenure_host::clock;
use tenure_proto::prism::admin::v1::{MailboxHeartbeatRequest, MailboxHeartbeatResponse};

use tenure_wire::Attributes;

use super::control::{Asked, Holder, Relation, in_time, millis, strange};
use super::runners::{Numbers, Runner};
use crate::face::refused::Refused;
use crate::mailbox;

/// A lease that its runner renews.
struct Renewing {
    claim: ClaimId,
    ttl: Duration,
    grace: Duration,
    /// The status that the routing table shows; `None` if that is not known.
    status: Option<Arc<str>>,
}

impl Asked {
    /// Renews a lease for its own ttl, also in its grace.
    pub(super) async fn heartbeat(
        &self,
        sent: &MailboxHeartbeatRequest,
    ) -> Result<MailboxHeartbeatResponse, Refused> {
        let status = mailbox::status(&sent.status)?;
        let renewing = match self.renewing().await? {
            Ok(renewing) => renewing,
            Err(message) => return Ok(denied(message)),
        };
        let beat = Beat {
            subject: Subject::Claim { claim: renewing.claim, resource: self.resource.clone() },
            ttl: renewing.ttl,
        };
        let Answer::Renew(answers) = self.ask(Request::Renew(vec![beat])).await? else {
            return Err(strange());
        };
        let token = match answers.first() {
            Some(BeatAnswer::Held { token, .. }) => *token,
            Some(BeatAnswer::Gone(reason)) => {
                self.runners().forget(renewing.claim);
                return Ok(denied(self.loss(*reason).await?));
            }
            _ => return Err(strange()),
        };
        let status: Arc<str> = status.unwrap_or_default().into();
        if renewing.status.as_ref() != Some(&status) {
            self.change_status(&renewing, &status).await?;
        }
        let now = clock::now();
        let count = |number: i64| u64::try_from(number).unwrap_or(0);
        let numbers = Numbers {
            events_stored: count(sent.events_stored),
            queries_served: count(sent.queries_served),
            storage_bytes: count(sent.storage_size_bytes),
        };
        let runner = Runner {
            session: self.session,
            resource: self.resource.clone(),
            ttl: renewing.ttl,
            until: now + renewing.ttl + renewing.grace,
            line: Arc::clone(&self.line),
            status: Some(status),
            numbers,
        };
        self.runners().note(now, renewing.claim, runner);
        Ok(MailboxHeartbeatResponse {
            lease_renewed: true,
            message: String::new(),
            new_expiration: Some(in_time(renewing.ttl)),
            valid_for_ms: millis(mailbox::valid_for(renewing.ttl)),
            fencing_token: token,
        })
    }

    /// The lease of the caller; else what to say. One that this gateway does not know is in the store.
    async fn renewing(&self) -> Result<Result<Renewing, String>, Refused> {
        if let Some((claim, known)) = self.runners().of(self.session, &self.resource) {
            let grace = self.policy.grace_period;
            return Ok(Ok(Renewing { claim, ttl: known.ttl, grace, status: known.status }));
        }
        let Some(Holder { entry, times }) = self.holder().await? else {
            let own = mailbox::claim(self.caller.principal.mark, self.session, &self.resource.name);
            return Ok(Err(self.last_word(own).await?));
        };
        Ok(match self.relation(&entry) {
            Relation::Own => {
                let (ttl, grace) = (times.ttl, times.grace);
                Ok(Renewing { claim: entry.claim, ttl, grace, status: None })
            }
            _ => Err(format!("lease owned by {}", self.called(&entry))),
        })
    }

    /// The reason why nobody holds what the caller would renew: it may have had it.
    async fn last_word(&self, claim: ClaimId) -> Result<String, Refused> {
        let subject = Subject::Claim { claim, resource: self.resource.clone() };
        let beat = Beat { subject, ttl: self.policy.ttl };
        match self.ask(Request::Renew(vec![beat])).await? {
            Answer::Renew(answers) => Ok(match answers.first() {
                Some(BeatAnswer::Gone(reason)) => word(*reason).to_owned(),
                _ => "lease not found".to_owned(),
            }),
            _ => Err(strange()),
        }
    }

    /// The message about a lease that is lost.
    async fn loss(&self, reason: GoneReason) -> Result<String, Refused> {
        Ok(match self.holder().await? {
            Some(Holder { entry, .. }) => format!("lease owned by {}", self.called(&entry)),
            None => word(reason).to_owned(),
        })
    }

    /// Has the routing table say how the runner does. The lease was renewed just now, so that this does not grant it.
    async fn change_status(&self, renewing: &Renewing, status: &str) -> Result<(), Refused> {
        let Some(attributes) = self.attributes().await? else { return Ok(()) };
        let status = (!status.is_empty()).then(|| status.to_owned());
        let attributes = Attributes { status, ..attributes };
        let claim = Claim {
            id: renewing.claim,
            resource: self.resource.clone(),
            owner: Owner {
                session: self.session,
                host: "unknown".into(),
                name: Arc::clone(&self.runner),
            },
            ttl: renewing.ttl,
            terms: Terms::Lease { grace: renewing.grace, attributes, take_over: None },
            enqueue: false,
        };
        match self.ask(Request::Claim(claim)).await? {
            Answer::Claim(ClaimAnswer::Held { .. } | ClaimAnswer::Gone(_)) => Ok(()),
            _ => Err(strange()),
        }
    }
}

fn denied(message: String) -> MailboxHeartbeatResponse {
    MailboxHeartbeatResponse { message, ..MailboxHeartbeatResponse::default() }
}

fn word(reason: GoneReason) -> &'static str {
    match reason {
        GoneReason::Expired => "lease expired beyond grace period",
        GoneReason::Revoked => "lease taken away by an administrator",
        GoneReason::Conflict | GoneReason::Preempted => "lease taken over by another process",
        GoneReason::Released | GoneReason::Unknown => "lease not found",
    }
}
