//! The renewal of a mailbox.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::model::{
    Answer, Beat, BeatAnswer, ClaimAnswer, ClaimId, GoneReason, LeaseTimes, Request, StandingEntry,
    Subject, TakeOver, Terms,
};
use tenure_host::clock;
use tenure_proto::prism::admin::v1::{MailboxHeartbeatRequest, MailboxHeartbeatResponse};
use tenure_wire::Attributes;
use tokio::time::sleep;

use super::control::{Asked, Holder, Relation, in_time, millis, strange};
use super::runners::{Numbers, Runner};
use crate::face::refused::Refused;
use crate::mailbox::{self, Connection, Following, Told};

/// How often, and when, it is looked whether a holder's connection ends, before another one is denied the first time.
const END_LOOKS: usize = 5;
const END_LOOK_EVERY: Duration = Duration::from_millis(20);

/// A lease that its runner renews.
struct Renewing {
    claim: ClaimId,
    ttl: Duration,
    grace: Duration,
    /// The status that the routing table shows; `None` if that is not known.
    status: Option<Arc<str>>,
}

/// The lease that a heartbeat is about.
enum Found {
    Own(Renewing),
    /// The lease of another process of the same runner id, or of the caller's former connection.
    OtherRun(Holder),
    /// With what to say.
    None(String),
}

/// A lease that was renewed, or taken over.
struct Renewed {
    claim: ClaimId,
    token: u64,
    ttl: Duration,
    grace: Duration,
}

