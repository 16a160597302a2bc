//! Questions: status, standing, routes, checkpoint.

use std::sync::Arc;

use tenure::wire::{Checkpointed, Code, HoldState, Kind, Problem, SessionStatus};
use uuid::Uuid;

use super::hold::millis;
use super::request::{Reply, SessionFacts, StatusView, Ticket};
use super::session::Session;
use super::{Keeper, unavailable};
use crate::host::clock::Boottime;
use crate::model::Peer;
use crate::model::{Answer, Failure, Resource, SessionId};

impl Keeper {
    /// How many holds there are by kind, in the order of [`Kind::ALL`]: held, in jeopardy, waiting.
    pub fn count_holds(&self) -> [[u64; 3]; 4] {
        let mut counts = [[0; 3]; 4];
        for hold in self.holds.values() {
            let kind = Kind::ALL.iter().position(|kind| *kind == hold.kind()).unwrap_or(0);
            let state = match hold.state() {
                HoldState::Held => 0,
                HoldState::Jeopardy => 1,
                HoldState::Waiting | HoldState::Released | HoldState::Lost => 2,
            };
            counts[kind][state] += 1;
        }
        counts
    }

    /// How many sessions there are.
    pub fn count_sessions(&self) -> u64 {
        self.sessions.len() as u64
    }

    pub(super) fn status(&mut self, now: Boottime, ticket: Ticket, peer: Peer) {
        let mut visible: Vec<&Session> = self
            .sessions
            .values()
            .filter(|session| self.sees_all(peer) || session.saved.uid == peer.uid)
            .collect();
        visible.sort_unstable_by_key(|session| session.id());
        let visible =
            visible.into_iter().map(|session| self.session_status(now, session)).collect();
        let view =
            StatusView { sessions: self.count_sessions(), holds: self.count_holds(), visible };
        self.answer(ticket, Reply::Status(view));
    }

    fn session_status(&self, now: Boottime, session: &Session) -> SessionStatus {
        let saved = &session.saved;
        SessionStatus {
            session: saved.id.0,
            name: saved.name.to_string(),
            surface: saved.surface.to_string(),
            tenant: saved.tenant.to_string(),
            project: saved.project.to_string(),
            uid: saved.uid,
            pid: session.pid(),
            tether: saved.tether,
            role: session.role,
            streams: session.streams.len() as u32,
            holds: self.views(now, session),
        }
    }

    fn views(&self, now: Boottime, session: &Session) -> Vec<tenure::wire::HoldView> {
        let holds = session.holds.iter().filter_map(|hold| self.holds.get(hold));
        holds.map(|hold| hold.view(now)).collect()
    }

    pub(super) fn lookup(&mut self, ticket: Ticket, peer: Peer, session: Uuid) {
        let facts = self.session_of(peer, session).map(|id| &self.sessions[&id].saved);
        match facts {
            Ok(saved) => {
                let facts = SessionFacts {
                    tenant: Arc::clone(&saved.tenant),
                    project: Arc::clone(&saved.project),
                    surface: Arc::clone(&saved.surface),
                };
                self.answer(ticket, Reply::Facts(facts));
            }
            Err(problem) => self.refuse(ticket, problem),
        }
    }

    pub(super) fn checkpoint(&mut self, now: Boottime, ticket: Ticket, peer: Peer, session: Uuid) {
        match self.session_of(peer, session) {
            Ok(id) => {
                self.alive(now, id);
                self.beat_session(ticket, id);
            }
            Err(problem) => self.refuse(ticket, problem),
        }
    }

    /// The renewals of a checkpoint are answered, each for its hold already.
    pub(super) fn checkpoint_answered(&mut self, now: Boottime, ticket: Ticket, id: SessionId) {
        let Some(session) = self.sessions.get(&id) else {
            let problem = Problem::new(
                Code::SessionLost,
                format!("session {id} ended meanwhile; register again"),
            );
            return self.refuse(ticket, problem);
        };
        let holds = self.views(now, session);
        if session.failures > 0 || holds.iter().any(|hold| hold.state == HoldState::Jeopardy) {
            let problem =
                unavailable("a beat is unknown; holds stay valid until their valid-until");
            return self.refuse(ticket, problem);
        }
        let reply = Checkpointed {
            ok: true,
            ttl_remaining_ms: millis(session.saved.ttl),
            role: session.role,
            holds,
        };
        self.answer(ticket, Reply::Checkpointed(reply));
    }

    pub(super) fn standing_answered(
        &mut self,
        ticket: Ticket,
        peer: Peer,
        resource: &Resource,
        result: Result<Answer, Failure>,
    ) {
        match result {
            Ok(Answer::Standing(standing)) => {
                let sees = |uid| self.sees_all(peer) || uid == peer.uid;
                let standing = self.standing(resource, &standing, sees);
                self.answer(ticket, Reply::Standing(standing));
            }
            other => self.refuse_unanswered(ticket, other),
        }
    }

    pub(super) fn routes_answered(&mut self, ticket: Ticket, result: Result<Answer, Failure>) {
        match result {
            Ok(Answer::Routes(routes)) => self.answer(ticket, Reply::Routes(routes)),
            other => self.refuse_unanswered(ticket, other),
        }
    }

    pub(super) fn refuse_unanswered(&mut self, ticket: Ticket, result: Result<Answer, Failure>) {
        let problem = match result {
            Ok(other) => unavailable(&format!("unexpected answer {other:?}")),
            Err(failure) => unavailable(failure.cause()),
        };
        self.refuse(ticket, problem);
    }
}
