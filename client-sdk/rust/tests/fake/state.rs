//! The memory of the fake agent: one session at most matters to a test, with its holds.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use tenure::page;
use tenure::wire::{
    Acquire, Acquired, Code, Event, GrantedEvent, HoldEvent, HoldState, HoldView, Kind, Problem,
    Role, SnapshotEvent, Waiting,
};
use tokio::sync::mpsc;
use uuid::Uuid;

use super::page::{PageFile, boottime_in};

/// Events kept for a stream that comes back.
const RING: usize = 16;

#[derive(Debug, Clone)]
pub(crate) struct FakeHold {
    pub(crate) id: Uuid,
    pub(crate) kind: Kind,
    pub(crate) name: String,
    pub(crate) request: String,
    pub(crate) state: HoldState,
    pub(crate) token: u64,
    pub(crate) slot: u32,
    pub(crate) valid_until: u64,
}

pub(crate) struct State {
    pub(crate) directory: PathBuf,
    pub(crate) boot_id: Uuid,
    pub(crate) session: Option<Uuid>,
    pub(crate) page: Option<PageFile>,
    pub(crate) holds: Vec<FakeHold>,
    /// Names that somebody on another host has.
    pub(crate) taken: Vec<String>,
    /// How long a grant is valid; never renewed.
    pub(crate) valid: Duration,
    pub(crate) streams: Vec<mpsc::UnboundedSender<Bytes>>,
    pub(crate) ring: VecDeque<(u64, Bytes)>,
    pub(crate) replies_to_lose: u32,
    /// Paths, in the order in which they were asked for.
    pub(crate) requests: Vec<String>,
    /// Request ids of acquires.
    pub(crate) acquires: Vec<String>,
    next_event: u64,
    next_token: u64,
    next_slot: u32,
}

impl State {
    pub(crate) fn new(directory: PathBuf) -> State {
        State {
            directory,
            boot_id: Uuid::new_v4(),
            session: None,
            page: None,
            holds: Vec::new(),
            taken: Vec::new(),
            valid: Duration::from_secs(300),
            streams: Vec::new(),
            ring: VecDeque::new(),
            replies_to_lose: 0,
            requests: Vec::new(),
            acquires: Vec::new(),
            next_event: 1,
            next_token: 1,
            next_slot: 0,
        }
    }

    pub(crate) fn register(&mut self, resumed: Option<Uuid>) -> Result<(), Box<Problem>> {
        if resumed.is_some() {
            return self.check(resumed);
        }
        let session = Uuid::new_v4();
        self.session = Some(session);
        self.holds.clear();
        self.replace_page();
        Ok(())
    }

    /// A new file in the page's place, as after a restart: every hold in another slot.
    pub(crate) fn replace_page(&mut self) {
        let session = self.session.expect("a session");
        let path = self.directory.join("page");
        self.page = Some(PageFile::create(&path, session, self.boot_id));
        for at in 0..self.holds.len() {
            self.holds[at].slot = self.free_slot();
            self.write(&self.holds[at], page::STATE_HELD);
        }
    }

    pub(crate) fn check(&self, session: Option<Uuid>) -> Result<(), Box<Problem>> {
        if session.is_some() && session == self.session {
            Ok(())
        } else {
            Err(Box::new(Problem::new(
                Code::SessionUnknown,
                "there is no such session; register again",
            )))
        }
    }

    pub(crate) fn acquire(&mut self, asked: &Acquire) -> Result<FakeHold, Box<Problem>> {
        self.check(Some(asked.session))?;
        let request = asked.request.clone().expect("the client always sends a request id");
        self.acquires.push(request.clone());
        if let Some(hold) = self.holds.iter().find(|hold| hold.request == request) {
            return Ok(hold.clone());
        }
        let name = asked.name.clone().unwrap_or_else(|| "default".into());
        let free = !self.taken.contains(&name);
        let mut hold = FakeHold {
            id: Uuid::new_v4(),
            kind: asked.kind,
            name,
            request,
            state: HoldState::Waiting,
            token: 0,
            slot: self.free_slot(),
            valid_until: 0,
        };
        if free {
            self.give(&mut hold);
        }
        self.holds.push(hold.clone());
        Ok(hold)
    }

