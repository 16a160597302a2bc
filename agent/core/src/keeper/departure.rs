//! Releases, and ends of sessions, that the upstream has not confirmed yet.

use std::sync::Arc;
use std::time::Duration;

use super::command::Command;
use super::hold::Hold;
use super::journal::Entry;
use super::request::{Reply, Ticket};
use super::session::Session;
use super::timers::{Alarm, Timer};
use super::{Call, Keeper, one_less};
use crate::model::{self, Answer, ClaimId, Failure, SessionId};
use crate::time::Boottime;

/// A release is tried for this much longer than the upstream would keep the hold by itself. While it
/// cannot even be sent it is tried for ever: what was sent before, such as a claim without an answer,
/// may take effect when a server that stood still goes on.
const PATIENCE: Duration = Duration::from_secs(10);

/// Ends of sessions that are tried again; more are tried once, and end with their ttl upstream.
pub const FAREWELLS_MAX: usize = 16_384;
/// The same of one user.
const FAREWELLS_PER_UID_MAX: usize = 4096;
/// Retries in a second, however much there is to retry.
const RETRIES_PER_SECOND: u32 = 2000;

/// A hold that has ended for its client, but perhaps not upstream.
#[derive(Debug)]
pub(super) struct Departure {
    pub(super) hold: Hold,
    /// Its user, whose holds it counts among until it is over.
    uid: Option<u32>,
    /// Callers to be told when it is done, or tried once.
    pub(super) tickets: Vec<Ticket>,
    calling: bool,
    failures: u32,
    /// By then the upstream has let go by itself.
    give_up_at: Boottime,
    alarm: Alarm,
}

/// An announced session that has ended, but perhaps not upstream.
#[derive(Debug)]
pub(super) struct Farewell {
    uid: u32,
    tenant: Arc<str>,
    project: Arc<str>,
    failures: u32,
    give_up_at: Boottime,
    alarm: Alarm,
}

impl Keeper {
    /// Releases an ended hold upstream, if the upstream may know of it.
    pub(super) fn depart(&mut self, now: Boottime, hold: Hold) {
        if !Self::known_upstream(&hold) {
            if Self::known_to_journal(&hold) {
                self.forget_row(&hold);
            }
            return;
        }
        if Self::known_to_journal(&hold) {
            // Its client is told of the end in this turn: an agent that starts again before the
            // upstream has confirmed must not take the hold up.
            self.save_departing(&hold);
        }
        self.depart_again(now, hold);
    }

    /// Goes on releasing a hold that is marked in the journal already.
    pub(super) fn depart_again(&mut self, now: Boottime, hold: Hold) {
        let id = hold.id();
        self.insert_departure(now, hold);
        self.send_release(id);
    }

    /// Releases an ended hold when its session ends or its valid-until has passed.
    pub(super) fn depart_later(&mut self, hold: Hold) {
        let (id, valid_until) = (hold.id(), hold.valid_until);
        if let Some(session) = self.sessions.get_mut(&hold.session()) {
            session.kept.insert(id);
        }
        self.save_departing(&hold);
        self.insert_departure(valid_until, hold);
        if let Some(departure) = self.departures.get_mut(&id) {
            self.timers.set(&mut departure.alarm, Timer::Departure(id), Some(valid_until));
        }
    }

    fn insert_departure(&mut self, from: Boottime, hold: Hold) {
        let give_up_at = from + hold.claim.ttl * 2 + PATIENCE;
        let uid = self.sessions.get(&hold.session()).map(|session| session.saved.uid);
        if let Some(uid) = uid {
            *self.departures_by_uid.entry(uid).or_default() += 1;
        }
        let departure = Departure {
            uid,
            tickets: Vec::new(),
            calling: false,
            failures: 0,
            give_up_at,
            alarm: Alarm::default(),
            hold,
        };
        self.departures.insert(departure.hold.id(), Box::new(departure));
    }

    /// The reason to wait is gone.
    pub(super) fn depart_now(&mut self, _now: Boottime, id: ClaimId) {
        let Some(departure) = self.departures.get_mut(&id) else { return };
        self.timers.set(&mut departure.alarm, Timer::Departure(id), None);
        self.send_release(id);
    }

    fn send_release(&mut self, id: ClaimId) {
        let Some(departure) = self.departures.get_mut(&id) else { return };
        if std::mem::replace(&mut departure.calling, true) {
            return;
        }
        let resource = departure.hold.claim.resource.clone();
        self.ask(model::Request::Release { claim: id, resource }, Call::Release(id));
    }

    pub(super) fn departure_fired(&mut self, now: Boottime, id: ClaimId) {
        let Some(departure) = self.departures.get_mut(&id) else { return };
        if self.timers.fired(&mut departure.alarm, Timer::Departure(id), now) {
            let session = departure.hold.session();
            if let Some(session) = self.sessions.get_mut(&session) {
                session.kept.remove(&id);
            }
            self.send_release(id);
        }
    }

