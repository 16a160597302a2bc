//! A keeper and an engine in one process, on a clock that ticks at every look.

mod budget;
mod ends;
mod order;
mod work;

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
        self.done.push(match request {
            Request::Renew(_) => "renewal",
            Request::Inspect(_) => "look",
            _ => "call",
        });
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
                    self.reports.push_back(Report::Lost {
                        claim,
                        reason,
                        revocation: self.engine.revocation(claim),
                    });
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
        self.say(crate::keeper::Request::Register(
            serde_json::from_value(fields).unwrap(),
            Default::default(),
        ));
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
