//! Events on their way to many readers.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use serde_json::Value;
use tenure_wire::{Event, Standing};

/// The most that a number, an id and the names of fields take of an event, bytes.
const FIXED: usize = 512;
/// The same of a holder, a waiter or a hold in a list.
const FIXED_OF_ENTRY: usize = 192;
/// The size of a further place for the same event, bytes.
const PLACE: usize = 64;

/// An event in one copy, however many are told it, and serialised once.
#[derive(Debug, Clone)]
pub struct SharedEvent(Arc<Serialised>);

#[derive(Debug)]
struct Serialised {
    event: Event,
    data: OnceLock<Box<str>>,
}

impl SharedEvent {
    /// An event that nobody has been told.
    pub fn new(event: Event) -> SharedEvent {
        SharedEvent(Arc::new(Serialised { event, data: OnceLock::new() }))
    }

    /// Its JSON; whoever needs it first makes it.
    pub fn data(&self) -> &str {
        // No event has a map with keys that are not strings, nor a Serialize that fails.
        self.0.data.get_or_init(|| self.0.event.data().unwrap_or_default().into_boxed_str())
    }

    /// About how many bytes it takes, its JSON counted.
    pub(super) fn bytes(&self) -> usize {
        FIXED
            + match &self.0.event {
                Event::Standing(standing) => 2 * bytes_of_standing(standing),
                Event::Snapshot(snapshot) => snapshot.holds.len() * 4 * FIXED_OF_ENTRY,
                Event::Message(message) => 2 * bytes_of_json(&message.payload),
                // Their strings are names, which are short.
                _ => FIXED,
            }
    }
}

impl Deref for SharedEvent {
    type Target = Event;

    fn deref(&self) -> &Event {
        &self.0.event
    }
}

impl PartialEq for SharedEvent {
    fn eq(&self, other: &SharedEvent) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.event == other.0.event
    }
}

/// An event with its number in the session's stream.
#[derive(Debug, Clone, PartialEq)]
pub struct Numbered {
    /// Grows within a session, also across restarts of the agent; 0 on a stream without a session.
    pub id: u64,
    pub event: SharedEvent,
    /// How many bytes it counts for where it is kept: its share, if many are told it.
    pub bytes: usize,
}

impl Numbered {
    /// An event for one reader.
    pub fn new(id: u64, event: Event) -> Numbered {
        Numbered::shared(id, &SharedEvent::new(event), 1)
    }

    /// An event that so many are told.
    pub(super) fn shared(id: u64, event: &SharedEvent, readers: usize) -> Numbered {
        let bytes = event.bytes() / readers.max(1) + PLACE;
        Numbered { id, event: event.clone(), bytes }
    }
}

fn bytes_of_standing(standing: &Standing) -> usize {
    let holders = standing.holders.iter().map(|it| FIXED_OF_ENTRY + it.host.len() + it.name.len());
    let waiters = standing.waiters.iter().map(|it| FIXED_OF_ENTRY + it.host.len() + it.name.len());
    let sessions = standing.sessions.iter().map(|name| PLACE + name.len());
    holders.chain(waiters).chain(sessions).sum()
}

fn bytes_of_json(value: &Value) -> usize {
    PLACE
        + match value {
            Value::String(text) => text.len(),
            Value::Array(items) => items.iter().map(bytes_of_json).sum(),
            Value::Object(fields) => {
                fields.iter().map(|(key, value)| PLACE + key.len() + bytes_of_json(value)).sum()
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        }
}
