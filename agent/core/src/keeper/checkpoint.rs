//! Checkpoints: a caller wants to hear from the upstream before it goes on.

use tenure_wire::{Checkpointed, HoldState};
use uuid::Uuid;

use super::calls::{Call, Renewed};
use super::hold::{Stage, millis};
use super::map::Map;
use super::refusal::Refusal;
use super::request::Ticket;
use super::{Keeper, Reply};
use crate::model::{self, Answer, CallId, Failure, Peer, SessionId};
use crate::time::Boottime;

/// A checkpoint whose calls are not all answered.
#[derive(Debug)]
pub(super) struct Checkpoint {
    session: SessionId,
    /// Calls that are still on their way.
    left: usize,
    /// Why one of them failed.
    failure: Option<Failure>,
}

/// Checkpoints that wait for the upstream.
#[derive(Debug, Default)]
pub(super) struct Checkpoints {
    by_ticket: Map<Ticket, Checkpoint>,
    /// The checkpoints that wait for a call.
    by_call: Map<CallId, Vec<Ticket>>,
}

impl Checkpoints {
    pub(super) fn is_empty(&self) -> bool {
        self.by_ticket.is_empty() && self.by_call.is_empty()
    }

    /// Waits for all these calls.
    fn insert(&mut self, ticket: Ticket, session: SessionId, calls: Vec<CallId>) {
        let checkpoint = Checkpoint { session, left: calls.len(), failure: None };
        self.by_ticket.insert(ticket, checkpoint);
        for call in calls {
            self.by_call.entry(call).or_default().push(ticket);
        }
    }

    /// Why a call failed that checkpoints wait for, with those.
    pub(super) fn take(
        &mut self,
        call: CallId,
        result: &Result<Answer, Failure>,
    ) -> Option<(Vec<Ticket>, Option<Failure>)> {
        let tickets = self.by_call.remove(&call)?;
        Some((tickets, result.as_ref().err().cloned()))
    }

    /// One of its calls is answered; the checkpoint, if it was the last.
    fn answered(&mut self, ticket: Ticket, failure: Option<&Failure>) -> Option<Checkpoint> {
        let checkpoint = self.by_ticket.get_mut(&ticket)?;
        checkpoint.left -= 1;
        if checkpoint.failure.is_none() {
            checkpoint.failure = failure.cloned();
        }
        if checkpoint.left == 0 { self.by_ticket.remove(&ticket) } else { None }
    }
}

impl Keeper {
    /// `POST /v1/checkpoint`: renews everything of a session, and waits for what is on its way already.
    pub(super) fn checkpoint(&mut self, now: Boottime, ticket: Ticket, peer: Peer, session: Uuid) {
        let id = match self.session_of(peer, session) {
            Ok(id) => id,
            Err(refusal) => return self.out.refuse(ticket, refusal),
        };
        self.alive(now, id);
        let Some(session) = self.sessions.get(&id) else { return };
        let (announced, master) = (session.saved.announced, session.master());
        let holds: Vec<_> = session
            .holds
            .iter()
            .copied()
            .filter(|hold| {
                let stage = self.holds.get(hold).map(|hold| hold.stage);
                matches!(stage, Some(Stage::Waiting | Stage::Held | Stage::Jeopardy))
            })
            .collect();
        let mut items: Vec<_> = holds.iter().copied().map(Renewed::Hold).collect();
        items.extend(announced.then_some(Renewed::Session(id)));
        self.send_beats(items);

        let of_holds = holds.iter().filter_map(|hold| self.holds.get(hold)?.beats.beating);
        let mut calls: Vec<CallId> = of_holds.collect();
        calls.extend(self.sessions.get(&id).and_then(|session| session.upstream.beating));
        calls.sort_unstable();
        calls.dedup();
        if calls.is_empty() {
            // Nothing of it is upstream: any answer shows that the upstream is there.
            calls.push(self.ask(model::Request::Inspect(master), Call::Look));
        }
        self.calls.checkpoints.insert(ticket, id, calls);
    }

    /// A call is answered that checkpoints waited for, each renewal for its hold already.
    pub(super) fn checkpoints_answered(
        &mut self,
        now: Boottime,
        tickets: Vec<Ticket>,
        failure: Option<&Failure>,
    ) {
        for ticket in tickets {
            if let Some(checkpoint) = self.calls.checkpoints.answered(ticket, failure) {
                self.answer_checkpoint(now, ticket, checkpoint);
            }
        }
    }

    fn answer_checkpoint(&mut self, now: Boottime, ticket: Ticket, checkpoint: Checkpoint) {
        let id = checkpoint.session;
        let Some(session) = self.sessions.get(&id) else {
            return self.out.refuse(ticket, Refusal::SessionEndedInCheckpoint(id));
        };
        let holds = self.views(now, session);
        let in_doubt = session.upstream.failures > 0
            || holds.iter().any(|hold| hold.state == HoldState::Jeopardy);
        if checkpoint.failure.is_some() || in_doubt {
            let denied = session.upstream.denied.clone().map(Failure::Denied);
            let failure = checkpoint.failure.or(denied);
            return self.out.refuse(ticket, Refusal::CheckpointFailed(failure));
        }
        let reply = Checkpointed {
            ok: true,
            ttl_remaining_ms: millis(session.saved.ttl),
            role: session.upstream.role,
            holds,
        };
        self.out.answer(ticket, Reply::Checkpointed(reply));
    }
}
