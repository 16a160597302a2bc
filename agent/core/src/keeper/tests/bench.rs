//! One keeper and one engine in simulated time, driven by turns as the heart does.

use std::collections::{BTreeMap, VecDeque};
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use serde_json::{Value, json};
use tenure_wire::{Event, HoldState, LostReason};
use uuid::Uuid;

use crate::engine::{Effect, Engine, EngineSettings, TokenRange};
use crate::keeper::journal::{Entry, Saved, SavedEnd, SavedHold, SavedSession};
use crate::keeper::{
    Command, Keeper, Note, Peer, Process, Refusal, Reply, Request, Settings, StreamEnd, StreamId,
    StreamTarget, Ticket,
};
use crate::model::{
    self, Answer, Beat, BeatAnswer, CallId, ClaimId, Denial, DenialRule, Failure, Quota, Report,
    SessionId, Subject,
};
use crate::time::Boottime;
use crate::turn::{Ending, Shell, Turn};

/// The fate of calls to the upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Link {
    Up,
    /// Calls are done, answers are lost.
    RepliesLost,
    /// Calls are not done.
    Down,
    /// Beats of a resource that is called `locked` fail, and all else is done.
    LocksOne,
    /// Calls are refused by this rule.
    Denies(DenialRule),
    /// Nothing comes back until the link is set again.
    Hung,
}

pub(super) struct Bench {
    pub(super) keeper: Keeper,
    turn: Turn,
    host: Host,
}

/// The surroundings of the keeper.
pub(super) struct Host {
    pub(super) engine: Engine,
    pub(super) now: Boottime,
    pub(super) link: Link,
    pub(super) replies: BTreeMap<Ticket, Result<Reply, Refusal>>,
    pub(super) events: BTreeMap<StreamId, Vec<Event>>,
    pub(super) ids: BTreeMap<StreamId, Vec<u64>>,
    pub(super) ended: BTreeMap<StreamId, StreamEnd>,
    pub(super) page: BTreeMap<ClaimId, (u64, Boottime, HoldState)>,
    pub(super) sessions: BTreeMap<SessionId, SavedSession>,
    pub(super) rows: BTreeMap<u64, SavedHold>,
    pub(super) remembered: Vec<SavedEnd>,
    /// Commands done so far: what the keeper's inputs cost.
    pub(super) done: usize,
    /// Claims among them.
    pub(super) claims: usize,
    /// When there were calls with renewals, and of how many.
    pub(super) renewals: Vec<(Boottime, usize)>,
    hung: VecDeque<(CallId, model::Request, Boottime)>,
    reports: VecDeque<Report>,
    messages: VecDeque<(Ticket, Peer, Request)>,
    next: u64,
}

impl Deref for Bench {
    type Target = Host;

    fn deref(&self) -> &Host {
        &self.host
    }
}

impl DerefMut for Bench {
    fn deref_mut(&mut self) -> &mut Host {
        &mut self.host
    }
}

pub(super) const ALICE: u32 = 1000;
pub(super) const MALLORY: u32 = 1001;

pub(super) fn peer(uid: u32) -> Peer {
    let process = Some(Process { pid: 4000 + uid, start_ticks: 1 });
    Peer { uid, gid: uid, process, watchable: true, quota: Quota::default() }
}

impl Bench {
    pub(super) fn new() -> Bench {
        let now = Boottime::from_nanos(1_000_000_000_000);
        let tokens = TokenRange { first: 1, last: 1_000_000 };
        let host = Host {
            engine: Engine::new(EngineSettings::default(), tokens),
            now,
            link: Link::Up,
            replies: BTreeMap::new(),
            events: BTreeMap::new(),
            ids: BTreeMap::new(),
            ended: BTreeMap::new(),
            page: BTreeMap::new(),
            sessions: BTreeMap::new(),
            rows: BTreeMap::new(),
            remembered: Vec::new(),
            done: 0,
            claims: 0,
            renewals: Vec::new(),
            hung: VecDeque::new(),
            reports: VecDeque::new(),
            messages: VecDeque::new(),
            next: 1,
        };
        let keeper = Keeper::new(Settings::default(), [7; 32], now);
        Bench { keeper, turn: Turn::default(), host }
    }

