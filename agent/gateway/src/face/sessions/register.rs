//! The beginning of a session, and the election that comes with it.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request as Call, State};
use axum::http::HeaderMap;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use tenure_core::model::{
    Claim, ClaimId, Members, Owner, Request, SessionId, SessionRecord, Terms, Within, defaults,
};
use tenure_host::clock;
use tenure_wire::rules::{scope, visible};
use tenure_wire::{Code, DEFAULT_TENANT, Role};
use tokio::sync::oneshot;
use uuid::Uuid;

use super::status::Status;
use super::{SESSION, expired, new_id, read};
use crate::access::Caller;
use crate::face::Face;
use crate::face::calls::{body, json};
use crate::face::refused::Refused;

/// A program, as it calls itself.
#[derive(Debug, Clone, Deserialize)]
struct Register {
    project_id: String,
    agent_identity: String,
    #[serde(default)]
    agent_surface: Option<String>,
    #[serde(default)]
    machine_id: Option<String>,
    #[serde(default)]
    tenant_id: Option<String>,
}

/// A session that has begun.
#[derive(Debug, Serialize)]
struct Registered<'a> {
    ok: bool,
    session_id: SessionId,
    role: Role,
    is_master: bool,
    /// s.
    ttl: u64,
    /// s.
    heartbeat_interval: u64,
    controller_status: Status<'a>,
}

/// A session that is to begin.
struct Beginning {
    face: Arc<Face>,
    caller: Caller,
    record: SessionRecord,
    /// True if its program named it, and so can repeat the request.
    is_named: bool,
}

/// Beats in a ttl.
const BEATS_PER_TTL: u64 = 3;

/// Registers a session, and elects it if its project has no master, or one that makes way for it.
pub(super) async fn register(
    State(face): State<Arc<Face>>,
    call: Call,
) -> Result<Response, Refused> {
    let caller = face.admit(&call, false)?;
    let outcome = begin(Arc::clone(&face), &caller, call).await;
    face.noting(&caller, outcome)
}

async fn begin(face: Arc<Face>, caller: &Caller, call: Call) -> Result<Response, Refused> {
    let named = named(call.headers(), caller)?;
    let wanted: Register = read(&body(call).await?)?;
    let session = SessionId(named.map_or_else(|| new_id(caller), Ok)?);
    let record = record(&face, caller, wanted, session)?;
    let identity = [
        &*caller.principal.name,
        &record.tenant,
        &record.project,
        &record.owner.name,
        &record.owner.host,
    ];
    let is_named = named.is_some();
    let known = match is_named {
        true => face.members(caller, Within::Session(session), false).await?,
        false => None,
    };
    if let Some(known) = known.as_ref().filter(|it| !is_of(&record, it)) {
        return Err(elsewhere(session, known));
    }
    // One that goes on with its session may run for master as often as it likes.
    if known.is_none() {
        let calm = face.plane.churn.register(clock::now(), &identity);
        calm.map_err(|wait| over_and_over(&record, wait))?;
    }
    let beginning = Beginning { face, caller: caller.clone(), record, is_named };
    let (reply, answer) = oneshot::channel();
    // Goes on when its caller hangs up, so that nobody is left master whom nobody knows of.
    tokio::spawn(beginning.run(reply));
    answer.await.unwrap_or_else(|_| Err(super::strange()))
}

fn is_of(record: &SessionRecord, Members { tenant, project, .. }: &Members) -> bool {
    (&record.tenant, &record.project) == (tenant, project)
}

/// A session that is master there would leave its project without one that works.
fn elsewhere(session: SessionId, Members { tenant, project, .. }: &Members) -> Refused {
    let detail = format!(
        "x-prism-session-id: session {} is of project {project:?} of tenant {tenant:?}: release it first, or register \
         without that header",
        session.0
    );
    Refused::new(Code::Invalid, detail)
}

