//! Calls to a session plane, and the meaning of its answers.

use std::time::Duration;

use hyper::StatusCode;
use hyper::header::{HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};
use tenure_core::model::{
    Beat, BeatAnswer, Claim, ClaimAnswer, Failure, GoneReason, Owner, Resource, SessionRecord,
    Subject, Terms, defaults,
};
use tenure_wire::{Kind, Role};

use super::project::{Own, Project, Session};
use super::{Projects, denied};
use crate::gateway::Line;
use crate::gateway::http::{Answered, CallError, Http, Turn};

const REGISTER: &str = "/api/v1/controller/register";
const HEARTBEAT: &str = "/api/v1/controller/heartbeat";
const RELEASE: &str = "/api/v1/controller/release";
const STATUS: &str = "/api/v1/controller/status";
/// The header with the session that a request is about.
const SESSION: &str = "x-prism-session-id";

#[derive(Serialize)]
struct Register<'a> {
    tenant_id: &'a str,
    project_id: &'a str,
    agent_identity: &'a str,
    agent_surface: &'a str,
    machine_id: &'a str,
}

#[derive(Deserialize)]
struct Registered {
    session_id: Box<str>,
}

#[derive(Deserialize)]
struct Beaten {
    /// s.
    ttl_remaining: u64,
}

/// An operation, and the connection for its calls.
pub(super) struct Caller<'a> {
    pub(super) http: &'a Http,
    pub(super) line: &'a Line,
}

/// Asks for a status that any session plane gives.
pub(in crate::gateway) async fn probe(turn: Turn<'_>) -> Result<Answered, CallError> {
    let resource = Resource {
        tenant: tenure_wire::DEFAULT_TENANT.into(),
        kind: Kind::Master,
        name: tenure_wire::DEFAULT_PROJECT.into(),
    };
    ask_status(turn, &resource).await
}

/// True if it is the status of a project.
pub(in crate::gateway) fn is_status(body: &[u8]) -> bool {
    serde_json::from_slice::<Project>(body).is_ok()
}

/// A project; `None` if it is not shown now.
pub(super) async fn look(
    turn: Turn<'_>,
    resource: &Resource,
) -> Result<Option<Project>, CallError> {
    let answered = ask_status(turn, resource).await?;
    Ok(serde_json::from_slice(&answered.body).ok().filter(|_| answered.status == StatusCode::OK))
}

async fn ask_status(turn: Turn<'_>, resource: &Resource) -> Result<Answered, CallError> {
    let path = status_of(resource);
    Answered::read(turn.get(&path).await?).await
}

fn status_of(resource: &Resource) -> String {
    let mut query = form_urlencoded::Serializer::new(format!("{STATUS}?"));
    query.append_pair("tenant_id", &resource.tenant).append_pair("project_id", &resource.name);
    query.finish()
}

