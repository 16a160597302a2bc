//! Ends of many holds at once, a bounded part of them in each turn.

use std::collections::VecDeque;
use std::time::Duration;

use tenure_wire::{LostReason, ReleasedCause};

use super::command::{Command, StreamEnd};
use super::request::{Reply, StreamId, Ticket};
use super::streams::Stream;
use super::timers::{Alarm, Timer};
use super::{COMMANDS_PER_CALL, Keeper};
use crate::model::{ClaimId, SessionId};
use crate::time::Boottime;

/// More holds than this do not end within the call that ends them.
const AT_ONCE: usize = 256;

/// The next thing to end.
#[derive(Debug)]
enum End {
    /// A hold of a session that ends.
    Released(ClaimId),
    /// A hold that its holder may not have any longer.
    Lost(ClaimId, LostReason),
    /// A session whose holds have ended.
    Session(SessionId),
    /// A session of an agent that stops.
    Stopped(SessionId),
    /// A stream of nobody's session, of an agent that stops.
    Stream(StreamId),
}

/// Ends that are still to be made, in order; bounded by the tables that they come from.
#[derive(Debug, Default)]
pub(super) struct Ends {
    left: VecDeque<End>,
    alarm: Alarm,
}

/// A session that ends. It has no requests any more, and is told of the rest as it comes.
#[derive(Debug)]
pub(super) struct Leaving {
    pub(super) why: &'static str,
    pub(super) exit: Option<i32>,
    /// The caller who is answered when it has ended.
    pub(super) ticket: Option<Ticket>,
}

impl Ends {
    pub(super) fn is_empty(&self) -> bool {
        self.left.is_empty()
    }
}

impl Keeper {
    /// Ends a session. With many holds it takes several turns, in which their pages are voided before
    /// anybody else is granted them, as ever.
    pub(super) fn end_session(
        &mut self,
        now: Boottime,
        id: SessionId,
        why: &'static str,
        exit: Option<i32>,
    ) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        if session.leaving.is_some() {
            return;
        }
        session.leaving = Some(Leaving { why, exit, ticket: None });
        let kept = session.kept.len();
        let holds = self.waits_first(id);
        if holds.len() + kept > AT_ONCE {
            self.sessions.ends.left.extend(holds.into_iter().map(End::Released));
            self.sessions.ends.left.push_back(End::Session(id));
            return self.end_more_at(now);
        }
        for hold in holds {
            self.end_released(now, hold, ReleasedCause::SessionEnded);
        }
        self.close_session(now, id);
    }

    /// Takes holds away from a session.
    pub(super) fn lose_all(&mut self, now: Boottime, holds: Vec<ClaimId>, reason: LostReason) {
        if holds.len() > AT_ONCE {
            self.sessions.ends.left.extend(holds.into_iter().map(|hold| End::Lost(hold, reason)));
            return self.end_more_at(now);
        }
        for hold in holds {
            self.lose(now, hold, reason);
        }
    }

    /// Ends everything, as the agent stops.
    pub(super) fn end_all(&mut self, now: Boottime) {
        let mut sessions: Vec<_> = self.sessions.keys().copied().collect();
        sessions.sort_unstable();
        self.sessions.ends.left.extend(sessions.into_iter().map(End::Stopped));
        let streams = self.streams.ids(|of| matches!(of, Stream::Resource(_)));
        self.sessions.ends.left.extend(streams.into_iter().map(End::Stream));
        self.end_more(now);
    }

    /// All holds of a session, waiting ones first: what others of it give back is not for them.
    pub(super) fn waits_first(&self, id: SessionId) -> Vec<ClaimId> {
        let Some(session) = self.sessions.get(&id) else { return Vec::new() };
        let is_held = |hold: &ClaimId| self.holds.is_held(*hold);
        let (held, mut all): (Vec<_>, Vec<_>) = session.holds.iter().copied().partition(is_held);
        all.extend(held);
        all
    }

    pub(super) fn ends_fired(&mut self, now: Boottime) {
        if self.timers.fired(&mut self.sessions.ends.alarm, Timer::Ends, now) {
            self.end_more(now);
        }
    }

    fn end_more(&mut self, now: Boottime) {
        let enough = self.out.len() + COMMANDS_PER_CALL;
        while self.out.len() < enough {
            match self.sessions.ends.left.pop_front() {
                Some(End::Released(hold)) => {
                    self.end_released(now, hold, ReleasedCause::SessionEnded);
                }
                Some(End::Lost(hold, reason)) => self.lose(now, hold, reason),
                Some(End::Session(session)) => self.close_step_by_step(now, session),
                Some(End::Stopped(session)) => self.stop_session(now, session),
                Some(End::Stream(stream)) => {
                    if self.streams.get(stream).is_some() {
                        self.handle_stream_closed(now, stream);
                        let end = StreamEnd::Stopping;
                        self.out.push(Command::CloseStream { stream, end });
                    }
                }
                None => break,
            }
        }
        // Not in this turn any more.
        let next = (!self.sessions.ends.left.is_empty()).then(|| now + Duration::from_nanos(1));
        self.timers.set(&mut self.sessions.ends.alarm, Timer::Ends, next);
    }

    /// What a session's guarded work has kept from others goes one by one before the session does.
    fn close_step_by_step(&mut self, now: Boottime, id: SessionId) {
        let kept = self.sessions.get_mut(&id).and_then(|session| session.kept.pop_first());
        let Some(hold) = kept else { return self.close_session(now, id) };
        self.sessions.ends.left.push_front(End::Session(id));
        self.release_now(hold);
    }

    fn end_more_at(&mut self, at: Boottime) {
        self.timers.set(&mut self.sessions.ends.alarm, Timer::Ends, Some(at));
    }

    /// Answers a release of a session when it has ended.
    pub(super) fn answer_when_ended(&mut self, id: SessionId, ticket: Ticket) {
        match self.sessions.get_mut(&id).and_then(|session| session.leaving.as_mut()) {
            Some(leaving) => leaving.ticket = Some(ticket),
            None => self.out.answer(ticket, Reply::RELEASED),
        }
    }
}
