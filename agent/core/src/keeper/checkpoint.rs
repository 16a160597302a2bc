//! Checkpoints: a caller wants to hear from the upstream before it goes on.

use tenure_wire::{Checkpointed, HoldState};
use uuid::Uuid;

use super::hold::{Stage, millis};
use super::refusal::Refusal;
use super::request::Ticket;
use super::{Call, Keeper, Renewed, Reply};
use crate::model::{self, Answer, CallId, Failure, Peer, SessionId};
use crate::time::Boottime;

/// A checkpoint whose calls are not all answered.
#[derive(Debug)]
pub(super) struct Checkpoint {
    session: SessionId,
    /// Calls that are still on their way.
    left: usize,
    /// Why one of them failed.
    failure: Option<String>,
}

impl Keeper {
    /// `POST /v1/checkpoint`: renews everything of a session, and waits for what is on its way already.
    pub(super) fn checkpoint(&mut self, now: Boottime, ticket: Ticket, peer: Peer, session: Uuid) {
        let id = match self.session_of(peer, session) {
            Ok(id) => id,
            Err(refusal) => return self.refuse(ticket, refusal),
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

        let of_holds = holds.iter().filter_map(|hold| self.holds.get(hold)?.beating);
        let mut calls: Vec<CallId> = of_holds.collect();
        calls.extend(self.sessions.get(&id).and_then(|session| session.beating));
        calls.sort_unstable();
        calls.dedup();
        if calls.is_empty() {
            // Nothing of it is upstream: any answer shows that the upstream is there.
            calls.push(self.ask(model::Request::Inspect(master), Call::Look));
        }
        let checkpoint = Checkpoint { session: id, left: calls.len(), failure: None };
        self.checkpoints.insert(ticket, checkpoint);
        for call in calls {
            self.awaited.entry(call).or_default().push(ticket);
        }
    }

    /// Why a call failed that checkpoints wait for, with those.
    pub(super) fn take_awaiting(
        &mut self,
        call: CallId,
        result: &Result<Answer, Failure>,
    ) -> Option<(Vec<Ticket>, Option<String>)> {
        let tickets = self.awaited.remove(&call)?;
        Some((tickets, result.as_ref().err().map(|failure| failure.cause().to_owned())))
    }

    /// A call is answered that checkpoints waited for, each renewal for its hold already.
    pub(super) fn checkpoints_answered(
        &mut self,
        now: Boottime,
        tickets: Vec<Ticket>,
        failure: Option<&str>,
    ) {
        for ticket in tickets {
            let Some(checkpoint) = self.checkpoints.get_mut(&ticket) else { continue };
            checkpoint.left -= 1;
            if checkpoint.failure.is_none() {
                checkpoint.failure = failure.map(str::to_owned);
            }
            if checkpoint.left == 0
                && let Some(checkpoint) = self.checkpoints.remove(&ticket)
            {
                self.answer_checkpoint(now, ticket, checkpoint);
            }
        }
    }

    fn answer_checkpoint(&mut self, now: Boottime, ticket: Ticket, checkpoint: Checkpoint) {
        let id = checkpoint.session;
        let Some(session) = self.sessions.get(&id) else {
            return self.refuse(ticket, Refusal::SessionEndedInCheckpoint(id));
        };
        let holds = self.views(now, session);
        let in_doubt =
            session.failures > 0 || holds.iter().any(|hold| hold.state == HoldState::Jeopardy);
        if checkpoint.failure.is_some() || in_doubt {
            return self.refuse(ticket, Refusal::CheckpointFailed(checkpoint.failure));
        }
        let reply = Checkpointed {
            ok: true,
            ttl_remaining_ms: millis(session.saved.ttl),
            role: session.role,
            holds,
        };
        self.answer(ticket, Reply::Checkpointed(reply));
    }
}