    fn fresh(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Asks, and returns the ticket under which the reply comes.
    pub(super) fn ask(&mut self, uid: u32, request: Request) -> Ticket {
        self.ask_within(Quota::default(), uid, request)
    }

    pub(super) fn ask_within(&mut self, quota: Quota, uid: u32, request: Request) -> Ticket {
        let ticket = self.say(quota, uid, request);
        self.settle();
        ticket
    }

    /// Asks; [`Bench::settle`] takes what was said since the last turn.
    pub(super) fn say(&mut self, quota: Quota, uid: u32, request: Request) -> Ticket {
        let ticket = Ticket(self.fresh());
        self.messages.push_back((ticket, Peer { quota, ..peer(uid) }, request));
        ticket
    }

    pub(super) fn reply(&mut self, ticket: Ticket) -> Option<Result<Reply, Refusal>> {
        self.replies.remove(&ticket)
    }

    pub(super) fn register(&mut self, fields: Value) -> Uuid {
        let register = serde_json::from_value(fields).unwrap();
        let ticket = self.ask(ALICE, Request::Register(register, Default::default()));
        match self.reply(ticket) {
            Some(Ok(Reply::Registered { session, .. })) => session.0,
            other => panic!("not registered: {other:?}"),
        }
    }

    /// Asks for a hold; the fields are those of the wire.
    pub(super) fn acquire(&mut self, session: Uuid, mut fields: Value) -> Ticket {
        fields["session"] = json!(session);
        let acquire = serde_json::from_value(fields).unwrap();
        self.ask(ALICE, Request::Acquire(acquire))
    }

    /// Asks for a hold that is free.
    pub(super) fn hold(&mut self, session: Uuid, fields: Value) -> Uuid {
        let ticket = self.acquire(session, fields);
        match self.reply(ticket) {
            Some(Ok(Reply::Acquired(acquired))) => acquired.hold,
            other => panic!("not acquired: {other:?}"),
        }
    }

    pub(super) fn release(&mut self, session: Uuid, hold: Option<Uuid>) -> Result<bool, Refusal> {
        let release = tenure_wire::Release { session, hold, exit_status: None, stopped: None };
        let ticket = self.ask(ALICE, Request::Release(release));
        match self.reply(ticket) {
            Some(Ok(Reply::Released(it))) => Ok(it.released),
            Some(Err(refusal)) => Err(refusal),
            other => panic!("no answer to a release: {other:?}"),
        }
    }

    /// The caller that was answered with a grant is gone, and has not read it.
    pub(super) fn undelivered(&mut self, hold: Uuid) {
        self.keeper.handle_undelivered(self.now, ClaimId(hold));
        self.settle();
    }

    pub(super) fn listen(&mut self, session: Uuid, last_event_id: Option<u64>) -> StreamId {
        let stream = StreamId(self.fresh());
        let target = StreamTarget::Session { session, last_event_id };
        self.keeper.open_stream(self.now, stream, peer(ALICE), target).unwrap();
        self.settle();
        stream
    }

    pub(super) fn close(&mut self, stream: StreamId) {
        self.keeper.handle_stream_closed(self.now, stream);
        self.settle();
    }

    /// The names of the events since the last look, with the reason of losses.
    pub(super) fn heard(&mut self, stream: StreamId) -> Vec<String> {
        let events = std::mem::take(self.events.entry(stream).or_default());
        events
            .iter()
            .map(|event| match event {
                Event::Lost(lost) => format!("lost {}", lost.reason),
                Event::Queued(queued) => format!("queued {}", queued.position),
                other => other.name().to_owned(),
            })
            .collect()
    }

    /// Lets time pass, doing everything when it is due.
    pub(super) fn pass(&mut self, by: Duration) {
        let end = self.now + by;
        loop {
            let due = [self.keeper.poll_timeout(), self.engine.poll_timeout()];
            let next = due.into_iter().flatten().min().filter(|due| *due <= end);
            let Some(next) = next else { break };
            self.now = self.now.max(next);
            self.settle();
        }
        self.now = end;
    }

    pub(super) fn set_link(&mut self, link: Link) {
        self.link = link;
        for (call, request, sent_at) in std::mem::take(&mut self.hung) {
            let now = self.now;
            let result = Ok(self.engine.handle(now, request));
            self.hints();
            self.reports.push_back(Report::Answer { call, sent_at, result });
        }
        self.settle();
    }

    /// The agent is killed and started again from its journal.
    pub(super) fn restart(&mut self) {
        self.keeper = Keeper::new(Settings::default(), [8; 32], self.now);
        self.turn = Turn::default();
        self.replies.clear();
        self.reports.clear();
        self.hung.clear();
        let saved = Saved {
            sessions: self.sessions.values().cloned().collect(),
            holds: self.rows.values().cloned().collect(),
            remembered: self.remembered.clone(),
        };
        self.keeper.adopt(self.now, saved);
        self.settle();
    }

    /// The process of a session cannot be watched.
    pub(super) fn unwatched(&mut self, session: Uuid) {
        self.keeper.handle_unwatched(self.now, SessionId(session));
        self.settle();
    }

    /// Takes a session up again, from a process of another PID namespace.
    pub(super) fn resume_unnumbered(&mut self, session: Uuid) {
        let secret = self.sessions[&SessionId(session)].secret.clone();
        let resume =
            serde_json::from_value(json!({"resume": {"session": session, "secret": secret}}));
        let ticket = Ticket(self.fresh());
        let peer = Peer { process: None, ..peer(ALICE) };
        self.messages.push_back((
            ticket,
            peer,
            Request::Register(resume.unwrap(), Default::default()),
        ));
        self.settle();
        assert!(matches!(self.reply(ticket), Some(Ok(Reply::Registered { resumed: true, .. }))));
    }

    /// Takes turns until nothing is left to be done at this instant.
    pub(super) fn settle(&mut self) {
        loop {
            self.turn.take(&mut self.keeper, &mut self.host);
            let is_quiet = self.host.reports.is_empty() && self.host.messages.is_empty();
            if is_quiet && !self.turn.has_more() {
                return;
            }
        }
    }

    pub(super) fn is_valid(&self, hold: Uuid) -> bool {
        self.page.get(&ClaimId(hold)).is_some_and(|(_, valid_until, _)| self.now < *valid_until)
    }

    pub(super) fn token(&self, hold: Uuid) -> u64 {
        self.page[&ClaimId(hold)].0
    }

    /// Nothing of any client is left anywhere.
    pub(super) fn assert_nothing_left(&mut self) {
        self.pass(Duration::from_secs(400));
        assert!(self.keeper.is_empty(), "{:?}", self.keeper.sizes());
        assert_eq!(self.keeper.poll_timeout(), None);
        assert!(!self.engine.has_grants());
        assert!(self.rows.is_empty() && self.sessions.is_empty());
        assert!(self.page.values().all(|(_, valid_until, _)| *valid_until == Boottime::ZERO));
    }
}

impl Host {
    fn hints(&mut self) {
        while let Some(effect) = self.engine.poll_effect() {
            if let Effect::Change(change) = effect
                && self.link == Link::Up
            {
                self.reports.push_back(Report::Change(change));
            }
        }
    }
}

impl Shell for Host {
    type Message = (Ticket, Peer, Request);

