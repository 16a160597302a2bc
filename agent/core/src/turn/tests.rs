//! A keeper and an engine in one process, on a clock that ticks at every look.

use std::collections::VecDeque;

use serde_json::{Value, json};
use tenure_wire::{LostReason, Release};
use uuid::Uuid;

use super::*;
use crate::engine::{Effect, Engine, EngineSettings, TokenRange};
use crate::keeper::{Peer, Quota, Refusal, Reply, Settings, StreamTarget, Ticket};
use crate::model::{self, Change};

/// The time that a look at the clock takes.
const TICK: Duration = Duration::from_micros(10);

/// The surroundings of the keeper here.
struct Host {
    now: Boottime,
    engine: Engine,
    reports: VecDeque<Report>,
    messages: VecDeque<(Ticket, crate::keeper::Request)>,
    /// So long takes each message.
    message_takes: Duration,
    replies: VecDeque<(Ticket, Result<Reply, Refusal>)>,
    /// The effects, in order.
    done: Vec<&'static str>,
    within: bool,
    /// Hints of an upstream beyond this process are lost.
    is_deaf: bool,
    /// Beats so far.
    beaten: usize,
}

struct Rig {
    keeper: Keeper,
    turn: Turn,
    host: Host,
    next: u64,
}

fn peer() -> Peer {
    Peer { uid: 1000, gid: 1000, process: None, watchable: true, quota: Quota::default() }
}

impl Shell for Host {
    type Message = (Ticket, crate::keeper::Request);

    fn now(&mut self) -> Boottime {
        self.now = self.now + TICK;
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

    fn receive(&mut self, keeper: &mut Keeper, now: Boottime, (ticket, request): Self::Message) {
        self.done.push("message");
        self.now = self.now + self.message_takes;
        keeper.handle_request(now, ticket, peer(), request);
    }

    fn shares_journal(&self) -> bool {
        self.within
    }

    fn submit(&mut self, call: CallId, request: Request) {
        self.done.push(if matches!(request, Request::Renew(_)) { "renewal" } else { "call" });
        if let Request::Renew(beats) = &request {
            self.beaten += beats.len();
        }
        let sent_at = self.now;
        let result = Ok(self.engine.handle(sent_at, request));
        self.hints();
        self.reports.push_back(Report::Answer { call, sent_at, result });
    }

    fn write(&mut self, _entry: Entry) {
        self.done.push("write");
    }

    fn secure(&mut self) {
        self.done.push("secure");
    }

    fn perform(&mut self, command: Command) {
        self.done.push(match command {
            Command::WritePage { valid_until: Boottime::ZERO, .. } => "void",
            Command::WritePage { .. } => "page",
            Command::Reply { ticket, reply } => {
                self.replies.push_back((ticket, reply));
                "reply"
            }
            Command::Send { .. } => "event",
            Command::CloseStream { .. } => "closed",
            _ => "other",
        });
    }

    fn note(&mut self, note: &Note) {
        self.done.push(match note {
            Note::Beat { .. } => "beat",
            Note::Lost { reason: LostReason::Slept, .. } => "slept",
            _ => "note",
        });
    }
}

impl Host {
    fn hints(&mut self) {
        while let Some(effect) = self.engine.poll_effect() {
            match effect {
                Effect::Change(Change::Lost { claim, .. }) if self.within => {
                    let reason = self.engine.why_gone(claim).unwrap();
                    self.reports.push_back(Report::Lost { claim, reason });
                }
                Effect::Change(change) if !self.is_deaf => {
                    self.reports.push_back(Report::Change(change));
                }
                _ => {}
            }
        }
    }
}

impl Rig {
    fn new(within: bool, budget: Budget) -> Rig {
        let now = Boottime::from_nanos(1_000_000_000_000);
        let settings = Settings { agent_uid: 1000, ..Settings::default() };
        Rig {
            keeper: Keeper::new(settings, [7; 32], now),
            turn: Turn::new(budget),
            host: Host {
                now,
                engine: Engine::new(
                    EngineSettings::default(),
                    TokenRange { first: 1, last: 1_000_000 },
                ),
                reports: VecDeque::new(),
                messages: VecDeque::new(),
                message_takes: Duration::ZERO,
                replies: VecDeque::new(),
                done: Vec::new(),
                within,
                is_deaf: false,
                beaten: 0,
            },
            next: 1,
        }
    }

    fn take(&mut self) -> usize {
        self.turn.take(&mut self.keeper, &mut self.host)
    }

    fn say(&mut self, request: crate::keeper::Request) {
        self.next += 1;
        self.host.messages.push_back((Ticket(self.next), request));
    }