impl Caller<'_> {
    /// Registers a session that was announced, if it does not become master by that.
    pub(super) async fn list(&self, record: &SessionRecord) -> Result<(), Failure> {
        let (master, session) = (record.master(), record.owner.session);
        let project = self.status(&master).await?;
        if let Some(listed) = project.of_session(session) {
            if self.heartbeat(listed).await?.is_some() {
                return self.yield_unasked(&project, listed).await.map(drop);
            }
            // A row that was left behind.
            self.end([listed]).await?;
        }
        if project.is_open_to(&record.surface) {
            return Ok(());
        }
        let own = Own::Session(session);
        self.register(&master, &record.owner, &record.surface, own).await?;
        // The master may have gone just before.
        let project = self.status(&master).await.map_err(uncertain)?;
        match project.of_session(session) {
            Some(listed) => self.yield_unasked(&project, listed).await.map(drop),
            None => Ok(()),
        }
    }

    /// Ends a session that was elected and did not run.
    async fn yield_unasked(&self, project: &Project, listed: &Session) -> Result<bool, Failure> {
        let is_unasked = matches!(listed.own(), Some(Own::Session(_)));
        match is_unasked && project.is_master(listed) {
            true => self.end([listed]).await,
            false => Ok(false),
        }
    }

    /// Runs for master, if whoever runs now wins.
    pub(super) async fn claim(
        &self,
        claim: &Claim,
        surface: &str,
        floor: u64,
    ) -> Result<ClaimAnswer, Failure> {
        check_priority(claim, surface)?;
        let (resource, session) = (&claim.resource, claim.owner.session);
        let mut project = self.status(resource).await?;
        let is_new = project.of_claim(claim.id).is_none();
        if is_new {
            if !project.is_open_to(surface) {
                return Ok(contended(&project));
            }
            let own = Own::Claim(session, claim.id);
            self.register(resource, &claim.owner, surface, own).await?;
            project = self.status(resource).await.map_err(uncertain)?;
        }
        let Some(own) = project.of_claim(claim.id) else { return Ok(contended(&project)) };
        if !project.is_master(own) {
            // Somebody was faster.
            self.end([own]).await.map_err(uncertain)?;
            return Ok(contended(&project));
        }
        let kept = self.heartbeat(own).await.map_err(uncertain)?;
        let token = own.token().filter(|token| !is_new || *token > floor);
        let refusal = match (kept, token) {
            (None, _) => return Ok(contended(&project)),
            (Some(kept), _) if kept < claim.ttl => ttl_too_long(claim, kept),
            (_, None) => clock_went_back(own),
            (_, Some(token)) => {
                let listed =
                    project.sessions().filter(|it| it.own() == Some(Own::Session(session)));
                // A rest expires.
                let _ = self.end(listed).await;
                return Ok(ClaimAnswer::Held { token, limit: None, limit_was: None });
            }
        };
        self.end([own]).await.map_err(uncertain)?;
        Err(refusal)
    }

    /// Beats one after the other: a batch takes as many round trips, and some for each project.
    pub(super) async fn renew(&self, beats: &[Beat]) -> Result<Vec<BeatAnswer>, Failure> {
        let before = self.projects(beats).await?;
        let mut kept = Vec::with_capacity(beats.len());
        for beat in beats {
            kept.push(match before.get(master_of(beat)).and_then(|it| registered(it, beat)) {
                Some(own) => self.heartbeat(own).await.map_err(uncertain)?.map(|ttl| (own, ttl)),
                None => None,
            });
        }
        // Only a look after its heartbeat says that a master still was one at that instant.
        let after = self.projects(beats).await.map_err(uncertain)?;
        let mut answers = Vec::with_capacity(beats.len());
        for (beat, kept) in beats.iter().zip(kept) {
            let Some(project) = after.get(master_of(beat)) else {
                answers.push(BeatAnswer::Gone(GoneReason::Unknown));
                continue;
            };
            answers.push(match (&beat.subject, kept) {
                (Subject::Claim { .. }, Some((own, ttl))) => held(project, own, ttl, beat),
                (Subject::Session { .. }, Some((own, _))) => {
                    match self.yield_unasked(project, own).await.map_err(uncertain)? {
                        true => BeatAnswer::Session { role: Role::Peer },
                        false => BeatAnswer::Session { role: role(project, own) },
                    }
                }
                // It cannot be listed without a master; else it is announced again.
                (Subject::Session { .. }, None) if project.master().is_none() => {
                    BeatAnswer::Session { role: Role::Peer }
                }
                (_, None) => BeatAnswer::Gone(GoneReason::Unknown),
            });
        }
        Ok(answers)
    }

    async fn projects<'b>(&self, beats: &'b [Beat]) -> Result<Projects<'b>, Failure> {
        let mut projects = Projects::new();
        for resource in beats.iter().map(master_of).filter(|it| it.kind == Kind::Master) {
            if !projects.contains_key(resource) {
                projects.insert(resource, self.status(resource).await?);
            }
        }
        Ok(projects)
    }

    /// A project as it is now.
    pub(super) async fn status(&self, resource: &Resource) -> Result<Project, Failure> {
        let turn = self.turn().await?;
        let answered = understood(ask_status(turn, resource).await)?;
        let project = self.accepted(answered)?;
        read(&project).map_err(|failure| Failure::Unavailable(failure.cause().to_owned()))
    }

    async fn register(
        &self,
        resource: &Resource,
        owner: &Owner,
        surface: &str,
        own: Own,
    ) -> Result<(), Failure> {
        let machine_id = own.machine_id(&owner.host);
        let register = Register {
            tenant_id: &resource.tenant,
            project_id: &resource.name,
            agent_identity: &owner.name,
            agent_surface: surface,
            machine_id: &machine_id,
        };
        let body = serde_json::to_vec(&register).unwrap_or_default();
        let answered = understood(self.turn().await?.post(REGISTER, body).await)?;
        read::<Registered>(&self.accepted(answered)?).map(|it| drop(it.session_id))
    }

    /// Has a session live on: for how long, or `None` if it has ended.
    async fn heartbeat(&self, session: &Session) -> Result<Option<Duration>, Failure> {
        let answered = self.post_for(session, HEARTBEAT).await?;
        if answered.status == StatusCode::GONE {
            return Ok(None);
        }
        let Beaten { ttl_remaining } = read(&self.accepted(answered)?)?;
        Ok(Some(Duration::from_secs(ttl_remaining)))
    }

    /// Ends sessions, and with them what they are master of; whether one was there.
    pub(super) async fn end(
        &self,
        sessions: impl IntoIterator<Item = &Session>,
    ) -> Result<bool, Failure> {
        let mut found = false;
        for session in sessions {
            let answered = self.post_for(session, RELEASE).await?;
            if !matches!(answered.status, StatusCode::GONE | StatusCode::NOT_FOUND) {
                self.accepted(answered)?;
                found = true;
            }
        }
        Ok(found)
    }

    async fn post_for(&self, session: &Session, path: &str) -> Result<Answered, Failure> {
        let id = HeaderValue::try_from(&*session.session_id);
        let id = id.map_err(|error| Failure::Unavailable(format!("the session's id: {error}")))?;
        let turn = self.turn().await?;
        understood(
            turn.post_with((HeaderName::from_static(SESSION), id), path, b"{}".to_vec()).await,
        )
    }

    async fn turn(&self) -> Result<Turn<'_>, Failure> {
        let turn = self.http.turn().await;
        let turn = turn.map_err(|error| Failure::Unavailable(error.to_string()))?;
        self.line.sending();
        Ok(turn)
    }

    /// An answer that says that it was done.
    fn accepted(&self, answered: Answered) -> Result<Answered, Failure> {
        match answered.status {
            status if status.is_success() => return Ok(answered),
            // The next connection says whether the key is good.
            StatusCode::UNAUTHORIZED => self.line.suspect(),
            _ => {}
        }
        Err(match answered.denial() {
            Some(denial) => Failure::Denied(denial),
            None if answered.status.is_client_error() => Failure::Unavailable(answered.words()),
            None => Failure::Unknown(answered.words()),
        })
    }
}

