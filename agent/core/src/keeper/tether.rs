//! The tie of a session to life.

use std::time::Duration;

use tenure_wire::{Beaten, Leftovers, LostReason, ReleasedCause, Tether};

use super::Keeper;
use super::calls::Renewed;
use super::command::Note;
use super::hold::{Hold, millis};
use super::refusal::Refusal;
use super::request::{Reply, Ticket};
use super::session::{EndedCommand, Session};
use super::timers::Timer;
use crate::model::{ClaimId, Peer, SessionId};
use crate::time::Boottime;

/// An agent that is late by this much may have calls to read that came in time.
const LATE_MIN: Duration = Duration::from_millis(1);
/// It reads for so long before it judges.
const READS_FOR: Duration = Duration::from_millis(100);

/// Whether to read first what came before `due`; at most once until something was heard.
fn is_late(now: Boottime, due: Option<Boottime>, put_off: &mut bool) -> bool {
    let late = due.is_some_and(|due| now.since(due) >= LATE_MIN);
    late && !std::mem::replace(put_off, true)
}

impl Keeper {
    /// `POST /v1/beat`: answers with what was lost since the last one, if anything was.
    pub(super) fn beat(&mut self, now: Boottime, ticket: Ticket, peer: Peer, session: uuid::Uuid) {
        match self.session_of(peer, session) {
            Ok(id) => {
                self.alive(now, id);
                self.progress_moved(now, id);
                let has_lost = self.sessions.get(&id).is_some_and(|it| it.losses.is_some());
                let reply = match has_lost {
                    true => Reply::HoldBeaten(self.tell_losses(id, Beaten::default())),
                    false => Reply::Beaten,
                };
                self.out.answer(ticket, reply);
            }
            Err(refusal) => self.out.refuse(ticket, refusal),
        }
    }

    /// `POST /v1/beat` with `hold`: answers for how long the hold is valid, too, or refuses an ended one. A refusal has
    /// no losses: the next beat tells them.
    pub(super) fn beat_hold(
        &mut self,
        now: Boottime,
        ticket: Ticket,
        peer: Peer,
        session: uuid::Uuid,
        hold: ClaimId,
    ) {
        let id = match self.session_of(peer, session) {
            Ok(id) => id,
            Err(refusal) => return self.out.refuse(ticket, refusal),
        };
        self.alive(now, id);
        self.progress_moved(now, id);
        match self.holds.get(&hold).filter(|hold| hold.session() == id) {
            Some(hold) => {
                let until = if hold.is_held() { hold.valid_until } else { Boottime::ZERO };
                let (valid_ms, valid_until_boottime_ns) =
                    (millis(until.since(now)), until.as_nanos());
                let beaten = Beaten { valid_ms, valid_until_boottime_ns, ..Beaten::default() };
                let beaten = self.tell_losses(id, beaten);
                self.out.answer(ticket, Reply::HoldBeaten(beaten));
            }
            None => {
                let refusal = self.ended.hold(id, hold).unwrap_or(Refusal::HoldForgotten(hold));
                self.out.refuse(ticket, refusal);
            }
        }
    }

    /// `POST /v1/leftovers`.
    pub(super) fn note_leftovers(
        &mut self,
        now: Boottime,
        ticket: Ticket,
        peer: Peer,
        leftovers: Leftovers,
    ) {
        let id = match self.session_of(peer, leftovers.session) {
            Ok(id) => id,
            Err(refusal) => return self.out.refuse(ticket, refusal),
        };
        self.alive(now, id);
        if let Some(session) = self.sessions.get_mut(&id) {
            let Leftovers { exit_status, processes, more, .. } = leftovers;
            let ended = EndedCommand { at: now, exit_status, leftovers: processes, more };
            session.ended_command = Some(Box::new(ended));
        }
        self.out.answer(ticket, Reply::LeftoversNoted);
    }

    /// Any call on a session shows that its program lives.
    pub(super) fn alive(&mut self, now: Boottime, id: SessionId) {
        self.tether_moved(now, id);
        let stalled =
            self.sessions.get(&id).is_some_and(|session| session.life.progress.due().is_none());
        if stalled {
            self.progress_moved(now, id);
        }
    }

    /// Sets the end of the tether anew from now on.
    pub(super) fn tether_moved(&mut self, now: Boottime, id: SessionId) {
        let holds_something = self.holds_something(id);
        let Some(session) = self.sessions.get_mut(&id) else { return };
        if session.life.running_out {
            return;
        }
        session.life.put_off.tether = false;
        let due = session.tether_lasts(holds_something).map(|lasts| now + lasts);
        self.timers.set(&mut session.life.tether, Timer::Tether(id), due);
    }

    /// The agent stood still for so long: what programs have promised to do is due later by as much. Says
    /// how many holds have run out meanwhile, which nothing puts off.
    pub fn handle_standstill(&mut self, now: Boottime, length: Duration) -> usize {
        for session in self.sessions.values_mut() {
            let id = session.id();
            if let Some(due) = session.life.tether.due().filter(|_| !session.life.running_out) {
                self.timers.set(&mut session.life.tether, Timer::Tether(id), Some(due + length));
            }
            if let Some(due) = session.life.progress.due() {
                self.timers.set(
                    &mut session.life.progress,
                    Timer::Progress(id),
                    Some(due + length),
                );
            }
        }
        self.holds.values().filter(|hold| hold.is_held() && hold.valid_until <= now).count()
    }

    /// True if a session whose callers wait holds something meanwhile. Of no other it matters.
    fn holds_something(&self, id: SessionId) -> bool {
        let waits = self.sessions.get(&id).filter(|session| session.life.blocked > 0);
        waits.is_some_and(|session| self.held_of(session).next().is_some())
    }

