//! The behaviour of programs.

use std::time::Duration;

use tenure::wire::{Acquire, Attributes, Kind, Register, Release, Resume, Tether, Wait};
use tenure_core::keeper::{Request, StreamId, StreamTarget, Ticket};
use tenure_core::model::{Resource, SessionId};
use uuid::Uuid;

use super::agent::Agent;
use super::client::{Asked, Asking, Client, MySession};
use super::core::{Core, Happening, Message, Phase};
use super::plan::{GRACE_MS_MAX, Prize, TTL_MS};
use super::time::TrueTime;

/// Holds, waiting ones counted, that a program wants at a time.
const HOLDS_WANTED: usize = 4;
/// As many as a session may have.
const HOLDS_MAX: u32 = 4095;
/// One of a crowd asks for so many holds at once.
const JOINS_AT_ONCE: usize = 64;
/// A request that was not answered by then is missed.
const ANSWER_PATIENCE: Duration = Duration::from_secs(4);

#[derive(Debug, Clone, Copy)]
enum Action {
    Acquire,
    Release,
    ReleaseUnknown,
    Repeat,
    RepeatAnswered,
    Checkpoint,
    Beat,
    Ask,
    Stream,
    EndSession,
    Revoke,
    Nothing,
}

impl Client {
    /// Does what is due, and perhaps something of its own.
    pub(crate) fn think(&mut self, core: &mut Core, agent: &Agent) {
        if !self.process.alive || self.process.frozen || self.process.done {
            return;
        }
        if self.process.hung {
            return self.think_again(core);
        }
        self.drop_what_the_page_denies(core, agent);
        self.cancel_overdue(core);
        match self.session.clone() {
            None => self.register(core),
            Some(session) if session.broken => self.resume(core, &session),
            Some(session) => self.go_on(core, &session),
        }
        self.think_again(core);
    }

    fn think_again(&mut self, core: &mut Core) {
        let longest = core.plan.think * 2;
        let mut at = core.now + core.random.between(Duration::from_millis(1), longest);
        if let Some(session) = &self.session
            && session.beat_every.is_some()
        {
            at = at.min(session.next_beat.max(core.now + Duration::from_millis(1)));
        }
        self.process.thoughts += 1;
        core.queue.push(at, Happening::Think(self.id, self.process.thoughts));
    }

    /// A program that reads *not held* on its page has lost the hold, whatever it was told.
    fn drop_what_the_page_denies(&mut self, core: &Core, agent: &Agent) {
        let Some(session) = &self.session else { return };
        let Some(page) = agent.machine.pages.get(&SessionId(session.id)) else { return };
        let now = agent.boottime(core);
        self.holds.retain(|id, hold| {
            !hold.held || page.values().any(|slot| slot.hold.0 == *id && slot.valid_until > now)
        });
    }

    fn cancel_overdue(&mut self, core: &mut Core) {
        for ticket in self.requests.overdue(core.now) {
            self.requests.asked.remove(&ticket);
            self.say(core, Message::Cancel(ticket));
        }
    }

    /// Requests that do not depend on other programs, and should have been answered long ago.
    pub(crate) fn unanswered(&self, now: TrueTime) -> Option<&Asked> {
        self.requests.asked.values().find(|asked| {
            let waits = match &asked.what {
                Asking::Acquire(acquire) => acquire.wait == Wait::Block,
                _ => false,
            };
            !waits && now.since(asked.at) > ANSWER_PATIENCE
        })
    }

    fn register(&mut self, core: &mut Core) {
        if core.phase == Phase::Farewell || !self.requests.asked.is_empty() {
            return;
        }
        let random = &mut core.random;
        let tether = match random.below(3) {
            0 if self.process.peer.watchable => Tether::Process,
            1 => Tether::Connection,
            _ => Tether::Keepalive,
        };
        let keepalive_ms = random.number(500, 2500);
        let progress_ms = random.per_mille(150).then(|| random.number(600, 2000));
        let guarded = random.per_mille(200);
        let register = Register {
            name: Some(format!("client{}", self.id)),
            project: random.per_mille(600).then(|| format!("p{}", random.below(2))),
            tenant: random.per_mille(80).then(|| "other".to_owned()),
            tether: Some(tether),
            keepalive_ms: Some(keepalive_ms),
            linger_ms: Some(random.number(100, 1500)),
            progress_ms,
            ttl_ms: random.per_mille(500).then(|| random.number(TTL_MS.0, TTL_MS.1)),
            guarded: Some(guarded),
            holds: (self.waits_wanted > 0).then_some(HOLDS_MAX),
            ..Register::default()
        };
        let promised = match tether {
            Tether::Keepalive => Some(progress_ms.map_or(keepalive_ms, |it| it.min(keepalive_ms))),
            Tether::Connection | Tether::Process => progress_ms,
        };
        // Most keep their promise with room to spare, some barely, some not. Half of those that promise progress make too
        // little of it, and call for other reasons.
        let failing = if progress_ms.is_some() { 500 } else { 150 };
        let part = if random.per_mille(failing) { random.number(60, 160) } else { 35 };
        let mine = MySession {
            id: Uuid::nil(),
            secret: String::new(),
            tether,
            beat_every: promised.map(|ms| Duration::from_millis(ms * part / 100)),
            next_beat: core.now,
            guarded,
            last_event_id: None,
            broken: false,
        };
        self.ask(
            core,
            Request::Register(register, Default::default()),
            Asking::Register(Box::new(mine)),
        );
    }

