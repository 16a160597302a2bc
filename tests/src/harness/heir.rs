//! The next one in line.

use serde_json::json;
use tenure::wire::GrantedEvent;
use uuid::Uuid;

use super::{Agent, Client, Events, Puppet};

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
    /// Waits in the queue of a resource, which another program must hold.
    #[track_caller]
    pub fn wait_for(agent: &Agent, kind: &str, name: &str) -> Heir {
        let mut http = agent.http();
        let session = http.register(&json!({"name": "next", "keepalive_ms": 600_000})).session;
        let events = agent.events(session);
        let hold = http.queue(session, kind, name, &json!({})).hold;
        Heir { session, events, hold }
    }

    /// Waits for the hold of a client, which is killed then, and gets it. With the session of the client, which nothing
    /// but this death can end in time.
    #[track_caller]
    pub fn of(agent: &Agent, client: &mut Puppet, tether: &str) -> (Uuid, Heir) {
        let with = json!({"tether": tether, "linger_ms": 86_400_000});
        let session = client.register(&with).session;
        client.open_events(session).snapshot();
        client.acquire(session, "leader", "role", &json!({}));
        let next = Heir::wait_for(agent, "leader", "role");
        client.program().kill();
        next.gets_it();
        (session, next)
    }

    /// Waits until it is told that it holds.
    #[track_caller]
    pub fn gets_it(&self) -> GrantedEvent {
        self.events.granted(self.hold)
    }
}
