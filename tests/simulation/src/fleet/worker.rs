//! Programs that get something, hold it for a while, give it back, and want it again.

use std::time::Duration;

use serde_json::{Value, json};
use tenure::wire::Kind;
use tenure_core::keeper::{Refusal, Reply, Request};
use tenure_core::time::Boottime;
use uuid::Uuid;

use super::{Fleet, Happening};

/// The fields of a request for a hold. A semaphore has one permit.
pub(super) fn acquire(session: Uuid, kind: Kind, name: &str, wait: bool) -> Value {
    let mut fields =
        json!({"session": session, "kind": kind, "wait": if wait { "block" } else { "none" }});
    if kind != Kind::Master {
        fields["name"] = name.into();
    }
    if kind == Kind::Semaphore {
        fields["limit"] = 1.into();
    }
    fields
}

/// A program that works.
#[derive(Debug, Clone)]
pub struct Worker {
    pub agent: usize,
    pub session: Uuid,
    pub kind: Kind,
    pub name: String,
    /// How long it holds what it got.
    pub holds: Duration,
    /// How often it got it.
    pub grants: u64,
    /// The longest time from asking to getting it.
    pub longest: Duration,
    asked_at: Boottime,
    held: Option<Uuid>,
}

impl Worker {
    /// One that has not begun.
    pub fn new(agent: usize, session: Uuid, kind: Kind, name: &str, holds: Duration) -> Worker {
        Worker {
            agent,
            session,
            kind,
            name: name.to_owned(),
            holds,
            grants: 0,
            longest: Duration::ZERO,
            asked_at: Boottime::ZERO,
            held: None,
        }
    }
}

impl Fleet {
    pub(super) fn ask_again(&mut self, number: usize) {
        let now = self.now;
        let worker = &mut self.workers[number];
        worker.asked_at = now;
        let fields = acquire(worker.session, worker.kind, &worker.name, true);
        let request = serde_json::from_value(fields).expect("fields of the wire");
        let ticket = self.say(self.workers[number].agent, Request::Acquire(request));
        self.working.insert(ticket, number);
    }

    pub(super) fn done(&mut self, number: usize) {
        let worker = &mut self.workers[number];
        let (agent, session, hold) = (worker.agent, worker.session, worker.held.take());
        let fields = json!({"session": session, "hold": hold});
        let request = serde_json::from_value(fields).expect("fields of the wire");
        let ticket = self.say(agent, Request::Release(request));
        self.working.insert(ticket, number);
    }

    pub(super) fn heard(&mut self, number: usize, reply: Result<Reply, Refusal>) {
        let now = self.now;
        let worker = &mut self.workers[number];
        match reply {
            Ok(Reply::Acquired(acquired)) => {
                worker.grants += 1;
                worker.longest = worker.longest.max(now.since(worker.asked_at));
                worker.held = Some(acquired.hold);
                let at = now + worker.holds;
                self.plan(at, Happening::Done(number));
            }
            Ok(Reply::Released(_)) if now < self.works_until => self.ask_again(number),
            Ok(Reply::Released(_)) => {}
            other => panic!("a worker of {} was told {other:?}", worker.name),
        }
    }
}
