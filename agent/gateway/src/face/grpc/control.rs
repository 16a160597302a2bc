//! The service, as its callers see it: each method is a few questions to the store.

use std::sync::Arc;
use std::time::Duration;

use prost_types::Timestamp;
use tenure_core::model::{
    Answer, Claim, ClaimId, LeaseTimes, Owner, Request, Resource, SessionId, StandingEntry, Terms,
    UpstreamStanding,
};
use tenure_core::time::Boottime;
use tenure_host::clock;
use tenure_proto::prism::admin::v1 as pb;
use tenure_proto::prism::admin::v1::control_plane_server;
use tenure_wire::rules::{self, Checked};
use tenure_wire::{Attributes, Code, Kind};
use tonic::{Response, Status};
use uuid::Uuid;

use super::runners::Runners;
use crate::access::Caller;
use crate::face::Face;
use crate::face::line::Line;
use crate::face::refused::Refused;
use crate::face::sessions::default_tenant;
use crate::mailbox::{self, Connection, GatewayRun, Incarnation, Policies, Policy, Told};
use crate::metrics::Tally;
use crate::trail::By;

/// The metadata that says which run of its program a caller is.
const INCARNATION: &str = "x-tenure-incarnation";
/// The metadata with the tenant, of a key that covers several.
const TENANT: &str = "x-tenure-tenant";

/// The control plane: its policies, and the runners that it has met.
#[derive(Debug)]
pub struct ControlPlane {
    policies: Policies,
    run: GatewayRun,
    pub(super) runners: Runners,
}

impl ControlPlane {
    pub fn new(policies: Policies, run: GatewayRun) -> ControlPlane {
        ControlPlane { policies, run, runners: Runners::default() }
    }

    /// The numbers of its runners.
    pub(in crate::face) fn tally(&self, now: Boottime) -> Tally {
        self.runners.tally(now)
    }

    /// The mailboxes whose runners' calls come through this gateway, and when the last one came.
    pub(in crate::face) fn heard(&self, now: Boottime) -> Vec<(Resource, Boottime)> {
        self.runners.heard(now)
    }
}

/// A call about a mailbox.
pub(super) struct Asked {
    pub(super) face: Arc<Face>,
    pub(super) caller: Caller,
    pub(super) line: Arc<Line>,
    pub(super) resource: Resource,
    pub(super) runner: Arc<str>,
    pub(super) session: SessionId,
    /// Its program did not say which run of it this is.
    pub(super) by_connection: bool,
    pub(super) policy: Policy,
}

/// The holder of a mailbox, in the store.
pub(super) struct Holder {
    pub(super) entry: StandingEntry,
    pub(super) times: LeaseTimes,
    /// When it was asked for.
    pub(super) asked: Boottime,
}

/// The caller's relation to the holder of a mailbox.
pub(super) enum Relation {
    /// It is the caller.
    Own,
    /// It goes by the same runner id: another process, or the caller's former connection.
    OtherRun,
    Stranger,
}

impl Asked {
    fn of<T>(
        face: &Arc<Face>,
        request: &tonic::Request<T>,
        (mailbox_id, runner_id): (&str, &str),
    ) -> Result<Asked, Refused> {
        let missing = || Refused::new(Code::UpstreamUnavailable, "the connection is not known");
        let caller: &Caller = request.extensions().get().ok_or_else(missing)?;
        let line: &Arc<Line> = request.extensions().get().ok_or_else(missing)?;
        mailbox::check_ids(mailbox_id, runner_id)?;
        let text = |name: &'static str,
                    check: fn(&str, &str) -> Checked|
         -> Result<Option<String>, Refused> {
            let Some(value) = request.metadata().get(name) else { return Ok(None) };
            let rule = "must be text";
            let text = value.to_str().map_err(|_| Refused::field(name, rule))?;
            check(name, text)?;
            Ok(Some(text.to_owned()))
        };
        let tenant = text(TENANT, rules::tenant)?.unwrap_or_else(|| default_tenant(caller));
        let run = text(INCARNATION, rules::visible)?;
        let by_connection = run.is_none();
        let connection = Incarnation::Connection(line.id, face.control.run);
        let run = run.map_or(connection, Incarnation::Said);
        let principal = &caller.principal;
        let resource =
            Resource { tenant: tenant.into(), kind: Kind::Lease, name: mailbox_id.into() };
        let judged = caller.bounds.judge(&Request::Inspect(resource.clone()));
        judged.map_err(|denied| Refused::denied(&denied))?;
        Ok(Asked {
            session: mailbox::session(principal.mark, &principal.name, runner_id, &run),
            policy: face.control.policies.of(mailbox_id),
            face: Arc::clone(face),
            caller: caller.clone(),
            line: Arc::clone(line),
            resource,
            runner: runner_id.into(),
            by_connection,
        })
    }