    fn resume(&mut self, core: &mut Core, session: &MySession) {
        if core.phase == Phase::Farewell
            || self.requests.asked.values().any(|asked| matches!(asked.what, Asking::Resume))
        {
            return;
        }
        let resume = Resume { session: session.id, secret: session.secret.clone() };
        let register = Register { resume: Some(resume), ..Register::default() };
        self.ask(core, Request::Register(register, Default::default()), Asking::Resume);
        if session.tether == Tether::Connection || core.random.per_mille(700) {
            self.open_stream(core, session);
        }
    }

    fn go_on(&mut self, core: &mut Core, session: &MySession) {
        if session.beat_every.is_some() && session.next_beat <= core.now {
            self.beat(core, session);
        }
        let waits = self.holds.values().any(|hold| !hold.held);
        let wants_stream = session.tether == Tether::Connection || waits;
        if wants_stream && self.stream.is_none() && core.random.per_mille(900) {
            self.open_stream(core, session);
        }
        let due: Vec<Uuid> = self
            .holds
            .iter()
            .filter(|(_, hold)| hold.held && hold.release_at <= core.now)
            .map(|(id, _)| *id)
            .collect();
        for hold in due {
            self.release(core, session, Some(hold));
        }
        if let Some(acquire) = self.requests.again.take()
            && acquire.session == session.id
        {
            self.acquire_as(core, acquire);
            return;
        }
        if core.phase == Phase::Farewell {
            return;
        }
        if self.waits_wanted > 0 {
            return self.join_crowd(core, session);
        }
        let weights = [
            (30, Action::Acquire),
            (8, Action::Release),
            (1, Action::ReleaseUnknown),
            (4, Action::Repeat),
            (3, Action::RepeatAnswered),
            (5, Action::Checkpoint),
            (4, Action::Beat),
            (3, Action::Ask),
            (4, Action::Stream),
            (1, Action::EndSession),
            (1, Action::Revoke),
            (10, Action::Nothing),
        ];
        let action = core.random.weighted(&weights);
        self.act(core, session, action);
    }

    fn act(&mut self, core: &mut Core, session: &MySession, action: Action) {
        match action {
            Action::Acquire => self.acquire(core, session),
            Action::Release => {
                let holds: Vec<Uuid> = self.holds.keys().copied().collect();
                if !holds.is_empty() {
                    let hold = *core.random.pick(&holds);
                    self.release(core, session, Some(hold));
                }
            }
            Action::ReleaseUnknown => {
                let hold = Uuid::from_u128(u128::from(core.random.below(1000)));
                self.release(core, session, Some(hold));
            }
            Action::Repeat => {
                let repeated = self.requests.asked.values().find_map(|asked| match &asked.what {
                    Asking::Acquire(acquire) => Some(acquire.as_ref().clone()),
                    _ => None,
                });
                if let Some(acquire) = repeated {
                    self.acquire_as(core, acquire);
                }
            }
            Action::RepeatAnswered => {
                let known = self.requests.answered.make_contiguous();
                if !known.is_empty() {
                    let acquire = core.random.pick(known).clone();
                    core.seen("answered request repeated");
                    self.acquire_as(core, acquire);
                }
            }
            Action::Checkpoint => {
                self.ask(core, Request::Checkpoint(session.id), Asking::Other);
            }
            Action::Beat => self.beat(core, session),
            Action::Ask => {
                let request = match core.random.below(4) {
                    0 => Request::Status(tenure_core::keeper::StatusPage::first(100)),
                    1 => Request::Routes {
                        tenant: "default".into(),
                        name: None,
                        page: tenure_core::model::Page::whole(),
                    },
                    _ => Request::Standing(self.some_resource(core)),
                };
                self.ask(core, request, Asking::Other);
            }
            Action::Stream => match self.stream.take() {
                Some(stream) => self.say(core, Message::CloseStream(stream)),
                None => self.open_stream(core, session),
            },
            Action::EndSession => self.release(core, session, None),
            Action::Revoke => {
                let resource = self.some_resource(core);
                self.ask(
                    core,
                    Request::Revoke { resource, token: None, revocation: None },
                    Asking::Other,
                );
            }
            Action::Nothing => {}
        }
    }

    /// Waits, and waits once more.
    fn join_crowd(&mut self, core: &mut Core, session: &MySession) {
        let asking = self.requests.acquiring();
        let missing = self.waits_wanted.saturating_sub(self.holds.len() + asking);
        let prize = core.plan.prizes[0].clone();
        for _ in 0..missing.min(JOINS_AT_ONCE) {
            core.seen("wait in a crowd");
            let acquire = Acquire {
                wait: Wait::Queue,
                timeout_ms: None,
                ..draw_acquire(core, session.id, &prize, String::new())
            };
            self.acquire_as(core, Acquire { request: None, ..acquire });
        }
    }

