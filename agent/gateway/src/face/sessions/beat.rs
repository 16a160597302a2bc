//! Signs of life of a session, and its end.

use std::sync::Arc;

use axum::extract::{Request as Call, State};
use axum::http::HeaderMap;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use tenure_core::model::{Answer, Beat, BeatAnswer, Members, Request, SessionId, Subject, Within};
use tenure_wire::Role;

use super::{expired, read, session, strange};
use crate::access::Caller;
use crate::face::Face;
use crate::face::calls::{body, json};
use crate::face::refused::Refused;
use crate::trail::By;

/// The body of a heartbeat, which may be left out. A checkpoint is a heartbeat, and nothing else.
#[derive(Debug, Deserialize)]
struct Heartbeat {
    #[serde(default, rename = "checkpoint")]
    _checkpoint: bool,
}

#[derive(Debug, Serialize)]
struct Beaten {
    ok: bool,
    /// s.
    ttl_remaining: u64,
    role: Role,
}

#[derive(Debug, Serialize)]
struct Released {
    ok: bool,
    /// False if there was no such session any more.
    released: bool,
}

/// Has a session, and the master that it holds, live on.
pub(super) async fn heartbeat(
    State(face): State<Arc<Face>>,
    call: Call,
) -> Result<Response, Refused> {
    let caller = face.admit(&call, true)?;
    let (head, rest) = call.into_parts();
    let outcome = async {
        let session = session(&head.headers, &caller)?;
        let sent = body(Call::from_parts(head, rest)).await?;
        if !sent.is_empty() {
            read::<Heartbeat>(&sent)?;
        }
        let role = face.beat(&caller, session).await?.ok_or_else(expired)?;
        json(&Beaten { ok: true, ttl_remaining: face.plane.ttl(&caller).as_secs(), role })
    };
    face.noting(&caller, outcome.await)
}

/// Ends a session, and gives up the master that it holds.
pub(super) async fn release(
    State(face): State<Arc<Face>>,
    call: Call,
) -> Result<Response, Refused> {
    let caller = face.admit(&call, false)?;
    let outcome = release_session(&face, &caller, call.headers()).await;
    face.noting(&caller, outcome)
}

async fn release_session(
    face: &Face,
    caller: &Caller,
    headers: &HeaderMap,
) -> Result<Response, Refused> {
    let session = session(headers, caller)?;
    let found = face.project_of(caller, session).await?;
    if let Some(found) = &found {
        face.end(caller, session, found).await?;
    }
    json(&Released { ok: true, released: found.is_some() })
}

impl Face {
    /// Has a session live on; its role, or `None` if it has ended.
    pub(super) async fn beat(
        &self,
        caller: &Caller,
        session: SessionId,
    ) -> Result<Option<Role>, Refused> {
        let Some(found) = self.project_of(caller, session).await? else { return Ok(None) };
        let (ttl, master) = (self.plane.ttl(caller), found.resource());
        let mut beats =
            vec![Beat { subject: Subject::Session { session, master: master.clone() }, ttl }];
        if found.is_master(&session.to_string())
            && let Some(claim) = found.master_claim
        {
            beats.push(Beat { subject: Subject::Claim { claim, resource: master }, ttl });
        }
        match self.carry_out(caller, Request::Renew(beats)).await? {
            Answer::Renew(answers) => match answers.first() {
                Some(BeatAnswer::Session { role }) => Ok(Some(*role)),
                Some(BeatAnswer::Gone(_)) => Ok(None),
                _ => Err(strange()),
            },
            _ => Err(strange()),
        }
    }

    /// The project of a session, `None` if that has ended. Writes down, once, what it has lost since it was heard of last:
    /// its beats are of what it has, and would not tell.
    async fn project_of(
        &self,
        caller: &Caller,
        session: SessionId,
    ) -> Result<Option<Members>, Refused> {
        let account = &caller.principal.account;
        let master = account.master_of(session);
        let found = self.members(caller, Within::Session(session), false).await?;
        let still = found.as_ref().filter(|it| it.is_master(&session.to_string()));
        if let Some((claim, resource)) = master
            && still.and_then(|it| it.master_claim) != Some(claim)
        {
            self.learn_end(&caller.principal, claim, resource).await;
        }
        if found.is_none()
            && let Some(fact) = account.session_lost(session)
        {
            self.people.changes.tell_fact(&fact);
            self.trail.tell(By::from(caller), fact);
        }
        Ok(found)
    }

    /// Ends a session of that project.
    pub(super) async fn end(
        &self,
        caller: &Caller,
        session: SessionId,
        found: &Members,
    ) -> Result<(), Refused> {
        if found.is_master(&session.to_string())
            && let Some(claim) = found.master_claim
        {
            let resource = found.resource();
            self.carry_out(caller, Request::Release { claim, resource }).await?;
        }
        let (tenant, project) = (Arc::clone(&found.tenant), Arc::clone(&found.project));
        self.carry_out(caller, Request::EndSession { session, tenant, project }).await?;
        Ok(())
    }
}
