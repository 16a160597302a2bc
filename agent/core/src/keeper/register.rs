//! Sessions come, are taken up again, and end.

use std::sync::Arc;
use std::time::Duration;

use rand_chacha::rand_core::Rng;
use tenure_wire::page::SLOTS;
use tenure_wire::{DEFAULT_PROJECT, DEFAULT_TENANT, Kind, Register, Resume, Tether};
use uuid::Uuid;

use super::Keeper;
use super::command::{Command, Note, StreamEnd};
use super::ends::Leaving;
use super::hold::millis;
use super::journal::{Entry, SavedSession};
use super::refusal::{Limit, Refusal};
use super::request::{Reply, Ticket};
use super::sessions::extra;
use super::timers::Timer;
use crate::model::{Full, Peer, Program, SessionId, defaults};
use crate::time::Boottime;

/// Bytes of a session's secret.
const SECRET_BYTES: usize = 16;

impl Keeper {
    pub(super) fn register(
        &mut self,
        now: Boottime,
        ticket: Ticket,
        peer: Peer,
        (register, program): (Register, Program),
    ) {
        let result = match register.resume {
            Some(resume) => self.resume(now, ticket, peer, &resume),
            None => self.register_new(now, ticket, peer, register, program),
        };
        match result {
            Ok(reply) => self.out.answer(ticket, reply),
            Err(refusal) => self.out.refuse(ticket, refusal),
        }
    }

    fn register_new(
        &mut self,
        now: Boottime,
        ticket: Ticket,
        peer: Peer,
        register: Register,
        program: Program,
    ) -> Result<Reply, Refusal> {
        let tether = register.tether.unwrap_or(Tether::Keepalive);
        if tether == Tether::Process && !peer.watchable {
            return Err(Refusal::Unwatchable);
        }
        self.check_recorded()?;
        self.check_session_quota(peer)?;
        let holds = register.holds.unwrap_or(SLOTS);
        self.check_slots(peer, holds)?;

        let id = SessionId(self.new_uuid());
        let name = register.name.or_else(|| program.name()).unwrap_or_else(|| match peer.process {
            Some(process) => format!("pid-{}", process.pid),
            None => format!("uid-{}", peer.uid),
        });
        let announced = register.project.is_some();
        let saved = SavedSession {
            id,
            secret: self.new_secret(),
            uid: peer.uid,
            gid: peer.gid,
            process: peer.process,
            watched: peer.watchable,
            name: Arc::from(name),
            surface: Arc::from(register.surface.as_deref().unwrap_or(defaults::SURFACE)),
            tenant: Arc::from(register.tenant.as_deref().unwrap_or(DEFAULT_TENANT)),
            project: Arc::from(register.project.as_deref().unwrap_or(DEFAULT_PROJECT)),
            announced,
            tether,
            keepalive: given(register.keepalive_ms, self.settings.keepalive),
            linger: given(register.linger_ms, self.settings.linger),
            progress: register.progress_ms.map(Duration::from_millis),
            ttl: given(register.ttl_ms, self.settings.session.ttl),
            guarded: register.guarded.unwrap_or(false),
            holds,
            program,
            barred: Vec::new(),
        };
        if peer.watchable {
            let process = saved.process;
            self.out.push(Command::Watch { session: id, ticket: Some(ticket), process });
        }
        self.out.push(Command::OpenPage {
            session: id,
            uid: saved.uid,
            slots: holds,
            keep: Vec::new(),
        });
        self.out.persist(Entry::Session(Box::new(saved.clone())));
        self.note_registered(&saved, false);
        let reply = self.registered(&saved, false);
        self.insert_session(now, saved);
        Ok(reply)
    }

    /// Pages are memory: their slots beyond the usual are bounded as the holds are.
    fn check_slots(&mut self, peer: Peer, holds: u32) -> Result<(), Refusal> {
        let own = self.sessions.extra_slots_of(peer.uid);
        // The last of them must have a place.
        let Some(before) = extra(holds).checked_sub(1) else { return Ok(()) };
        let share = self.settings.holds();
        // The rules for a user take the place of the share of one user.
        let of_user = if peer.quota.holds_max.is_some() { 0 } else { own + before };
        let all = self.sessions.extra_slots();
        let Err(full) = share.check(all + before, of_user, self.sees_all(peer)) else {
            return Ok(());
        };
        let (limit, taken) = match full {
            Full::User(_) => ("page_slots_per_uid", own),
            Full::All(_) => ("page_slots", all),
        };
        self.out.note(Note::Refused { limit, uid: peer.uid });
        Err(Refusal::Limit(Limit::Slots { uid: peer.uid, asked: holds, taken, full }))
    }

    /// Puts a new or an adopted session in its place and starts its timers.
    pub(super) fn insert_session(&mut self, now: Boottime, saved: SavedSession) {
        let (id, announced) = (saved.id, saved.announced);
        self.sessions.insert(saved, &self.settings);
        self.tether_moved(now, id);
        self.progress_moved(now, id);
        if announced {
            self.announce(now, id);
        }
    }