    /// The holds of a session that are held.
    fn held_of<'a>(&'a self, session: &'a Session) -> impl Iterator<Item = &'a Hold> {
        let holds = session.holds.iter().filter_map(|hold| self.holds.get(hold));
        holds.filter(|hold| hold.is_held())
    }

    /// Sets the end of the program's promise anew from now on.
    pub(super) fn progress_moved(&mut self, now: Boottime, id: SessionId) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.life.put_off.progress = false;
        let due = session.saved.progress.map(|promise| now + promise);
        self.timers.set(&mut session.life.progress, Timer::Progress(id), due);
    }

    pub(super) fn tether_fired(&mut self, now: Boottime, id: SessionId) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let due = session.life.tether.due();
        if !self.timers.fired(&mut session.life.tether, Timer::Tether(id), now) {
            return;
        }
        if !session.life.running_out && is_late(now, due, &mut session.life.put_off.tether) {
            let due = Some(now + READS_FOR);
            return self.timers.set(&mut session.life.tether, Timer::Tether(id), due);
        }
        if session.life.orphaned {
            return self.run_out(now, id);
        }
        let holds_something = self.holds_something(id);
        let Some(session) = self.sessions.get(&id) else { return };
        if session.tether_lasts(holds_something).is_none() {
            // Its holds are gone, and it waits.
            return;
        }
        let why = match session.saved.tether {
            Tether::Keepalive => "no call came within keepalive_ms",
            Tether::Connection => "no event stream was open for linger_ms",
            Tether::Process => "its process cannot be watched, and it was silent for linger_ms",
        };
        self.end_session(now, id, why, None);
    }

    /// Nobody can tell whether the command that a session of an earlier agent guards still runs: what
    /// it holds is renewed no more, and kept from others as long as it is valid.
    fn run_out(&mut self, now: Boottime, id: SessionId) {
        let Some(session) = self.sessions.get(&id) else { return };
        let waits: Vec<_> =
            session.holds.iter().copied().filter(|hold| !self.holds.is_held(*hold)).collect();
        for hold in waits {
            self.end_released(now, hold, ReleasedCause::SessionEnded);
        }
        let Some(session) = self.sessions.get(&id) else { return };
        let last = self.held_of(session).map(|hold| hold.valid_until).max();
        match last.filter(|last| *last > now) {
            Some(last) => {
                let Some(session) = self.sessions.get_mut(&id) else { return };
                session.life.running_out = true;
                // Once more then: an answer that is on its way may move it.
                self.timers.set(&mut session.life.tether, Timer::Tether(id), Some(last));
            }
            None => {
                if let Some(session) = self.sessions.get_mut(&id) {
                    session.life.orphaned = false;
                }
                self.end_session(
                    now,
                    id,
                    "its holds have run out, and nobody came back for them",
                    None,
                );
            }
        }
    }

    /// Somebody is back for a session whose holds run out.
    pub(super) fn come_back(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.life.orphaned = false;
        if std::mem::take(&mut session.life.running_out) {
            for hold in session.holds.clone() {
                self.due_now(Renewed::Hold(hold));
            }
        }
    }

    /// The program broke its promise: what it holds is lost, what it waits for is not granted.
    pub(super) fn progress_fired(&mut self, now: Boottime, id: SessionId) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        let due = session.life.progress.due();
        if !self.timers.fired(&mut session.life.progress, Timer::Progress(id), now) {
            return;
        }
        if is_late(now, due, &mut session.life.put_off.progress) {
            let due = Some(now + READS_FOR);
            return self.timers.set(&mut session.life.progress, Timer::Progress(id), due);
        }
        let holds = self.waits_first(id);
        self.lose_all(now, holds, LostReason::Stalled);
    }

    /// A stream of the session closed.
    pub(super) fn stream_gone(&mut self, now: Boottime, id: SessionId) {
        let Some(session) = self.sessions.get(&id) else { return };
        if session.saved.tether == Tether::Process && session.life.unwatched {
            self.tether_moved(now, id);
            return;
        }
        if session.saved.tether != Tether::Connection || !session.events.streams.is_empty() {
            return;
        }
        if session.life.process_gone || self.agent.phase != super::Phase::Running {
            self.end_session(now, id, "its event stream closed and its process is gone", None);
        } else {
            self.tether_moved(now, id);
        }
    }

    /// The process of a session cannot be watched, because the system refuses, or because it is of
    /// another PID namespace and the agent was started again without a handle on it. What else ties
    /// the session to life goes on; where nothing else does, its program has to come back.
    pub fn handle_unwatched(&mut self, now: Boottime, id: SessionId) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.life.unwatched = true;
        if session.saved.tether == Tether::Process {
            self.tether_moved(now, id);
        }
    }

    /// A watched process ended. `exit` is its exit code, or 128 + the signal, where the kernel
    /// tells.
    pub fn handle_exit(&mut self, now: Boottime, id: SessionId, exit: Option<i32>) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        session.life.process_gone = true;
        let (tether, uid, pid) = (session.saved.tether, session.saved.uid, session.pid());
        let (streams, orphaned) = (session.events.streams.len(), session.life.orphaned);
        let awaits_first_stream = !session.events.heard;
        self.out.note(Note::Exited { session: id, uid, pid, exit });
        match tether {
            Tether::Process => self.end_session(now, id, "its process ended", exit),
            Tether::Connection if orphaned => self.run_out(now, id),
            // A script registers by one process and opens its stream by another.
            Tether::Connection if awaits_first_stream => {}
            // A child that inherited the stream keeps the session alive.
            Tether::Connection if streams == 0 => {
                self.end_session(now, id, "its event stream closed and its process is gone", exit);
            }
            Tether::Connection | Tether::Keepalive => {}
        }
        self.flush_beats();
    }
}