impl Beginning {
    async fn run(self, reply: oneshot::Sender<Result<Response, Refused>>) {
        let outcome = self.carry_out().await;
        let is_answered = outcome.is_ok();
        let is_heard = reply.send(outcome).is_ok();
        if self.is_named || (is_answered && is_heard) {
            return;
        }
        let Beginning { face, caller, record, .. } = self;
        let session = record.owner.session;
        // What cannot be ended now ends with its ttl.
        if let Ok(Some(found)) = face.members(&caller, Within::Session(session), false).await {
            let _ = face.end(&caller, session, &found).await;
        }
    }

    async fn carry_out(&self) -> Result<Response, Refused> {
        let Beginning { face, caller, record, .. } = self;
        let session = record.owner.session;
        let claim = Claim {
            id: ClaimId(new_id(caller)?),
            resource: record.master(),
            owner: record.owner.clone(),
            ttl: record.ttl,
            terms: Terms::Master { priority: defaults::priority(&record.surface) },
            enqueue: false,
        };
        let claim = Request::Claim(claim);
        // Before anything is there that would have to be taken back.
        caller.bounds.judge(&claim).map_err(|denied| Refused::denied(&denied))?;
        face.carry_out(caller, Request::Announce(record.clone())).await?;
        // One that is master already keeps that.
        let role = match self.is_named {
            true => face.beat(caller, session).await?.ok_or_else(expired)?,
            false => Role::Peer,
        };
        if role != Role::Master {
            face.carry_out(caller, claim).await?;
        }
        let members = face.members(caller, Within::Session(session), true).await?;
        let members = members.ok_or_else(expired)?;
        let is_master = members.is_master(&session.to_string());
        let ttl = record.ttl.as_secs();
        json(&Registered {
            ok: true,
            session_id: session,
            role: if is_master { Role::Master } else { Role::Peer },
            is_master,
            ttl,
            heartbeat_interval: (ttl / BEATS_PER_TTL).max(1),
            controller_status: Status::of(&members),
        })
    }
}

/// The session that its program goes on with, or begins under an id of its own choice.
fn named(headers: &HeaderMap, caller: &Caller) -> Result<Option<Uuid>, Refused> {
    let Some(shown) = headers.get(SESSION) else { return Ok(None) };
    let id = shown.to_str().ok().and_then(|text| text.parse::<Uuid>().ok()).ok_or_else(|| {
        let detail = "X-Prism-Session-Id: must be a UUID, or be left out for a new session";
        Refused::new(Code::Invalid, detail)
    })?;
    Ok(Some(caller.principal.mark.scoped(id)))
}

fn record(
    face: &Face,
    caller: &Caller,
    wanted: Register,
    session: SessionId,
) -> Result<SessionRecord, Refused> {
    let Register { project_id, agent_identity, agent_surface, machine_id, tenant_id } = wanted;
    let tenant = tenant_id.unwrap_or_else(|| default_tenant(caller));
    let surface = agent_surface.unwrap_or_else(|| defaults::SURFACE.to_owned());
    let host = machine_id.unwrap_or_else(|| "unknown".to_owned());
    scope("tenant_id", &tenant)?;
    scope("project_id", &project_id)?;
    visible("agent_identity", &agent_identity)?;
    visible("agent_surface", &surface)?;
    visible("machine_id", &host)?;
    Ok(SessionRecord {
        owner: Owner { session, host: host.into(), name: agent_identity.into() },
        tenant: tenant.into(),
        project: project_id.into(),
        surface: surface.into(),
        ttl: face.plane.ttl(caller),
        registered_at: None,
    })
}

/// The tenant of a caller that names none: the only one that its key covers.
pub(in crate::face) fn default_tenant(caller: &Caller) -> String {
    let globs = caller.bounds.scope.tenants.as_ref().map_or(&[][..], |globs| globs.texts());
    match globs {
        [only] if !only.contains(['*', '?', '[', '{', '\\']) => only.clone(),
        _ => DEFAULT_TENANT.to_owned(),
    }
}

fn over_and_over(record: &SessionRecord, wait: Duration) -> Refused {
    let detail = format!(
        "{:?} on {:?} registers over and over: perhaps two programs go by this identity, and each ends the \
         other's session; wait as long as Retry-After says, or give them identities of their own",
        record.owner.name, record.owner.host
    );
    Refused::later(detail, wait)
}