    fn resume(
        &mut self,
        now: Boottime,
        ticket: Ticket,
        peer: Peer,
        resume: &Resume,
    ) -> Result<Reply, Refusal> {
        let id = self.session_of(peer, resume.session)?;
        let Some(session) = self.sessions.get_mut(&id) else {
            return Err(Refusal::SessionUnknown { session: id.0, uid: peer.uid });
        };
        if !same(resume.secret.as_bytes(), session.saved.secret.as_bytes()) {
            return Err(Refusal::WrongSecret(id));
        }
        // Processes of other PID namespaces have no number, and may be the same one or not.
        let is_other = peer.process.is_none() || peer.process != session.saved.process;
        if peer.watchable && (is_other || session.life.unwatched) {
            session.saved.process = peer.process;
            session.saved.watched = true;
            session.life.process_gone = false;
            session.life.unwatched = false;
            let entry = Entry::Session(Box::new(session.saved.clone()));
            let process = session.saved.process;
            self.out.push(Command::Watch { session: id, ticket: Some(ticket), process });
            self.out.persist(entry);
        }
        let saved = session.saved.clone();
        self.note_registered(&saved, true);
        self.alive(now, id);
        Ok(self.registered(&saved, true))
    }

    fn check_session_quota(&mut self, peer: Peer) -> Result<(), Refusal> {
        let own = self.sessions.count_of(peer.uid);
        let quota = peer.quota.sessions_max;
        let uid = peer.uid;
        let (name, limit) = if let Some(max) = quota.filter(|max| own >= *max) {
            ("allow_sessions", Limit::SessionsByRule { uid, has: own, max })
        } else {
            let own = if quota.is_some() { 0 } else { own };
            let share = self.settings.sessions();
            let full = share.check(self.sessions.len(), own, self.sees_all(peer));
            let Err(full) = full else { return Ok(()) };
            let name = match full {
                Full::User(_) => "sessions_per_uid",
                Full::All(_) => "sessions",
            };
            (name, Limit::Sessions(full))
        };
        self.out.note(Note::Refused { limit: name, uid });
        Err(Refusal::Limit(limit))
    }

    fn registered(&self, saved: &SavedSession, resumed: bool) -> Reply {
        Reply::Registered {
            session: saved.id,
            secret: saved.secret.clone(),
            ttl_ms: millis(saved.ttl),
            beat_ms: millis(self.session_beat(saved.ttl)),
            resumed,
        }
    }

    fn note_registered(&mut self, saved: &SavedSession, resumed: bool) {
        self.out.note(Note::Registered {
            session: saved.id,
            name: Arc::clone(&saved.name),
            uid: saved.uid,
            pid: saved.process.map(|process| process.pid),
            tether: saved.tether,
            resumed,
        });
    }

    /// Nothing remains of a session whose holds have ended.
    pub(super) fn close_session(&mut self, now: Boottime, id: SessionId) {
        let end = if self.agent.phase == super::Phase::Running {
            StreamEnd::SessionEnded
        } else {
            StreamEnd::Stopping
        };
        self.end_streams(id, end);
        let Some(mut session) = self.sessions.remove(id) else { return };
        let Some(Leaving { why, exit, ticket }) = session.leaving.take() else { return };
        for hold in std::mem::take(&mut session.kept) {
            self.release_now(hold);
        }
        session.events.ring.clear(session.saved.uid, &mut self.streams.ring_bytes);
        if let Some(losses) = session.losses.take() {
            losses.give_back(session.saved.uid, &mut self.streams.ring_bytes);
        }
        let tether = &mut session.life.tether;
        self.timers.set(tether, Timer::Tether(id), None);
        self.timers.set(&mut session.life.progress, Timer::Progress(id), None);
        self.timers.set(&mut session.upstream.beat, Timer::SessionBeat(id), None);
        if session.saved.announced {
            self.unwatch_session(&session.master(), id);
            self.begin_end(now, &session);
        }
        if session.saved.watched {
            self.out.push(Command::Unwatch { session: id });
        }
        self.out.push(Command::ClosePage { session: id });
        self.out.persist(Entry::SessionEnded(id));
        let name = Arc::clone(&session.saved.name);
        let uid = session.saved.uid;
        self.out.note(Note::Ended { session: id, uid, name, why, exit });
        self.remember_session(now, &session, why);
        if let Some(ticket) = ticket {
            self.out.answer(ticket, Reply::RELEASED);
        }
    }

    /// Announces a session in its project, as the first master claim or a named project wants it.
    pub(super) fn make_announced(&mut self, now: Boottime, id: SessionId) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        if session.saved.announced {
            return;
        }
        session.saved.announced = true;
        session.upstream.role = tenure_wire::Role::Peer;
        let entry = Entry::Session(Box::new(session.saved.clone()));
        self.out.persist(entry);
        self.announce(now, id);
    }

    /// How often a session with that ttl is beaten.
    pub(super) fn session_beat(&self, ttl: Duration) -> Duration {
        self.settings.session.beat.min(ttl / 3)
    }

    /// How often a hold of that kind with that ttl is beaten.
    pub(super) fn hold_beat(&self, kind: Kind, ttl: Duration) -> Duration {
        self.settings.rhythm(kind).beat.min(ttl / 3)
    }

    pub(super) fn new_uuid(&mut self) -> Uuid {
        let mut bytes = [0; 16];
        self.agent.random.fill_bytes(&mut bytes);
        uuid::Builder::from_random_bytes(bytes).into_uuid()
    }

    fn new_secret(&mut self) -> String {
        let mut bytes = [0; SECRET_BYTES];
        self.agent.random.fill_bytes(&mut bytes);
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

fn given(ms: Option<u64>, default: Duration) -> Duration {
    ms.map_or(default, Duration::from_millis)
}

/// Compares in a time that tells nothing of where the two differ.
fn same(left: &[u8], right: &[u8]) -> bool {
    left.len() == right.len()
        && left.iter().zip(right).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}