    fn now(&mut self) -> Boottime {
        self.now
    }

    fn next_report(&mut self) -> Option<Report> {
        self.reports.pop_front()
    }

    fn next_ending(&mut self) -> Option<Ending> {
        None
    }

    fn next_message(&mut self) -> Option<Self::Message> {
        self.messages.pop_front()
    }

    fn wake_upstream(&mut self, now: Boottime) {
        self.engine.handle_timeout(now);
        self.hints();
    }

    fn receive(
        &mut self,
        keeper: &mut Keeper,
        now: Boottime,
        (ticket, peer, request): Self::Message,
    ) {
        keeper.handle_request(now, ticket, peer, request);
    }

    fn shares_journal(&self) -> bool {
        false
    }

    fn submit(&mut self, call: CallId, request: model::Request) {
        self.done += 1;
        let sent_at = self.now;
        self.claims += usize::from(matches!(request, model::Request::Claim(_)));
        if let model::Request::Renew(beats) = &request {
            self.renewals.push((sent_at, beats.len()));
        }
        let result = match self.link {
            Link::Up => Ok(self.engine.handle(sent_at, request)),
            Link::LocksOne => Ok(self.handle_but_one(sent_at, request)),
            Link::RepliesLost => {
                self.engine.handle(sent_at, request);
                Err(Failure::Unknown("timed out".to_owned()))
            }
            Link::Denies(rule) => {
                Err(Failure::Denied(Denial { rule, detail: "names = \"ci/*\"".to_owned() }))
            }
            Link::Down => Err(Failure::Unavailable("connection refused".to_owned())),
            Link::Hung => {
                self.hung.push_back((call, request, sent_at));
                return;
            }
        };
        self.hints();
        self.reports.push_back(Report::Answer { call, sent_at, result });
    }

