//! The next one in line.

use serde_json::json;
use tenure::wire::GrantedEvent;
use uuid::Uuid;

use super::{Agent, Client, Events};

/// Someone in this process who waits for what the program under test holds.
pub struct Heir {
    /// Its session.
    pub session: Uuid,
    /// The events of the session.
    pub events: Events,
    /// Its place in the queue, and then its hold.
    pub hold: Uuid,
}

impl Heir {
    /// Gets in line for it, which somebody else must hold.
    #[track_caller]
    pub fn wait_for(agent: &Agent, kind: &str, name: &str) -> Heir {
        let mut http = agent.http();
        let session = http.register(&json!({"name": "next", "keepalive_ms": 600_000})).session;
        let events = agent.events(session);
        let hold = http.queue(session, kind, name, &json!({})).hold;
        Heir { session, events, hold }
    }

    /// Waits until it is told that it holds.
    #[track_caller]
    pub fn gets_it(&self) -> GrantedEvent {
        self.events.granted(self.hold)
    }
}