    /// Whoever had the resource lets go, and the waiter has it.
    pub(crate) fn grant(&mut self, name: &str) {
        self.taken.retain(|taken| taken != name);
        let at = self.holds.iter().position(|hold| hold.name == name).expect("a waiter");
        let mut hold = self.holds[at].clone();
        self.give(&mut hold);
        self.holds[at] = hold.clone();
        let acquired = acquired(&hold);
        self.tell(Event::Granted(GrantedEvent {
            of: HoldEvent { hold: hold.id, kind: hold.kind, name: hold.name },
            token: acquired.token,
            ttl_ms: acquired.ttl_ms,
            valid_ms: acquired.valid_ms,
            valid_until_boottime_ns: acquired.valid_until_boottime_ns,
            slot: acquired.slot,
            limit: None,
            limit_changed: None,
        }));
    }

    fn give(&mut self, hold: &mut FakeHold) {
        hold.state = HoldState::Held;
        hold.token = self.next_token;
        hold.valid_until = boottime_in(self.valid);
        self.next_token += 1;
        self.write(hold, page::STATE_HELD);
    }

    /// Takes out a hold in that state, and says so on the page.
    pub(crate) fn end(&mut self, name: &str, state: HoldState, code: u32) -> Option<FakeHold> {
        let at = self.holds.iter().position(|hold| hold.name == name && hold.state == state)?;
        let mut hold = self.holds.remove(at);
        hold.valid_until = 0;
        self.write(&hold, code);
        Some(hold)
    }

    pub(crate) fn release(&mut self, hold: Option<Uuid>) -> bool {
        match hold {
            Some(id) => match self.holds.iter().find(|hold| hold.id == id).cloned() {
                Some(hold) => self.end(&hold.name, hold.state, page::STATE_RELEASED).is_some(),
                None => false,
            },
            None => {
                self.holds.clear();
                self.session.take().is_some()
            }
        }
    }

    pub(crate) fn snapshot(&self) -> Event {
        let view = |hold: &FakeHold| {
            let granted = hold.state != HoldState::Waiting;
            let shown = acquired(hold);
            HoldView {
                hold: hold.id,
                kind: hold.kind,
                name: hold.name.clone(),
                state: hold.state,
                token: granted.then_some(hold.token),
                ttl_ms: shown.ttl_ms,
                valid_ms: shown.valid_ms,
                valid_until_boottime_ns: shown.valid_until_boottime_ns,
                slot: hold.slot,
                position: None,
                limit: None,
                request: Some(hold.request.clone()),
            }
        };
        Event::Snapshot(SnapshotEvent {
            session: self.session.expect("a session"),
            role: Role::None,
            holds: self.holds.iter().map(view).collect(),
        })
    }

    /// Sends an event to every stream.
    pub(crate) fn tell(&mut self, event: Event) {
        let frame = self.frame(&event);
        self.streams.retain(|stream| stream.send(frame.clone()).is_ok());
    }

    pub(crate) fn frame(&mut self, event: &Event) -> Bytes {
        let id = self.next_event;
        self.next_event += 1;
        let data = event.data().expect("JSON");
        let frame = Bytes::from(format!("id: {id}\nevent: {}\ndata: {data}\n\n", event.name()));
        self.ring.push_back((id, frame.clone()));
        self.ring.drain(..self.ring.len().saturating_sub(RING));
        frame
    }

    fn free_slot(&mut self) -> u32 {
        self.next_slot = (self.next_slot + 1) % page::SLOTS;
        self.next_slot
    }

    fn write(&self, hold: &FakeHold, code: u32) {
        let page = self.page.as_ref().expect("a page");
        page.hold(hold.slot, hold.id, hold.token, code, hold.valid_until);
    }
}

pub(crate) fn acquired(hold: &FakeHold) -> Acquired {
    let valid_ns = hold.valid_until.saturating_sub(page::boottime_ns());
    Acquired {
        hold: hold.id,
        kind: hold.kind,
        name: hold.name.clone(),
        state: hold.state,
        token: hold.token,
        ttl_ms: 30_000,
        valid_ms: valid_ns / 1_000_000,
        valid_until_boottime_ns: hold.valid_until,
        slot: hold.slot,
        limit: None,
        limit_changed: None,
    }
}

pub(crate) fn waiting(hold: &FakeHold) -> Waiting {
    Waiting {
        hold: hold.id,
        kind: hold.kind,
        name: hold.name.clone(),
        state: HoldState::Waiting,
        position: Some(1),
        limit_changed: None,
    }
}
