//! Questions: status, standing, routes, checkpoint.

use std::ops::Bound;
use std::sync::Arc;

use tenure_wire::{HoldView, SessionStatus};
use uuid::Uuid;

use super::request::{Reply, SessionFacts, StatusCursor, StatusPage, StatusView, Ticket};
use super::session::Session;
use super::{Keeper, Refusal};
use crate::model::Peer;
use crate::model::{Answer, ClaimId, Failure, Resource, SessionId};
use crate::time::Boottime;

impl Keeper {
    /// How many holds there are by kind, in the order of `wire::Kind::ALL`: held, in jeopardy, waiting.
    pub fn count_holds(&self) -> [[u64; 3]; 4] {
        self.holds.counts()
    }

    /// How many sessions there are.
    pub fn count_sessions(&self) -> u64 {
        self.sessions.len() as u64
    }

    /// A page takes a time that depends on its own length alone.
    pub(super) fn status(&mut self, now: Boottime, ticket: Ticket, peer: Peer, page: StatusPage) {
        let sees_all = self.sees_all(peer);
        let first = (if sees_all { 0 } else { peer.uid }, SessionId(Uuid::nil()));
        let last = (if sees_all { u32::MAX } else { peer.uid }, SessionId(Uuid::max()));
        let after = page.after.unwrap_or_default();
        let from = first.max((after.uid, SessionId(after.session))).min(last);
        let total = match sees_all {
            true => self.count_sessions(),
            false => self.sessions.count_of(peer.uid) as u64,
        };
        let mut view = StatusView {
            sessions: self.count_sessions(),
            holds: self.count_holds(),
            visible: Vec::new(),
            total,
            next: None,
        };
        let mut room = page.limit.max(1);
        let mut cursor = after;
        for session in self.sessions.range(from, last) {
            let (uid, id) = (session.saved.uid, session.id());
            let goes_on = (uid, id.0) == (after.uid, after.session);
            let told = if goes_on { after.hold } else { Uuid::nil() };
            let rest = (Bound::Excluded(ClaimId(told)), Bound::Unbounded);
            let mut holds = session.holds.range(rest).peekable();
            if goes_on && holds.peek().is_none() {
                continue;
            }
            if room == 0 {
                view.next = Some(cursor);
                break;
            }
            room -= usize::from(!goes_on);
            cursor = StatusCursor { uid, session: id.0, hold: told };
            let mut views = Vec::new();
            for id in holds.by_ref().take(room) {
                cursor.hold = id.0;
                views.extend(self.holds.get(id).map(|hold| hold.view(now)));
            }
            room -= views.len();
            view.visible.push(self.session_status(now, session, views));
            if holds.peek().is_some() {
                view.next = Some(cursor);
                break;
            }
        }
        self.out.answer(ticket, Reply::Status(view));
    }

    fn session_status(
        &self,
        now: Boottime,
        session: &Session,
        holds: Vec<HoldView>,
    ) -> SessionStatus {
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
            role: session.upstream.role,
            streams: session.events.streams.len() as u32,
            ended_command: session.ended_command.as_ref().map(|ended| ended.view(now)),
            holds,
        }
    }

    pub(super) fn views(&self, now: Boottime, session: &Session) -> Vec<HoldView> {
        let holds = session.holds.iter().filter_map(|hold| self.holds.get(hold));
        holds.map(|hold| hold.view(now)).collect()
    }

    pub(super) fn lookup(&mut self, ticket: Ticket, peer: Peer, session: Uuid) {
        match self.session_of(peer, session) {
            Ok(id) => {
                let Some(Session { saved, .. }) = self.sessions.get(&id) else { return };
                let facts = SessionFacts {
                    tenant: Arc::clone(&saved.tenant),
                    project: Arc::clone(&saved.project),
                    surface: Arc::clone(&saved.surface),
                };
                self.out.answer(ticket, Reply::Facts(facts));
            }
            Err(refusal) => self.out.refuse(ticket, refusal),
        }
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
                self.out.answer(ticket, Reply::Standing(standing));
            }
            other => self.refuse_unanswered(ticket, other),
        }
    }

    pub(super) fn routes_answered(&mut self, ticket: Ticket, result: Result<Answer, Failure>) {
        match result {
            Ok(Answer::Routes(routes)) => self.out.answer(ticket, Reply::Routes(routes)),
            other => self.refuse_unanswered(ticket, other),
        }
    }

    pub(super) fn resources_answered(&mut self, ticket: Ticket, result: Result<Answer, Failure>) {
        match result {
            Ok(Answer::Resources { resources, next }) => {
                self.out.answer(ticket, Reply::Resources { resources, next });
            }
            other => self.refuse_unanswered(ticket, other),
        }
    }

    pub(super) fn refuse_unanswered(&mut self, ticket: Ticket, result: Result<Answer, Failure>) {
        let refusal = match result {
            Ok(other) => {
                Refusal::of_failure(Failure::Unknown(format!("unexpected answer {other:?}")))
            }
            Err(failure) => Refusal::of_failure(failure),
        };
        self.out.refuse(ticket, refusal);
    }
}
