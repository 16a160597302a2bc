//! An agent's memory of a backend with the session plane alone, and its look at the changes there.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::model::{Request, Resource, SessionId, Subject, defaults};
use tenure_core::time::Boottime;
use tenure_host::clock;

use super::calls;
use super::project::Project;
use crate::gateway::address::Face;
use crate::gateway::http::Http;
use crate::remote::{ConnectionHints, Hint};

/// Between two looks at all projects.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A connection on which nothing is asked is used so often: servers in Python hang up after 5 s.
const USED_EVERY: Duration = Duration::from_secs(2);
/// Projects that are looked at, at most; of others the agent learns by its own questions.
const PROJECTS_MAX: usize = 256;
/// A session that is not beaten for so many ttls has ended.
const REMEMBERED_TTLS: u32 = 3;

/// The sessions that an agent has announced. Bounded by what it keeps alive.
#[derive(Debug, Default)]
pub(in crate::gateway) struct Plane {
    is_all_there_is: AtomicBool,
    sessions: Mutex<HashMap<SessionId, Known>>,
}

#[derive(Debug)]
struct Known {
    master: Resource,
    surface: Arc<str>,
    forget_at: Boottime,
}

impl Plane {
    /// A connection leads to this.
    pub(in crate::gateway) fn found(&self, face: Face) {
        self.is_all_there_is.store(face == Face::SessionPlane, Ordering::Relaxed);
    }

    /// True if the latest connection led to a session plane.
    pub(in crate::gateway) fn is_all_there_is(&self) -> bool {
        self.is_all_there_is.load(Ordering::Relaxed)
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<SessionId, Known>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers the sessions that a request is about.
    pub(super) fn follow(&self, now: Boottime, request: &Request) {
        let mut sessions = self.sessions();
        match request {
            Request::Announce(record) => {
                let (master, surface) = (record.master(), Arc::clone(&record.surface));
                let forget_at = now + record.ttl * REMEMBERED_TTLS;
                sessions.retain(|_, known| known.forget_at > now);
                sessions.insert(record.owner.session, Known { master, surface, forget_at });
            }
            Request::Renew(beats) => {
                for beat in beats {
                    if let Subject::Session { session, .. } = &beat.subject
                        && let Some(known) = sessions.get_mut(session)
                    {
                        known.forget_at = now + beat.ttl * REMEMBERED_TTLS;
                    }
                }
            }
            Request::EndSession { session, .. } => drop(sessions.remove(session)),
            _ => {}
        }
    }

    /// The surface that a session was announced with.
    pub(super) fn surface(&self, session: SessionId) -> Arc<str> {
        let known = self.sessions().get(&session).map(|known| Arc::clone(&known.surface));
        known.unwrap_or_else(|| defaults::SURFACE.into())
    }

    /// The projects of all sessions.
    fn projects(&self, now: Boottime) -> Vec<Resource> {
        let sessions = self.sessions();
        let living = sessions.values().filter(|known| known.forget_at > now);
        let mut projects: Vec<_> = living.map(|known| known.master.clone()).collect();
        drop(sessions);
        projects.sort_unstable();
        projects.dedup();
        projects.truncate(PROJECTS_MAX);
        projects
    }
}

/// Looks at the projects of this agent again and again, and hints what has changed. Ends with the connection, and
/// says why.
pub(in crate::gateway) async fn look_on(
    plane: &Plane,
    http: &Http,
    hints: &ConnectionHints,
) -> String {
    let mut seen: HashMap<Resource, Project> = HashMap::new();
    loop {
        rest(LOOK_EVERY).await;
        let projects = plane.projects(clock::now());
        if projects.is_empty()
            && let Some(turn) = http.idle()
            && let Err(error) = calls::probe(turn).await
        {
            return error.to_string();
        }
        seen.retain(|resource, _| projects.binary_search(resource).is_ok());
        for resource in projects {
            let turn = match http.turn().await {
                Ok(turn) => turn,
                Err(error) => return error.to_string(),
            };
            let project = match calls::look(turn, &resource).await {
                Ok(Some(project)) => project,
                // The store behind it is away, or this project is not for this key.
                Ok(None) => continue,
                Err(error) => return error.to_string(),
            };
            if seen.get(&resource) != Some(&project) {
                seen.insert(resource.clone(), project);
                hints.push(Hint::Resource(resource));
            }
        }
    }
}

/// Uses a connection while nobody else does. Ends with the connection, and says why.
pub(in crate::gateway) async fn keep_up(http: &Http) -> String {
    loop {
        rest(USED_EVERY).await;
        let Some(turn) = http.idle() else { continue };
        if let Err(error) = calls::probe(turn).await {
            return error.to_string();
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a machine that sleeps looks later; holds and calls have deadlines of their own"
)]
async fn rest(time: Duration) {
    tokio::time::sleep(time).await;
}
