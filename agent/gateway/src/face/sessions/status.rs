//! A project's master and its sessions, as programs see them.

use std::sync::Arc;

use axum::extract::{Request as Call, State};
use axum::http::request::Parts;
use axum::response::Response;
use serde::Serialize;
use tenure_core::model::{Member, Members, Within};
use tenure_service::query;
use tenure_wire::Code;
use tenure_wire::rules::existing_part;

use super::register::default_tenant;
use super::{SESSION, expired, session};
use crate::access::Caller;
use crate::face::Face;
use crate::face::calls::json;
use crate::face::refused::Refused;

/// The state of a project.
#[derive(Debug, Serialize)]
pub(super) struct Status<'a> {
    tenant_id: &'a str,
    project_id: &'a str,
    master: Option<Record<'a>>,
    sessions: Vec<Record<'a>>,
}

/// A session, under the names that its hash in the store has.
#[derive(Debug, Serialize)]
struct Record<'a> {
    session_id: &'a str,
    tenant_id: &'a str,
    project_id: &'a str,
    agent_identity: Option<&'a str>,
    agent_surface: Option<&'a str>,
    machine_id: Option<&'a str>,
    is_master: bool,
    registered_at: Option<&'a str>,
}

/// Tells the state of the project of the caller's session, or of the one that is named.
pub(super) async fn status(State(face): State<Arc<Face>>, call: Call) -> Result<Response, Refused> {
    let caller = face.admit(&call, false)?;
    let (head, _) = call.into_parts();
    let outcome = of_project(&face, &caller, &head).await;
    face.noting(&caller, outcome)
}

async fn of_project(face: &Face, caller: &Caller, head: &Parts) -> Result<Response, Refused> {
    let within = match named(caller, head)? {
        Some(named) => named,
        None if head.headers.contains_key(SESSION) => {
            Within::Session(session(&head.headers, caller)?)
        }
        None => {
            let detail = "which project? send X-Prism-Session-Id, or ?project_id=PROJECT";
            return Err(Refused::new(Code::Invalid, detail));
        }
    };
    let members = face.members(caller, within, true).await?.ok_or_else(expired)?;
    json(&Status::of(&members))
}

/// The project that is asked about, if no session is.
fn named(caller: &Caller, head: &Parts) -> Result<Option<Within>, Refused> {
    let pairs = query::pairs(head.uri.query().unwrap_or_default());
    let mut pairs = pairs.collect::<Result<Vec<_>, _>>()?;
    let mut take = |key: &str| {
        let mut found = pairs.extract_if(.., |(it, _)| it == key).map(|(_, value)| value);
        match (found.next(), found.next()) {
            (value, None) => Ok(value),
            (_, Some(_)) => Err(Refused::field(key, "is there twice; leave one of them")),
        }
    };
    let Some(project) = take("project_id")? else { return Ok(None) };
    let tenant = take("tenant_id")?.unwrap_or_else(|| default_tenant(caller));
    existing_part("project_id", &project)?;
    existing_part("tenant_id", &tenant)?;
    Ok(Some(Within::Project { tenant: tenant.into(), project: project.into() }))
}

impl<'a> Status<'a> {
    pub(super) fn of(members: &'a Members) -> Status<'a> {
        let sessions: Vec<_> =
            members.sessions.iter().map(|member| Record::of(members, member)).collect();
        let (tenant_id, project_id) = (&*members.tenant, &*members.project);
        let master = members.master.as_deref().map(|session_id| {
            let member = members.sessions.iter().find(|member| &*member.session == session_id);
            // A program that is no session of the project may be its master in the store.
            member
                .map_or_else(|| Record::unknown(members, session_id), |it| Record::of(members, it))
        });
        Status { tenant_id, project_id, master, sessions }
    }
}

impl<'a> Record<'a> {
    fn of(members: &'a Members, member: &'a Member) -> Record<'a> {
        let Member { session, name, surface, host, registered_at, .. } = member;
        Record {
            agent_identity: Some(name),
            agent_surface: Some(surface),
            machine_id: Some(host),
            registered_at: registered_at.as_deref(),
            ..Record::unknown(members, session)
        }
    }

    fn unknown(members: &'a Members, session_id: &'a str) -> Record<'a> {
        Record {
            session_id,
            tenant_id: &members.tenant,
            project_id: &members.project,
            agent_identity: None,
            agent_surface: None,
            machine_id: None,
            is_master: members.is_master(session_id),
            registered_at: None,
        }
    }
}
