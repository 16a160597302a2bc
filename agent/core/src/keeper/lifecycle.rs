//! The agent starts, stops, or is started again.

use std::sync::Arc;

use tenure_wire::{Kind, LostReason, Tether, Wait};

use super::command::{Command, Note, StreamEnd};
use super::hold::Stage;
use super::journal::{Saved, SavedHold};
use super::timers::Timer;
use super::{Keeper, Phase, Refusal};
use crate::model::{ClaimId, SessionId, Terms};
use crate::time::Boottime;

impl Keeper {
    /// Takes up again what the journal knows: sessions are watched, valid holds are beaten first,
    /// overdue ones are lost, waiters keep their order.
    pub fn adopt(&mut self, now: Boottime, saved: Saved) {
        let mut opened = Vec::with_capacity(saved.sessions.len());
        for session in saved.sessions {
            let id = session.id;
            let (watched, process) = (session.watched, session.process);
            let guards = session.guarded && session.tether == Tether::Connection;
            opened.push(id);
            self.insert_session(now, session);
            if let Some(session) = self.sessions.get_mut(&id) {
                session.life.orphaned = guards;
                session.upstream.known = session.saved.announced;
            }
            if watched {
                self.out.push(Command::Watch { session: id, ticket: None, process });
            }
        }
        self.remember_again(now, saved.remembered);
        let mut adopted = [0; 4];
        for hold in saved.holds {
            self.holds.row_is_taken(hold.row);
            let kind = Kind::ALL.iter().position(|kind| *kind == hold.claim.resource.kind);
            if self.adopt_hold(now, hold)
                && let Some(kind) = kind
            {
                adopted[kind] += 1;
            }
        }
        for id in opened {
            self.adopt_page(id);
        }
        for (kind, holds) in Kind::ALL.into_iter().zip(adopted) {
            if holds > 0 {
                self.out.note(Note::Adopted { kind, holds });
            }
        }
        for item in self.all_beaten() {
            self.due_now(item);
        }
        self.show_itself(now);
        self.flush_beats();
    }

    /// Makes a session's page say what the journal says.
    fn adopt_page(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get(&id) else { return };
        let holds = session.holds.iter().filter_map(|hold| self.holds.get(hold));
        let held: Vec<_> = holds.filter(|hold| hold.is_held()).collect();
        let keep = held.iter().map(|hold| hold.slot).collect();
        let (uid, slots) = (session.saved.uid, session.saved.holds);
        self.out.push(Command::OpenPage { session: id, uid, slots, keep });
        for hold in held {
            self.out.show(hold);
        }
    }

    /// True if the hold is held or waits again.
    fn adopt_hold(&mut self, now: Boottime, saved: SavedHold) -> bool {
        let SavedHold { row, mut claim, wait, wait_until, request, slot, token, .. } = saved;
        let (id, session_id) = (claim.id, claim.owner.session);
        let resource = claim.resource.clone();
        if let Terms::Semaphore { keeps, .. } = &mut claim.terms {
            *keeps = true;
        }
        // Earlier agents kept the queues of exclusive kinds themselves.
        claim.enqueue = wait != Wait::None;
        let mut hold = self.hold_of(claim, row, slot, wait);
        hold.caller.asked_at = now;
        hold.caller.max_hold = saved.max_hold;
        hold.caller.at_least = saved.at_least;
        hold.token = token.unwrap_or(0);
        hold.granted_at = saved.granted_at.unwrap_or(Boottime::ZERO);
        hold.valid_until = saved.valid_until;
        // A place in the queue upstream is confirmed by a beat, and taken anew if it is gone.
        hold.stage = if token.is_some() { Stage::Held } else { Stage::Waiting };
        // Its claim may have been on its way when the agent ended.
        hold.uncertain = token.is_none();
        let Some(session) = self.sessions.get_mut(&session_id) else {
            self.begin_release(now, hold);
            return false;
        };
        if saved.departing {
            if hold.kept_until(now).is_some() {
                self.begin_release_of_lost(now, hold);
            } else if session.saved.guarded && hold.valid_until > now {
                self.delay_release(hold);
            } else {
                self.resume_release(now, hold);
            }
            return false;
        }
        let uid = session.saved.uid;
        session.holds.insert(id);
        session.slots.take_this(slot);
        if let Some(request) = request {
            let request: Arc<str> = Arc::from(request);
            session.requests.insert(Arc::clone(&request), id);
            hold.caller.request = Some(request);
        }
        let linger = session.saved.linger;
        let valid = hold.valid_until > now;
        if hold.is_held() {
            let due = Some(hold.valid_until);
            self.timers.set(&mut hold.deadline, Timer::Deadline(id), due);
            // A grant that no caller was answered with still waits for one.
            let orphaned = wait_until.map(|_| now + linger);
            hold.caller.told = u32::from(orphaned.is_none());
            self.timers.set(&mut hold.caller.patience, Timer::Patience(id), orphaned);
            if resource.kind == Kind::Master {
                session.upstream.role = tenure_wire::Role::Master;
            }
        } else {
            // The caller of a blocked acquire is gone with the old agent, and may ask again.
            let orphaned = (wait == Wait::Block).then_some(now + linger);
            let due = [wait_until, orphaned].into_iter().flatten().min();
            self.timers.set(&mut hold.caller.patience, Timer::Patience(id), due);
        }
        let held = hold.is_held();
        self.holds.insert(uid, hold);
        if held {
            self.holds.occupy(id);
        }
        if !held {
            self.join_queue(id, &resource);
        } else if !valid {
            self.lose(now, id, LostReason::Expired);
            return false;
        }
        true
    }

    /// Stops: everything is released and everybody told. Where guarded work still runs its hold is
    /// kept until that ended.
    pub fn handle_stop(&mut self, now: Boottime) {
        self.agent.phase = Phase::Stopping;
        self.refuse_blocked();
        self.end_all(now);
        self.hide_itself();
        self.hurry_records(now);
        self.flush_beats();
    }

    pub(super) fn stop_session(&mut self, now: Boottime, id: SessionId) {
        let Some(session) = self.sessions.get(&id) else { return };
        let held: Vec<ClaimId> =
            session.holds.iter().copied().filter(|hold| self.holds.is_held(*hold)).collect();
        let works_on = session.saved.guarded
            && session.saved.tether == Tether::Connection
            && (session.life.orphaned || !session.events.streams.is_empty())
            && !held.is_empty();
        // If the session stays until its work has ended, nobody will claim for its waits.
        let lost = if works_on { session.holds.iter().copied().collect() } else { held };
        self.lose_all(now, lost, LostReason::AgentStopping);
        if !works_on {
            self.end_session(now, id, "the agent is stopping", None);
        }
    }

    /// Ends without releasing anything: the next agent takes over.
    pub fn handle_restart(&mut self, _now: Boottime) {
        self.agent.phase = Phase::Restarting;
        self.refuse_blocked();
        for stream in self.streams.ids(|_| true) {
            self.out.push(Command::CloseStream { stream, end: StreamEnd::Restarting });
        }
    }

    /// True if the agent may exit: nothing is held for anybody, and the upstream knows.
    pub fn stopped(&self) -> bool {
        match self.agent.phase {
            Phase::Running => false,
            Phase::Restarting => true,
            Phase::Stopping => {
                self.sessions.is_empty()
                    && self.pending.is_only_kept()
                    && self.calls.records.lets_stop()
                    && self.is_hidden()
            }
        }
    }

    fn refuse_blocked(&mut self) {
        for ticket in self.holds.take_all_callers() {
            self.out.refuse(ticket, Refusal::Stopping);
        }
    }
}