    fn some_resource(&self, core: &mut Core) -> Resource {
        let prize = core.random.pick(&core.plan.prizes).clone();
        let name = prize.name.unwrap_or_else(|| "p0".into());
        Resource { tenant: "default".into(), kind: prize.kind, name }
    }

    fn beat(&mut self, core: &mut Core, session: &MySession) {
        if let (Some(mine), Some(every)) = (&mut self.session, session.beat_every) {
            mine.next_beat = core.now + every;
        }
        self.ask(core, Request::Beat(session.id), Asking::Other);
    }

    fn acquire(&mut self, core: &mut Core, session: &MySession) {
        let asking = self.requests.acquiring();
        if self.holds.len() + asking >= HOLDS_WANTED {
            return;
        }
        let prize = core.random.pick(&core.plan.prizes).clone();
        let number = self.requests.count();
        let request = format!("c{}-{}-{number}", self.id, self.process.life);
        let acquire = draw_acquire(core, session.id, &prize, request);
        self.acquire_as(core, acquire);
    }

    fn acquire_as(&mut self, core: &mut Core, acquire: Acquire) {
        let cancel = acquire.wait == Wait::Block && core.random.per_mille(250);
        let cancel_at = cancel.then(|| core.now + core.random.ms(0, 2500));
        let asking = Asking::Acquire(Box::new(acquire.clone()));
        let ticket = self.ask(core, Request::Acquire(acquire), asking);
        if let Some(asked) = self.requests.asked.get_mut(&ticket) {
            asked.cancel_at = cancel_at;
        }
    }

    fn release(&mut self, core: &mut Core, session: &MySession, hold: Option<Uuid>) {
        if let Some(hold) = hold {
            // It stops before it says so.
            self.holds.remove(&hold);
        }
        let release = Release { session: session.id, hold, exit_status: None, stopped: None };
        self.ask(core, Request::Release(release), Asking::Release(hold));
    }

    pub(super) fn open_stream(&mut self, core: &mut Core, session: &MySession) {
        if self.stream.is_some() {
            return;
        }
        let stream = StreamId(core.number());
        self.stream = Some(stream);
        let last_event_id = session.last_event_id.filter(|_| core.random.per_mille(800));
        let target = StreamTarget::Session { session: session.id, last_event_id };
        self.say(core, Message::OpenStream { stream, peer: self.process.peer, target });
    }

    pub(super) fn ask(&mut self, core: &mut Core, request: Request, what: Asking) -> Ticket {
        let ticket = Ticket(core.number());
        self.requests.asked.insert(ticket, Asked { what, at: core.now, cancel_at: None });
        let request = Box::new(request);
        self.say(core, Message::Request { ticket, peer: self.process.peer, request });
        ticket
    }

    pub(super) fn say(&self, core: &mut Core, message: Message) {
        core.say(self.host, (self.id, self.process.life), message);
    }

    /// Ends in one way or another; true if it has to be killed.
    pub(crate) fn farewell(&mut self, core: &mut Core) -> bool {
        if !self.process.is_running() {
            return true;
        }
        let way = core.random.below(3);
        match self.session.clone() {
            // Says good-bye, as a program should.
            Some(session) if way == 0 => {
                self.release(core, &session, None);
                false
            }
            // Falls silent.
            Some(session) if way == 1 && session.tether != Tether::Process => {
                if let Some(stream) = self.stream.take() {
                    self.say(core, Message::CloseStream(stream));
                }
                false
            }
            _ => true,
        }
    }
}

fn draw_acquire(core: &mut Core, session: Uuid, prize: &Prize, request: String) -> Acquire {
    let random = &mut core.random;
    let wait = random.weighted(&[(3, Wait::None), (4, Wait::Block), (4, Wait::Queue)]);
    let kind = prize.kind;
    let limit = if random.per_mille(120) { random.number(1, 4) as u32 } else { prize.limit };
    Acquire {
        session,
        kind,
        name: prize.name.as_deref().map(str::to_owned),
        wait,
        behind_own: wait != Wait::None && random.per_mille(500),
        fleet: false,
        timeout_ms: random.per_mille(400).then(|| random.number(0, 4000)),
        request: random.per_mille(700).then_some(request),
        ttl_ms: random.per_mille(500).then(|| random.number(TTL_MS.0, TTL_MS.1)),
        max_hold_ms: random.per_mille(200).then(|| random.number(200, 6000)),
        hold_at_least_ms: random.per_mille(60).then(|| random.number(100, 3000)),
        limit: (kind == Kind::Semaphore).then_some(limit),
        priority: (kind == Kind::Master && random.per_mille(500))
            .then(|| random.number(0, 3) as i32 * 50),
        grace_ms: (kind == Kind::Lease && random.per_mille(500))
            .then(|| random.number(0, GRACE_MS_MAX)),
        attributes: (kind == Kind::Lease)
            .then(|| Attributes { address: Some("10.0.0.7:1".to_owned()), ..Default::default() }),
    }
}