fn understood(answered: Result<Answered, CallError>) -> Result<Answered, Failure> {
    answered.map_err(|error| match error {
        CallError::NotSent(_) => Failure::Unavailable(error.to_string()),
        _ => Failure::Unknown(error.to_string()),
    })
}

fn read<T: for<'de> Deserialize<'de>>(answered: &Answered) -> Result<T, Failure> {
    let answer = serde_json::from_slice(&answered.body);
    answer.map_err(|error| Failure::Unknown(format!("the answer of the session plane: {error}")))
}

/// A failure of a later step: the steps before it took effect.
fn uncertain(failure: Failure) -> Failure {
    Failure::Unknown(failure.cause().to_owned())
}

fn master_of(beat: &Beat) -> &Resource {
    match &beat.subject {
        Subject::Claim { resource, .. } => resource,
        Subject::Session { master, .. } => master,
    }
}

/// The session that a beat is for.
fn registered<'a>(project: &'a Project, beat: &Beat) -> Option<&'a Session> {
    match &beat.subject {
        Subject::Claim { claim, .. } => project.of_claim(*claim),
        Subject::Session { session, .. } => project.of_session(*session),
    }
}

fn role(project: &Project, own: &Session) -> Role {
    if project.is_master(own) { Role::Master } else { Role::Peer }
}

fn held(project: &Project, own: &Session, kept: Duration, beat: &Beat) -> BeatAnswer {
    let gone = match project.master() {
        None => GoneReason::Unknown,
        Some(master) if master.is_preferred() && !own.is_preferred() => GoneReason::Preempted,
        Some(_) => GoneReason::Conflict,
    };
    match own.token() {
        Some(token) if project.is_master(own) && kept >= beat.ttl => {
            BeatAnswer::Held { token, limit: None }
        }
        _ => BeatAnswer::Gone(gone),
    }
}

/// A waiter stands in line at its agent, and the first asks again.
fn contended(project: &Project) -> ClaimAnswer {
    let holder = project.master().map(Session::entry);
    ClaimAnswer::Contended { holder, free_in: None, limit: None, limit_was: None }
}

fn check_priority(claim: &Claim, surface: &str) -> Result<(), Failure> {
    let Terms::Master { priority } = claim.terms else { return Ok(()) };
    let has = defaults::priority(surface);
    if priority == has {
        return Ok(());
    }
    Err(denied(format!(
        "priority: {priority} is not that of surface {surface:?}, {has}, and the upstream, which offers only \
         the session plane, knows no other: leave priority out, or register with surface {:?}",
        defaults::PREFERRED_SURFACE
    )))
}

fn ttl_too_long(claim: &Claim, kept: Duration) -> Failure {
    denied(format!(
        "ttl_ms: {} is longer than the {} ms for which the upstream, which offers only the session plane, keeps \
         a session: ask for no more than that",
        claim.ttl.as_millis(),
        kept.as_millis()
    ))
}

fn clock_went_back(own: &Session) -> Failure {
    Failure::Unavailable(format!(
        "the upstream's clock is behind an earlier grant, or session {:?} has no registered_at in UTC: a grant \
         would have no greater token; set that clock",
        own.session_id
    ))
}