    pub(super) fn release_answered(
        &mut self,
        now: Boottime,
        id: ClaimId,
        result: Result<Answer, Failure>,
    ) {
        let Some(departure) = self.departures.get_mut(&id) else { return };
        departure.calling = false;
        for ticket in std::mem::take(&mut departure.tickets) {
            self.commands.push_back(Command::Reply { ticket, reply: Ok(Reply::Released(true)) });
        }
        if is_tried_again(now, departure.give_up_at, &result) {
            departure.failures += 1;
            let failures = departure.failures;
            let wait = self.back_off(failures) + pace(self.departures.len());
            let Some(departure) = self.departures.get_mut(&id) else { return };
            self.timers.set(&mut departure.alarm, Timer::Departure(id), Some(now + wait));
            return;
        }
        let Some(mut departure) = self.departures.remove(&id) else { return };
        if let Some(uid) = departure.uid {
            one_less(&mut self.departures_by_uid, uid);
        }
        self.timers.set(&mut departure.alarm, Timer::Departure(id), None);
        if Self::known_to_journal(&departure.hold) {
            self.forget_row(&departure.hold);
        }
        let resource = departure.hold.claim.resource;
        if resource.kind != tenure_wire::Kind::Semaphore {
            self.try_head(now, &resource);
        }
    }

    fn forget_row(&mut self, hold: &Hold) {
        let entry = Entry::HoldEnded { row: hold.row, hold: hold.id() };
        self.commands.push_back(Command::Persist(entry));
    }

    fn save_departing(&mut self, hold: &Hold) {
        let mut saved = hold.saved();
        saved.departing = true;
        self.commands.push_back(Command::Persist(Entry::Hold(Box::new(saved))));
    }

    /// Ends an announced session upstream, if the upstream may know of it.
    pub(super) fn say_farewell(&mut self, now: Boottime, session: &Session) {
        if !session.known_upstream && session.beating.is_none() {
            return;
        }
        let uid = session.saved.uid;
        *self.farewells_by_uid.entry(uid).or_default() += 1;
        let farewell = Farewell {
            uid,
            tenant: Arc::clone(&session.saved.tenant),
            project: Arc::clone(&session.saved.project),
            failures: 0,
            give_up_at: now + session.saved.ttl * 2 + PATIENCE,
            alarm: Alarm::default(),
        };
        self.farewells.insert(session.id(), farewell);
        self.send_farewell(session.id());
    }

    fn send_farewell(&mut self, id: SessionId) {
        let Some(farewell) = self.farewells.get(&id) else { return };
        let request = model::Request::EndSession {
            session: id,
            tenant: Arc::clone(&farewell.tenant),
            project: Arc::clone(&farewell.project),
        };
        self.ask(request, Call::Farewell(id));
    }

    pub(super) fn farewell_fired(&mut self, now: Boottime, id: SessionId) {
        let Some(farewell) = self.farewells.get_mut(&id) else { return };
        if self.timers.fired(&mut farewell.alarm, Timer::Farewell(id), now) {
            self.send_farewell(id);
        }
    }

    pub(super) fn farewell_answered(
        &mut self,
        now: Boottime,
        id: SessionId,
        result: Result<Answer, Failure>,
    ) {
        let waiting = self.farewells.len();
        let Some(farewell) = self.farewells.get_mut(&id) else { return };
        let uid = farewell.uid;
        let of_user = self.farewells_by_uid.get(&uid).copied().unwrap_or(0);
        let too_many = of_user > FAREWELLS_PER_UID_MAX || waiting > FAREWELLS_MAX;
        if too_many || !is_tried_again(now, farewell.give_up_at, &result) {
            self.farewells.remove(&id);
            one_less(&mut self.farewells_by_uid, uid);
            return;
        }
        farewell.failures += 1;
        let failures = farewell.failures;
        let wait = self.back_off(failures) + pace(self.farewells.len());
        if let Some(farewell) = self.farewells.get_mut(&id) {
            self.timers.set(&mut farewell.alarm, Timer::Farewell(id), Some(now + wait));
        }
    }
}

/// True if a farewell or release with that answer must be sent again.
fn is_tried_again(now: Boottime, give_up_at: Boottime, result: &Result<Answer, Failure>) -> bool {
    match result {
        Ok(_) => false,
        Err(Failure::Unavailable(_)) => true,
        Err(Failure::Unknown(_)) => now < give_up_at,
    }
}

/// How much longer each of so many waits, so that all of them together are paced.
fn pace(waiting: usize) -> Duration {
    Duration::from_secs(1) / RETRIES_PER_SECOND * u32::try_from(waiting).unwrap_or(u32::MAX)
}