    fn write(&mut self, entry: Entry) {
        self.done += 1;
        match entry {
            Entry::Session(session) => {
                self.sessions.insert(session.id, *session);
            }
            Entry::SessionEnded(id) => {
                self.sessions.remove(&id);
            }
            Entry::Hold(hold) => {
                self.rows.insert(hold.row, *hold);
            }
            Entry::Valid { row, valid_until } => {
                self.rows.get_mut(&row).unwrap().valid_until = valid_until;
            }
            Entry::HoldEnded { row, .. } => {
                self.rows.remove(&row);
            }
            Entry::Remembered(end) => self.remembered.push(end),
        }
    }

    fn secure(&mut self) {}

    fn perform(&mut self, command: Command) {
        self.done += 1;
        match command {
            Command::Reply { ticket, reply } => {
                assert!(self.replies.insert(ticket, reply).is_none(), "one reply a ticket");
            }
            Command::Send { stream, event } => {
                self.ids.entry(stream).or_default().push(event.id);
                self.events.entry(stream).or_default().push(Event::clone(&event.event));
            }
            Command::CloseStream { stream, end } => {
                self.ended.insert(stream, end);
            }
            Command::WritePage { hold, token, valid_until, state, .. } => {
                self.page.insert(hold, (token, valid_until, state));
            }
            _ => {}
        }
    }

    fn note(&mut self, _note: &Note) {
        self.done += 1;
    }
}

impl Host {
    fn handle_but_one(&mut self, now: Boottime, request: model::Request) -> Answer {
        let model::Request::Renew(beats) = request else { return self.engine.handle(now, request) };
        let beat = |beat: Beat| match &beat.subject {
            Subject::Claim { resource, .. } if &*resource.name == "locked" => {
                BeatAnswer::Failed("somebody locked it".to_owned())
            }
            _ => match self.engine.handle(now, model::Request::Renew(vec![beat])) {
                Answer::Renew(mut answers) => answers.remove(0),
                other => panic!("{other:?}"),
            },
        };
        Answer::Renew(beats.into_iter().map(beat).collect())
    }
}

pub(super) fn lost(reason: LostReason) -> String {
    format!("lost {reason}")
}
