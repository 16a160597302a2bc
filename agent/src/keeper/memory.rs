//! What is remembered of ended holds and sessions, for callers who have not heard.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tenure::wire::{Code, LostReason, Problem};

use super::map::Map;
use super::timers::{Alarm, Timer};
use super::{Keeper, Session};
use crate::host::clock::Boottime;
use crate::model::{ClaimId, SessionId};

/// Most ended holds and sessions that are remembered; the oldest are forgotten first.
const REMEMBERED_MAX: usize = 65_536;

/// An ended hold.
#[derive(Debug)]
struct EndedHold {
    session: SessionId,
    request: Option<Arc<str>>,
    /// Why it was lost; `None` when it was released.
    lost: Option<LostReason>,
}

/// An ended session.
#[derive(Debug)]
struct EndedSession {
    uid: u32,
    why: &'static str,
}

#[derive(Debug)]
enum Ended {
    Hold(ClaimId),
    Session(SessionId),
}

/// Ended holds and sessions that still answer.
#[derive(Debug)]
pub(super) struct Memory {
    keep_for: Duration,
    order: VecDeque<(Boottime, Ended)>,
    holds: Map<ClaimId, EndedHold>,
    sessions: Map<SessionId, EndedSession>,
    alarm: Alarm,
}

impl Memory {
    pub(super) fn new(keep_for: Duration) -> Memory {
        Memory {
            keep_for,
            order: VecDeque::new(),
            holds: Map::default(),
            sessions: Map::default(),
            alarm: Alarm::default(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    /// The user of an ended session, and why it ended.
    pub(super) fn session(&self, session: SessionId) -> Option<(u32, &'static str)> {
        self.sessions.get(&session).map(|ended| (ended.uid, ended.why))
    }

    /// The refusal of a call on an ended hold of that session.
    pub(super) fn hold(&self, session: SessionId, hold: ClaimId) -> Option<Problem> {
        let ended = self.holds.get(&hold).filter(|ended| ended.session == session)?;
        let how = ended.lost.map_or("released", LostReason::as_str);
        let detail = format!("hold {hold} is gone ({how}); acquire again with a new request id");
        Some(Problem::new(Code::HoldLost, detail).about(hold.0))
    }

    /// The same, but only if the hold was lost and not given back.
    pub(super) fn lost_hold(&self, session: SessionId, hold: ClaimId) -> Option<Problem> {
        self.holds.get(&hold)?.lost?;
        self.hold(session, hold)
    }
}

impl Keeper {
    /// Remembers a hold that has ended.
    pub(super) fn remember_hold(
        &mut self,
        now: Boottime,
        hold: ClaimId,
        session: SessionId,
        request: Option<Arc<str>>,
        lost: Option<LostReason>,
    ) {
        self.memory.holds.insert(hold, EndedHold { session, request, lost });
        self.remember(now, Ended::Hold(hold));
    }

    /// Remembers a session that has ended.
    pub(super) fn remember_session(&mut self, now: Boottime, session: &Session, why: &'static str) {
        let ended = EndedSession { uid: session.saved.uid, why };
        self.memory.sessions.insert(session.id(), ended);
        self.remember(now, Ended::Session(session.id()));
    }

    fn remember(&mut self, now: Boottime, ended: Ended) {
        let until = now + self.memory.keep_for;
        self.memory.order.push_back((until, ended));
        if self.memory.order.len() > REMEMBERED_MAX {
            self.forget_oldest();
        }
        if self.memory.alarm.due().is_none() {
            self.timers.set(&mut self.memory.alarm, Timer::Forget, Some(until));
        }
    }

    fn forget_oldest(&mut self) {
        match self.memory.order.pop_front() {
            Some((_, Ended::Hold(hold))) => {
                let Some(ended) = self.memory.holds.remove(&hold) else { return };
                if let (Some(session), Some(request)) =
                    (self.sessions.get_mut(&ended.session), ended.request)
                    && session.requests.get(&request) == Some(&hold)
                {
                    session.requests.remove(&request);
                }
            }
            Some((_, Ended::Session(session))) => {
                self.memory.sessions.remove(&session);
            }
            None => {}
        }
    }

    pub(super) fn forget_fired(&mut self, now: Boottime) {
        if !self.timers.fired(&mut self.memory.alarm, Timer::Forget, now) {
            return;
        }
        while let Some((until, _)) = self.memory.order.front() {
            if *until > now {
                let next = Some(*until);
                self.timers.set(&mut self.memory.alarm, Timer::Forget, next);
                return;
            }
            self.forget_oldest();
        }
    }
}
