//! A program that holds and waits for as long as it lives.

use std::sync::Arc;

use serde_json::{Value, json};
use uuid::Uuid;

use super::{Agent, Client, EventLog, Granted, Puppet, Session};

/// A program of its own with a session that lives as long as its event stream. Dropping it kills
/// it.
pub struct Campaigner {
    /// The program.
    pub puppet: Puppet,
    /// Its session, as registered.
    pub registered: Session,
    /// Its session.
    pub session: Uuid,
    /// The events of its stream.
    pub events: Arc<EventLog>,
}

impl Campaigner {
    /// Registers with that name, in project `p`.
    #[track_caller]
    pub fn start(agent: &Agent, name: &str) -> Campaigner {
        Campaigner::start_with(agent, name, &json!({}))
    }

    /// Registers with that name, in project `p`; `more` adds to, or replaces, the fields.
    #[track_caller]
    pub fn start_with(agent: &Agent, name: &str, more: &Value) -> Campaigner {
        let mut puppet = Puppet::start(agent);
        let mut with = json!({"name": name, "tether": "connection", "project": "p"});
        for (key, value) in more.as_object().expect("more fields are an object") {
            with[key] = value.clone();
        }
        let registered = puppet.register(&with);
        let session = registered.session;
        let events = puppet.open_events(session);
        events.snapshot();
        Campaigner { puppet, registered, session, events }
    }

    /// Asks for a hold; it must be granted.
    #[track_caller]
    pub fn acquire(&mut self, kind: &str, name: &str, more: &Value) -> Granted {
        self.puppet.acquire(self.session, kind, name, more)
    }

    /// Gets in line for a hold, which must not be granted at once.
    #[track_caller]
    pub fn queue(&mut self, kind: &str, name: &str, more: &Value) -> Uuid {
        self.puppet.queue(self.session, kind, name, more).hold
    }

    /// Releases a hold, which must be there.
    #[track_caller]
    pub fn release(&mut self, hold: Uuid) {
        assert!(self.puppet.release(self.session, hold), "{hold} was not there any more");
    }

    /// True once an event said that the hold is granted.
    pub fn has(&self, hold: Uuid) -> bool {
        self.events.has("granted", hold)
    }

    /// Comes back to an agent that was started again, and opens its stream anew.
    #[track_caller]
    pub fn come_back(&mut self) {
        self.puppet.resume(&self.registered);
        let last = self.events.last_id();
        self.puppet.close_events(self.session);
        self.events = self.puppet.open_events_after(self.session, last);
    }

    /// SIGKILL, and waits until it is gone.
    #[track_caller]
    pub fn kill(&mut self) {
        self.puppet.program().kill();
    }
}