impl Asked {
    /// Renews a lease for its own ttl, also in its grace.
    ///
    /// It takes one request to the store; of a run that names itself, which may go through several gateways at once,
    /// three, unless the store is this gateway's own. A new status takes two more.
    pub(super) async fn heartbeat(
        &self,
        sent: &MailboxHeartbeatRequest,
    ) -> Result<MailboxHeartbeatResponse, Refused> {
        let status: Arc<str> = mailbox::status(&sent.status)?.unwrap_or_default().into();
        let renewed = match self.found().await? {
            Found::Own(renewing) => self.renew(&renewing, &status).await?,
            Found::OtherRun(holder) => self.follow(&holder, &status).await?,
            Found::None(message) => Err(message),
        };
        let Renewed { claim, token, ttl, grace } = match renewed {
            Ok(renewed) => renewed,
            Err(message) => {
                self.tell(Some(Told::Denied));
                return Ok(denied(message));
            }
        };
        self.tell(None);
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
            heard_at: now,
            ttl,
            until: now + ttl + grace,
            line: Arc::clone(&self.line),
            status: Some(status),
            numbers,
        };
        self.runners().note(now, claim, runner);
        Ok(MailboxHeartbeatResponse {
            lease_renewed: true,
            message: String::new(),
            new_expiration: Some(in_time(ttl)),
            valid_for_ms: millis(mailbox::valid_for(ttl)),
            fencing_token: token,
        })
    }

    /// The lease of the caller; else what to say. What this gateway remembers of a run that names itself may have been
    /// changed through another one.
    async fn found(&self) -> Result<Found, Refused> {
        let known = self.runners().of(self.session, &self.resource);
        let is_ours = self.by_connection || self.face.info.kind == "embedded";
        if let Some((claim, Runner { ttl, status, .. })) = known.clone().filter(|_| is_ours) {
            let grace = self.policy.grace_period;
            return Ok(Found::Own(Renewing { claim, ttl, grace, status }));
        }
        let Some(holder) = self.holder().await? else {
            let first =
                mailbox::claim(self.caller.principal.mark, self.session, &self.resource.name);
            let own = known.map_or(first, |(claim, _)| claim);
            self.runners().forget(own);
            return Ok(Found::None(self.last_word(own).await?));
        };
        Ok(match self.relation(&holder.entry) {
            Relation::Own => {
                let (ttl, grace) = (holder.times.ttl, holder.times.grace);
                Found::Own(Renewing { claim: holder.entry.claim, ttl, grace, status: None })
            }
            Relation::OtherRun
                if self.by_connection && mailbox::is_of_connection(holder.entry.owner.session) =>
            {
                Found::OtherRun(holder)
            }
            _ => Found::None(self.owned(&holder.entry)),
        })
    }

    fn owned(&self, holder: &StandingEntry) -> String {
        format!("lease owned by {}", self.called(holder))
    }

    async fn renew(
        &self,
        renewing: &Renewing,
        status: &Arc<str>,
    ) -> Result<Result<Renewed, String>, Refused> {
        let Renewing { claim, ttl, grace, .. } = *renewing;
        let subject = Subject::Claim { claim, resource: self.resource.clone() };
        let beats = Request::Renew(vec![Beat { subject, ttl }]);
        let Answer::Renew(answers) = self.ask(beats).await? else { return Err(strange()) };
        let answer = answers.first().ok_or_else(strange)?;
        if let Some(reason) = answer.gone() {
            self.runners().forget(claim);
            return Ok(Err(self.loss(reason).await?));
        }
        let BeatAnswer::Held { token, .. } = *answer else { return Err(strange()) };
        if renewing.status.as_ref() != Some(status) {
            self.change_status(renewing, status).await?;
        }
        Ok(Ok(Renewed { claim, token, ttl, grace }))
    }

    /// A heartbeat over another connection than the holder's: it never renews that lease.
    async fn follow(
        &self,
        holder: &Holder,
        status: &str,
    ) -> Result<Result<Renewed, String>, Refused> {
        let Holder { entry, times, asked } = holder;
        let told = self.told();
        let connection = match told {
            None => self.settled_connection(entry).await,
            Some(_) => self.connection(entry),
        };
        match mailbox::follow(*asked, times, &self.policy, connection, told) {
            Following::Another => Ok(Err(self.owned(entry))),
            Following::TakesOver { unbeaten } => self.succeed(holder, unbeaten, status).await,
            Following::Unsure { wait } => {
                if told.is_none() {
                    let unsure = Told::Unsure { at: clock::now(), unbeaten: times.unbeaten };
                    self.tell(Some(unsure));
                }
                let detail = format!(
                    "{}, whose last heartbeat was {} s ago over a connection that this gateway does not know: unless \
                     there is another, the lease goes on, and a heartbeat in {} s renews it",
                    self.owned(entry),
                    times.unbeaten.as_secs(),
                    wait.as_secs() + 1
                );
                Err(Refused::unavailable(detail, wait))
            }
        }
    }

    /// The connection of the holder, after what may be its end has been noticed: a client that reconnects ends its former
    /// connection at the same time.
    #[expect(clippy::disallowed_methods, reason = "a machine that sleeps notices no end meanwhile")]
    async fn settled_connection(&self, holder: &StandingEntry) -> Connection {
        let mut connection = self.connection(holder);
        for _ in 0..END_LOOKS {
            if connection != Connection::Open {
                break;
            }
            sleep(END_LOOK_EVERY).await;
            connection = self.connection(holder);
        }
        connection
    }

    /// Takes over from the former connection, by a claim of the caller's own: that connection's next heartbeat is denied.
    async fn succeed(
        &self,
        Holder { entry, times, .. }: &Holder,
        unbeaten: Duration,
        status: &str,
    ) -> Result<Result<Renewed, String>, Refused> {
        let LeaseTimes { ttl, grace, .. } = *times;
        let Some(attributes) = self.attributes().await? else { return Err(strange()) };
        let status = (!status.is_empty()).then(|| status.to_owned());
        let attributes = Attributes { status, ..attributes };
        let take_over = Some(Box::new(TakeOver { from: entry.claim, unbeaten }));
        let own = mailbox::claim(self.caller.principal.mark, self.session, &self.resource.name);
        let mut claim = self.claim_of(own, ttl, Terms::Lease { grace, attributes, take_over });
        for _ in 0..2 {
            match self.ask(Request::Claim(claim.clone())).await? {
                Answer::Claim(ClaimAnswer::Held { token, .. }) => {
                    self.runners().forget(entry.claim);
                    return Ok(Ok(Renewed { claim: claim.id, token, ttl, grace }));
                }
                // This connection had the mailbox before, and gave it up.
                Answer::Claim(ClaimAnswer::Gone(_)) => claim.id = self.another_claim()?,
                Answer::Claim(ClaimAnswer::Contended { holder: Some(holder), .. }) => {
                    return Ok(Err(self.owned(&holder)));
                }
                _ => return Err(strange()),
            }
        }
        Err(strange())
    }

    /// The reason why nobody holds what the caller would renew: it may have had it.
    async fn last_word(&self, claim: ClaimId) -> Result<String, Refused> {
        let subject = Subject::Claim { claim, resource: self.resource.clone() };
        let beat = Beat { subject, ttl: self.policy.ttl };
        match self.ask(Request::Renew(vec![beat])).await? {
            Answer::Renew(answers) => match answers.first() {
                Some(BeatAnswer::Failed(_)) => Err(strange()),
                answer => Ok(match answer.and_then(BeatAnswer::gone) {
                    Some(reason) => word(reason).to_owned(),
                    None => "lease not found".to_owned(),
                }),
            },
            _ => Err(strange()),
        }
    }

    /// The message about a lease that is lost.
    async fn loss(&self, reason: GoneReason) -> Result<String, Refused> {
        Ok(match self.holder().await? {
            Some(Holder { entry, .. }) => self.owned(&entry),
            None => word(reason).to_owned(),
        })
    }

    /// Has the routing table say how the runner does. The lease was renewed just now, so that this does not grant it.
    async fn change_status(&self, renewing: &Renewing, status: &str) -> Result<(), Refused> {
        let Some(attributes) = self.attributes().await? else { return Ok(()) };
        let status = (!status.is_empty()).then(|| status.to_owned());
        if attributes.status.as_deref() == Some(status.as_deref().unwrap_or(mailbox::ACTIVE)) {
            return Ok(());
        }
        let attributes = Attributes { status, ..attributes };
        let terms = Terms::Lease { grace: renewing.grace, attributes, take_over: None };
        let claim = self.claim_of(renewing.claim, renewing.ttl, terms);
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