    pub(super) fn runners(&self) -> &Runners {
        &self.face.control.runners
    }

    pub(super) async fn ask(&self, request: Request) -> Result<Answer, Refused> {
        self.face.carry_out(&self.caller, request).await
    }

    /// The holder of the mailbox.
    pub(super) async fn holder(&self) -> Result<Option<Holder>, Refused> {
        let asked = clock::now();
        let Answer::Standing(standing) = self.ask(Request::Inspect(self.resource.clone())).await?
        else {
            return Err(strange());
        };
        let UpstreamStanding { holders, lease, .. } = standing;
        let found = holders.into_iter().next().zip(lease);
        Ok(found.map(|(entry, times)| Holder { entry, times, asked }))
    }

    /// The caller's relation to the holder.
    pub(super) fn relation(&self, holder: &StandingEntry) -> Relation {
        let mark = self.caller.principal.mark;
        if holder.owner.name != self.runner || !mark.is_of(holder.claim.0) {
            return Relation::Stranger;
        }
        if holder.owner.session == self.session { Relation::Own } else { Relation::OtherRun }
    }

    /// The connection of the holder.
    pub(super) fn connection(&self, holder: &StandingEntry) -> Connection {
        let of_earlier_run = self.face.control.run.is_before(holder.owner.session);
        match self.runners().connection(holder.claim) {
            Connection::Unknown if of_earlier_run => Connection::Over,
            known => known,
        }
    }

    /// The last word to the connection of a run that did not name itself, of the mailbox.
    pub(super) fn told(&self) -> Option<Told> {
        self.line.told(self.matter())
    }

    pub(super) fn tell(&self, told: Option<Told>) {
        if self.by_connection {
            self.line.tell(self.matter(), told);
        }
    }

    fn matter(&self) -> Uuid {
        mailbox::matter(self.session, &self.resource.tenant, &self.resource.name)
    }

    /// A claim of the caller for the mailbox.
    pub(super) fn claim_of(&self, id: ClaimId, ttl: Duration, terms: Terms) -> Claim {
        let host = self.caller.peer.map_or_else(|| "unknown".to_owned(), |it| it.ip().to_string());
        Claim {
            id,
            resource: self.resource.clone(),
            owner: Owner { session: self.session, host: host.into(), name: self.runner.clone() },
            ttl,
            terms,
            enqueue: false,
        }
    }

    /// How the holder is called in an answer.
    pub(super) fn called(&self, holder: &StandingEntry) -> String {
        match self.relation(holder) {
            Relation::OtherRun => format!("another {}", holder.owner.name),
            _ if holder.owner.name == self.runner => {
                format!("another {}, which has another key", holder.owner.name)
            }
            _ => holder.owner.name.to_string(),
        }
    }

    /// The line of the routing table, with the status that it has.
    pub(super) async fn attributes(&self) -> Result<Option<Attributes>, Refused> {
        let Resource { tenant, name, .. } = self.resource.clone();
        let page = tenure_core::model::Page::whole();
        let routes = Request::Routes { tenant, name: Some(name), page };
        let Answer::Routes(routes) = self.ask(routes).await? else { return Err(strange()) };
        Ok(routes.routes.into_iter().next().map(|route| Attributes {
            address: Some(route.address).filter(|it| !it.is_empty()),
            proxy_id: Some(route.proxy_id).filter(|it| !it.is_empty()),
            partition: Some(route.partition),
            status: Some(route.status),
        }))
    }