    fn acquire(&mut self, session: Uuid, name: &str) {
        let fields = json!({"session": session, "kind": "leader", "name": name});
        self.say(crate::keeper::Request::Acquire(serde_json::from_value(fields).unwrap()));
    }

    fn register(&mut self, fields: Value) -> Uuid {
        self.say(crate::keeper::Request::Register(serde_json::from_value(fields).unwrap()));
        self.take();
        match self.host.replies.pop_back() {
            Some((_, Ok(Reply::Registered { session, .. }))) => session.0,
            other => panic!("{other:?}"),
        }
    }

    /// Turns until nothing is left to be said or done.
    fn rest(&mut self) {
        while self.take() > 0 || self.turn.has_more() || !self.host.reports.is_empty() {}
        self.host.done.clear();
    }

    fn count(&self, what: &str) -> usize {
        self.host.done.iter().filter(|done| **done == what).count()
    }
}

#[test]
fn nothing_is_told_before_the_journal_and_the_pages_and_calls_leave_after_both() {
    let mut rig = Rig::new(false, Budget::default());
    let session = rig.register(json!({"tether": "process"}));
    rig.acquire(session, "x");
    rig.rest();
    let hold = match rig.host.replies.pop_back() {
        Some((_, Ok(Reply::Acquired(acquired)))) => acquired.hold,
        other => panic!("{other:?}"),
    };
    let stream = StreamTarget::Session { session, last_event_id: None };
    rig.keeper.open_stream(rig.host.now, StreamId(1), peer(), stream).unwrap();
    rig.rest();
    rig.say(crate::keeper::Request::Release(Release { session, hold: Some(hold) }));
    rig.acquire(session, "y");
    rig.take();
    let done: Vec<_> =
        rig.host.done.iter().filter(|it| !matches!(**it, "message" | "write")).collect();
    assert_eq!(done, [&"secure", &"void", &"event", &"call", &"call", &"note"]);
}

#[test]
fn a_page_is_voided_before_another_is_written_and_never_shows_what_was_lost_at_once() {
    let mut rig = Rig::new(true, Budget::default());
    let session = rig.register(json!({"tether": "process"}));
    rig.host.done.clear();
    let page = |hold: u128, until: u64| Command::WritePage {
        session: SessionId(session),
        slot: 1,
        hold: ClaimId(Uuid::from_u128(hold)),
        token: 1,
        valid_until: Boottime::from_nanos(until),
        state: tenure_wire::HoldState::Held,
    };
    rig.turn.here = vec![page(1, 9), page(2, 9), page(3, 0), page(2, 0)];
    rig.take();
    assert_eq!(rig.host.done, ["secure", "void", "void", "page"]);
}

#[test]
fn whoever_is_preempted_on_the_same_host_has_lost_before_the_other_is_told() {
    for (within, is_deaf) in [(true, false), (false, false), (false, true)] {
        let mut rig = Rig::new(within, Budget::default());
        let [first, second] =
            [0, 100].map(|_| rig.register(json!({"tether": "process", "project": "p"})));
        let acquire = |session, priority| {
            let fields = json!({"session": session, "kind": "master", "priority": priority});
            crate::keeper::Request::Acquire(serde_json::from_value(fields).unwrap())
        };
        rig.say(acquire(first, 0));
        rig.rest();
        rig.host.is_deaf = is_deaf;
        rig.say(acquire(second, 100));
        while rig.count("page") == 0 {
            rig.take();
        }
        let at = |what| rig.host.done.iter().position(|done| *done == what);
        assert!(at("void").is_some() && at("void") < at("page"), "{:?}", rig.host.done);
        assert!(at("page") < at("reply"), "{:?}", rig.host.done);
    }
}

#[test]
fn a_page_that_is_only_voided_is_voided() {
    let mut rig = Rig::new(true, Budget::default());
    let session = rig.register(json!({"tether": "process"}));
    rig.host.done.clear();
    rig.turn.here = vec![Command::WritePage {
        session: SessionId(session),
        slot: 1,
        hold: ClaimId(Uuid::from_u128(1)),
        token: 1,
        valid_until: Boottime::ZERO,
        state: tenure_wire::HoldState::Lost,
    }];
    rig.take();
    assert_eq!(rig.host.done, ["secure", "void"]);
}

#[test]
fn messages_beyond_the_time_of_a_turn_wait_for_the_next_which_begins_with_timers() {
    let mut rig = Rig::new(true, Budget::default());
    let session = rig.register(json!({"tether": "process"}));
    rig.acquire(session, "x");
    rig.rest();
    rig.host.now = rig.keeper.poll_timeout().unwrap().before(Duration::from_millis(7));
    rig.host.message_takes = Duration::from_millis(2);
    for _ in 0..20 {
        rig.say(crate::keeper::Request::Beat(session));
    }
    assert_eq!(rig.take(), 3, "5 ms are over");
    assert_eq!(rig.count("reply"), 3, "what was taken in is answered");
    // The beat comes due within the second turn, which takes no more then.
    assert!(rig.take() <= 2);
    rig.host.done.clear();
    rig.take();
    assert_eq!(rig.host.done.first(), Some(&"renewal"), "{:?}", rig.host.done);
}

/// The cost of a message: everything that is looked up and everything that is done.
fn work_of(rig: &mut Rig, request: crate::keeper::Request) -> u64 {
    rig.rest();
    let before = crate::keeper::looked_up();
    rig.say(request);
    let mut done = 0;
    while rig.take() > 0 || rig.turn.has_more() || !rig.host.reports.is_empty() {
        done += rig.host.done.len() as u64;
        rig.host.done.clear();
    }
    crate::keeper::looked_up() - before + done
}

/// A rig for many sessions of one user.
fn crowd(within: bool) -> Rig {
    let mut rig = Rig::new(within, Budget { told: 100_000, ..Budget::default() });
    let settings = Settings {
        agent_uid: 1000,
        sessions_max: 20_000,
        sessions_per_uid_max: Some(20_000),
        ..Settings::default()
    };
    rig.keeper = Keeper::new(settings, [7; 32], rig.host.now);
    rig
}

#[test]
fn what_a_message_costs_does_not_depend_on_how_many_wait() {
    const EACH_MAX: u64 = 2500;
    let mut rig = crowd(true);
    let holder = rig.register(json!({"tether": "process"}));
    let acquire = |session: Uuid| {
        let fields = json!({"session": session, "kind": "leader", "name": "x", "wait": "queue"});
        crate::keeper::Request::Acquire(serde_json::from_value(fields).unwrap())
    };
    rig.say(acquire(holder));
    rig.rest();
    let mut first = None;
    for number in 0..10_000u64 {
        let waiter = rig.register(json!({"tether": "process"}));
        let target = StreamTarget::Session { session: waiter, last_event_id: None };
        rig.keeper.open_stream(rig.host.now, StreamId(number), peer(), target).unwrap();
        rig.say(acquire(waiter));
        rig.rest();
        first.get_or_insert(waiter);
    }
    let release = |session| crate::keeper::Request::Release(Release { session, hold: None });
    let last = rig.register(json!({"tether": "process"}));
    assert!(work_of(&mut rig, acquire(last)) < EACH_MAX, "one more waits");
    assert!(work_of(&mut rig, release(last)) < EACH_MAX, "the last gives up");
    assert!(work_of(&mut rig, release(first.unwrap())) < EACH_MAX, "the first gives up");
    assert!(work_of(&mut rig, release(holder)) < EACH_MAX, "the next is granted it");
    let resource = model::Resource {
        tenant: "default".into(),
        kind: tenure_wire::Kind::Leader,
        name: "x".into(),
    };
    assert!(work_of(&mut rig, crate::keeper::Request::Standing(resource)) < EACH_MAX);
}

#[test]
fn what_a_message_costs_grows_no_faster_than_a_project() {
    const SESSIONS: u64 = 1000;
    const EACH_MAX: u64 = 12;
    let mut rig = crowd(true);
    for number in 0..SESSIONS {
        let session = rig.register(json!({"tether": "process", "project": "p"}));
        let target = StreamTarget::Session { session, last_event_id: None };
        rig.keeper.open_stream(rig.host.now, StreamId(number), peer(), target).unwrap();
        rig.rest();
    }
    let register = json!({"tether": "process", "project": "p"});
    let register = crate::keeper::Request::Register(serde_json::from_value(register).unwrap());
    let work = work_of(&mut rig, register);
    assert!(work < SESSIONS * EACH_MAX, "one more session of {SESSIONS}: {work}");
}

#[test]
fn what_a_lost_feed_costs_is_spread_over_turns() {
    const SESSIONS: usize = 200;
    const HOLDS: usize = 50;
    const TURN_MAX: u64 = 10_000;
    let mut rig = crowd(false);
    for session in 0..SESSIONS {
        let id = rig.register(json!({"tether": "process", "project": format!("p{session}")}));
        for hold in 0..HOLDS {
            rig.acquire(id, &format!("{session} {hold}"));
        }
        rig.rest();
    }
    rig.host.beaten = 0;
    rig.host.reports.push_back(Report::FeedLost);
    let mut turns = 0;
    while rig.host.beaten < SESSIONS * (HOLDS + 1) {
        let before = crate::keeper::looked_up();
        rig.take();
        let work = crate::keeper::looked_up() - before;
        assert!(work < TURN_MAX, "{work} in turn {turns}");
        turns += 1;
        assert!(turns < 1000, "{} beaten", rig.host.beaten);
    }
    rig.rest();
    assert_eq!(rig.host.beaten, SESSIONS * (HOLDS + 1), "everything once");
}

#[test]
fn one_message_is_taken_however_long_each_takes() {
    let mut rig = Rig::new(true, Budget::default());
    let session = rig.register(json!({"tether": "process"}));
    rig.host.message_takes = Duration::from_secs(1);
    for _ in 0..3 {
        rig.say(crate::keeper::Request::Beat(session));
        rig.say(crate::keeper::Request::Beat(session));
        assert_eq!(rig.take(), 1);
        assert_eq!(rig.take(), 1);
    }
}

#[test]
fn more_events_than_fit_are_told_in_the_next_turns() {
    let budget = Budget { told: 10, time: Duration::ZERO, ..Budget::default() };
    let mut rig = Rig::new(true, budget);
    rig.register(json!({"tether": "process"}));
    for number in 0..25 {
        rig.turn
            .told
            .push_back(Command::Reply { ticket: Ticket(number), reply: Ok(Reply::Beaten) });
    }
    rig.host.done.clear();
    rig.host.replies.clear();
    rig.take();
    assert_eq!(rig.host.done.iter().filter(|it| **it == "reply").count() % 10, 0);
    assert!(rig.turn.has_more());
    rig.rest();
    let order: Vec<u64> = rig.host.replies.iter().map(|(ticket, _)| ticket.0).collect();
    assert_eq!(order, (0..25).collect::<Vec<_>>());
}

#[test]
fn timers_that_come_due_together_take_several_turns_and_beats_overtake_the_others() {
    let mut rig = Rig::new(true, Budget { time: Duration::ZERO, ..Budget::default() });
    let holder = rig.register(json!({"tether": "process"}));
    rig.acquire(holder, "x");
    rig.rest();
    for _ in 0..30 {
        let waiter = rig.register(json!({"tether": "process"}));
        for _ in 0..60 {
            let fields = json!({"session": waiter, "kind": "leader", "name": "x",
                                "wait": "block", "timeout_ms": 5000});
            rig.say(crate::keeper::Request::Acquire(serde_json::from_value(fields).unwrap()));
        }
        rig.rest();
    }
    rig.host.replies.clear();
    // Every wait has timed out, and the beat is due as well.
    rig.host.now = rig.host.now + Duration::from_secs(11);
    rig.take();
    assert_eq!(rig.count("renewal"), 1);
    let first = rig.host.replies.len();
    assert!(first > 0 && first < 1000, "{first} waits ended in the first turn");
    let mut turns = 1;
    while rig.host.replies.len() < 1800 {
        rig.take();
        turns += 1;
        assert!(turns < 100, "{}", rig.host.replies.len());
    }
    assert!(turns >= 4, "{turns}");
}

/// Whatever ends at once, a turn looks up and does no more than this.
const ENDS_MAX: u64 = 20_000;

/// Sessions, each with a stream, that hold 4 095 leaders together.
fn holders(rig: &mut Rig, sessions: u64, promise: Option<u64>) -> Vec<Uuid> {
    let mut ids = Vec::new();
    let holds = 4095 / sessions;
    for number in 0..sessions {
        let id = rig
            .register(json!({"tether": "process", "holds": holds.max(64), "progress_ms": promise}));
        let target = StreamTarget::Session { session: id, last_event_id: None };
        rig.keeper.open_stream(rig.host.now, StreamId(number), peer(), target).unwrap();
        for hold in 0..holds {
            rig.acquire(id, &format!("{number} {hold}"));
        }
        rig.rest();
        ids.push(id);
    }
    rig.host.replies.clear();
    ids
}

/// Takes turns, all of them short, until `is_over`; how many.
fn end_by_turns(rig: &mut Rig, is_over: impl Fn(&Rig) -> bool) -> usize {
    for turn in 0..1000 {
        if is_over(rig) {
            return turn;
        }
        let (before, done) = (crate::keeper::looked_up(), rig.host.done.len());
        rig.take();
        let work = crate::keeper::looked_up() - before + (rig.host.done.len() - done) as u64;
        assert!(work < ENDS_MAX, "{work} in turn {turn}");
    }
    panic!("not over after 1000 turns");
}

#[test]
fn the_end_of_a_session_with_many_holds_takes_several_turns_and_is_one_event() {
    for within in [true, false] {
        let mut rig = crowd(within);
        let session = holders(&mut rig, 1, None)[0];
        let other = rig.register(json!({"tether": "process"}));
        rig.rest();
        rig.say(crate::keeper::Request::Release(Release { session, hold: None }));
        rig.take();
        assert!(rig.host.replies.is_empty(), "it has not ended yet");
        // Nothing is granted to it any more.
        rig.acquire(session, "one more");
        rig.take();
        let refused = rig.host.replies.pop_front();
        let Some((_, Err(refusal))) = refused else { panic!("{refused:?}") };
        assert_eq!(refusal.code(), tenure_wire::Code::SessionLost);
        // Others are served meanwhile.
        rig.acquire(other, "0 0");
        rig.acquire(other, "0 4094");
        end_by_turns(&mut rig, |rig| rig.keeper.count_sessions() == 1);
        let ended = rig.host.replies.iter().filter(|(_, it)| matches!(it, Ok(Reply::Released(_))));
        assert_eq!(ended.count(), 1);
        assert_eq!(rig.count("void"), 4095);
        assert_eq!(rig.count("closed"), 1);
        end_by_turns(&mut rig, |rig| rig.host.reports.is_empty() && !rig.turn.has_more());
        assert!(rig.host.engine.count_claims() <= 2, "{}", rig.host.engine.count_claims());
    }
}

#[test]
fn an_agent_that_stops_takes_several_turns_for_many_holds() {
    for sessions in [1, 65, 1365] {
        let mut rig = crowd(true);
        holders(&mut rig, sessions, None);
        rig.host.done.clear();
        rig.keeper.handle_stop(rig.host.now);
        let turns = end_by_turns(&mut rig, |rig| rig.keeper.stopped());
        assert!(turns > 4, "{turns}");
        assert_eq!(rig.count("void"), 4095);
        assert_eq!(rig.count("closed"), sessions as usize);
    }
}

#[test]
fn a_broken_promise_takes_many_holds_away_in_several_turns() {
    let mut rig = crowd(true);
    holders(&mut rig, 1, Some(1000));
    rig.host.now = rig.host.now + Duration::from_secs(1);
    // It is late itself, and reads first what came in time.
    rig.take();
    rig.host.now = rig.host.now + Duration::from_secs(1);
    end_by_turns(&mut rig, |rig| rig.count("void") == 4095);
    assert_eq!(rig.keeper.count_sessions(), 1);
}

#[test]
fn what_runs_out_at_one_instant_takes_several_turns() {
    let mut rig = crowd(true);
    holders(&mut rig, 3, None);
    rig.host.done.clear();
    // Nobody has run meanwhile: every grant has ended in the store as well.
    rig.host.now = rig.host.now + Duration::from_secs(300);
    end_by_turns(&mut rig, |rig| rig.count("void") == 4095 && rig.host.engine.count_claims() == 0);
}

#[test]
fn holds_that_guarded_work_has_kept_go_in_several_turns() {
    for within in [true, false] {
        let mut rig = crowd(within);
        let fields = json!({
            "tether": "process", "holds": 4095, "progress_ms": 1000, "guarded": true
        });
        let session = rig.register(fields);
        for hold in 0..4095 {
            rig.acquire(session, &format!("kept {hold}"));
        }
        rig.rest();
        rig.host.replies.clear();
        rig.host.now = rig.host.now + Duration::from_secs(1);
        rig.take();
        rig.host.now = rig.host.now + Duration::from_secs(1);
        end_by_turns(&mut rig, |rig| rig.count("void") == 4095);
        assert!(rig.host.engine.count_claims() >= 4095, "they are kept");
        rig.say(crate::keeper::Request::Release(Release { session, hold: None }));
        end_by_turns(&mut rig, |rig| rig.keeper.count_sessions() == 0);
        end_by_turns(&mut rig, |rig| rig.host.reports.is_empty() && !rig.turn.has_more());
        assert_eq!(rig.host.engine.count_claims(), 0);
    }
}

#[test]
fn what_ran_out_while_the_machine_slept_is_lost_for_that_reason_however_much_it_is() {
    let mut rig = crowd(true);
    holders(&mut rig, 3, None);
    rig.host.done.clear();
    rig.host.now = rig.host.now + Duration::from_secs(300);
    rig.keeper.handle_wake(rig.host.now);
    end_by_turns(&mut rig, |rig| rig.count("void") == 4095 && rig.host.engine.count_claims() == 0);
    assert_eq!(rig.count("slept"), 4095);
}