    /// The claim that the caller has the mailbox by, if it has; else what to say.
    async fn own_claim(&self) -> Result<Result<ClaimId, String>, Refused> {
        if let Some((claim, _)) = self.runners().of(self.session, &self.resource) {
            return Ok(Ok(claim));
        }
        Ok(match self.holder().await? {
            None => Err("lease not found".to_owned()),
            Some(Holder { entry, .. }) => match self.relation(&entry) {
                Relation::Own => Ok(entry.claim),
                _ => Err(format!("lease owned by {}", self.called(&entry))),
            },
        })
    }

    async fn release(&self) -> Result<pb::ReleaseLeaseResponse, Refused> {
        let claim = match self.own_claim().await? {
            Ok(claim) => claim,
            Err(message) => return Ok(pb::ReleaseLeaseResponse { released: false, message }),
        };
        let request = Request::Release { claim, resource: self.resource.clone() };
        let Answer::Released(released) = self.ask(request).await? else { return Err(strange()) };
        self.runners().forget(claim);
        let message = if released { String::new() } else { "lease not found".to_owned() };
        Ok(pb::ReleaseLeaseResponse { released, message })
    }
}

/// An answer to another question, which no store gives.
pub(super) fn strange() -> Refused {
    Refused::new(Code::UpstreamUnavailable, "the store did not answer the question")
}

/// The wall-clock time after so long.
pub(super) fn in_time(time: Duration) -> Timestamp {
    let at = Duration::from_micros(clock::wall_us()).saturating_add(time);
    let seconds = i64::try_from(at.as_secs()).unwrap_or(i64::MAX);
    Timestamp { seconds, nanos: i32::try_from(at.subsec_nanos()).unwrap_or(0) }
}

pub(super) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The service.
pub(super) struct Service(pub(super) Arc<Face>);

impl Service {
    fn noting<R, T>(
        &self,
        request: &tonic::Request<R>,
        answer: Result<T, Refused>,
    ) -> Result<Response<T>, Status> {
        let by = || request.extensions().get::<Caller>().map_or_else(By::default, By::from);
        answer.map(Response::new).map_err(|refused| self.0.refuse(by(), &refused))
    }
}

#[tonic::async_trait]
impl control_plane_server::ControlPlane for Service {
    async fn acquire_lease(
        &self,
        request: tonic::Request<pb::AcquireLeaseRequest>,
    ) -> Result<Response<pb::AcquireLeaseResponse>, Status> {
        let sent = request.get_ref();
        let asked = Asked::of(&self.0, &request, (&sent.mailbox_id, &sent.runner_id));
        let answer = match asked {
            Ok(asked) => asked.acquire(sent).await,
            Err(refused) => Err(refused),
        };
        self.noting(&request, answer)
    }

    async fn release_lease(
        &self,
        request: tonic::Request<pb::ReleaseLeaseRequest>,
    ) -> Result<Response<pb::ReleaseLeaseResponse>, Status> {
        let sent = request.get_ref();
        let asked = Asked::of(&self.0, &request, (&sent.mailbox_id, &sent.runner_id));
        let answer = match asked {
            Ok(asked) => asked.release().await,
            Err(refused) => Err(refused),
        };
        self.noting(&request, answer)
    }

    async fn mailbox_heartbeat(
        &self,
        request: tonic::Request<pb::MailboxHeartbeatRequest>,
    ) -> Result<Response<pb::MailboxHeartbeatResponse>, Status> {
        let sent = request.get_ref();
        let asked = Asked::of(&self.0, &request, (&sent.mailbox_id, &sent.runner_id));
        let answer = match asked {
            Ok(asked) => asked.heartbeat(sent).await,
            Err(refused) => Err(refused),
        };
        self.noting(&request, answer)
    }

    async fn update_mailbox_route(
        &self,
        _: tonic::Request<pb::MailboxRouteUpdate>,
    ) -> Result<Response<pb::MailboxRouteUpdateAck>, Status> {
        Err(Status::unimplemented("proxies serve this method: the control plane calls it"))
    }

    async fn remove_mailbox_route(
        &self,
        _: tonic::Request<pb::MailboxRouteRemoval>,
    ) -> Result<Response<pb::MailboxRouteRemovalAck>, Status> {
        Err(Status::unimplemented("proxies serve this method: the control plane calls it"))
    }
}
