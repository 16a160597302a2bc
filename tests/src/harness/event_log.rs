//! The events that came out of a stream so far.

use tenure::wire::{
    Event, GrantedEvent, JeopardyEvent, LostEvent, ReleasedEvent, ShutdownEvent, SnapshotEvent,
};
use uuid::Uuid;

use super::{DEADLINE, Watched, boottime_ns};

/// An event, when it was read, and its number.
#[derive(Debug, Clone)]
pub struct Seen {
    /// The `id:` field; without one, the last before it.
    pub id: u64,
    /// CLOCK_BOOTTIME, ns.
    pub at_ns: u64,
    pub event: Event,
}

/// Events in the order in which they came. Filled by a thread, searched by a test.
#[derive(Default)]
pub struct EventLog {
    state: Watched<State>,
}

#[derive(Default)]
struct State {
    seen: Vec<Seen>,
    /// Bytes of a frame that is not complete yet.
    partial: Vec<u8>,
    finished: bool,
}

impl EventLog {
    /// Takes in bytes of a `text/event-stream`.
    pub fn feed(&self, bytes: &[u8]) {
        let at_ns = boottime_ns();
        self.state.change(|state| {
            state.partial.extend_from_slice(bytes);
            while let Some(end) = state.partial.windows(2).position(|pair| pair == b"\n\n") {
                let frame: Vec<u8> = state.partial.drain(..end + 2).collect();
                let frame = String::from_utf8(frame).expect("events are UTF-8");
                let (id, event) = parse_frame(&frame);
                // As browsers do it: an event without a number leaves the last one in force.
                let id = id.or_else(|| Some(state.seen.last()?.id)).unwrap_or(0);
                state.seen.push(Seen { id, at_ns, event });
            }
        });
    }

    /// Takes in an event that was read elsewhere.
    pub fn push(&self, seen: Seen) {
        self.state.change(|state| state.seen.push(seen));
    }

    /// Nothing more will come.
    pub fn finish(&self) {
        self.state.change(|state| state.finished = true);
    }

    /// Everything so far.
    pub fn all(&self) -> Vec<Seen> {
        self.state.lock().seen.clone()
    }

    /// Number of the last event so far.
    pub fn last_id(&self) -> Option<u64> {
        self.state.lock().seen.last().map(|seen| seen.id)
    }

    /// Waits for the first event for which `pick` finds something, earlier ones included.
    #[track_caller]
    pub fn wait_for<T>(&self, what: &str, mut pick: impl FnMut(&Event) -> Option<T>) -> (Seen, T) {
        let found = self.wait(what, |state| {
            let found = state.seen.iter().find_map(|seen| Some((seen.clone(), pick(&seen.event)?)));
            match found {
                Some(found) => Some(Ok(found)),
                None if state.finished => Some(Err(state.seen.clone())),
                None => None,
            }
        });
        found.unwrap_or_else(|seen| panic!("the stream ended without {what}; it had {seen:#?}"))
    }

    /// Waits until the stream has ended, and returns everything that came.
    #[track_caller]
    pub fn wait_end(&self) -> Vec<Seen> {
        self.wait("the end of the stream", |state| state.finished.then(|| state.seen.clone()))
    }

    /// Waits without a deadline until there is more than `count` events, or the end: what is new,
    /// and whether that was all.
    pub fn wait_beyond(&self, count: usize) -> (Vec<Seen>, bool) {
        let state = self.state.wait_while(|state| state.seen.len() <= count && !state.finished);
        (state.seen[count..].to_vec(), state.finished)
    }

    /// Waits for the first event of the stream, which must be a snapshot.
    #[track_caller]
    pub fn snapshot(&self) -> SnapshotEvent {
        let (_, first) = self.wait_for("a snapshot", |event| Some(event.clone()));
        match first {
            Event::Snapshot(snapshot) => snapshot,
            other => panic!("a stream starts with a snapshot, not with {other:?}"),
        }
    }

    /// Waits until the hold is granted.
    #[track_caller]
    pub fn granted(&self, hold: Uuid) -> GrantedEvent {
        self.granted_seen(hold).1
    }

    /// Waits until the hold is granted, and tells when that was read.
    #[track_caller]
    pub fn granted_seen(&self, hold: Uuid) -> (Seen, GrantedEvent) {
        self.wait_for(&format!("granted of {hold}"), |event| match event {
            Event::Granted(granted) if granted.of.hold == hold => Some(granted.clone()),
            _ => None,
        })
    }

    /// Waits until the hold is lost.
    #[track_caller]
    pub fn lost(&self, hold: Uuid) -> LostEvent {
        let pick = |event: &Event| match event {
            Event::Lost(lost) if lost.of.hold == hold => Some(lost.clone()),
            _ => None,
        };
        self.wait_for(&format!("lost of {hold}"), pick).1
    }

    /// Waits until the hold is released.
    #[track_caller]
    pub fn released(&self, hold: Uuid) -> ReleasedEvent {
        let pick = |event: &Event| match event {
            Event::Released(released) if released.of.hold == hold => Some(released.clone()),
            _ => None,
        };
        self.wait_for(&format!("released of {hold}"), pick).1
    }

    /// Waits until the hold is in jeopardy.
    #[track_caller]
    pub fn jeopardy(&self, hold: Uuid) -> JeopardyEvent {
        let pick = |event: &Event| match event {
            Event::Jeopardy(jeopardy) if jeopardy.of.hold == hold => Some(jeopardy.clone()),
            _ => None,
        };
        self.wait_for(&format!("jeopardy of {hold}"), pick).1
    }

    /// Waits until the agent ends the stream.
    #[track_caller]
    pub fn shutdown(&self) -> ShutdownEvent {
        let pick = |event: &Event| match event {
            Event::Shutdown(shutdown) => Some(shutdown.clone()),
            _ => None,
        };
        self.wait_for("shutdown", pick).1
    }

    /// True if an event of the hold with this name has come so far.
    pub fn has(&self, name: &str, hold: Uuid) -> bool {
        self.state
            .lock()
            .seen
            .iter()
            .any(|seen| seen.event.name() == name && hold_of(&seen.event) == Some(hold))
    }

    #[track_caller]
    fn wait<T>(&self, what: &str, look: impl FnMut(&State) -> Option<T>) -> T {
        self.state.wait(look).unwrap_or_else(|state| {
            panic!("waited {DEADLINE:?} in vain for {what}; the stream had {:#?}", state.seen)
        })
    }
}

fn hold_of(event: &Event) -> Option<Uuid> {
    match event {
        Event::Queued(queued) => Some(queued.of.hold),
        Event::Granted(granted) | Event::Safe(granted) => Some(granted.of.hold),
        Event::Jeopardy(jeopardy) => Some(jeopardy.of.hold),
        Event::Lost(lost) => Some(lost.of.hold),
        Event::Released(released) => Some(released.of.hold),
        _ => None,
    }
}

fn parse_frame(frame: &str) -> (Option<u64>, Event) {
    let field =
        |name: &str| frame.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    let id =
        field("id").map(|id| id.parse().unwrap_or_else(|_| panic!("an id is a number: {frame:?}")));
    let name = field("event").unwrap_or_else(|| panic!("an event without name: {frame:?}"));
    let data = field("data").unwrap_or_else(|| panic!("an event without data: {frame:?}"));
    assert!(id.is_some() || ["shutdown", "standing"].contains(&name), "no id: {frame:?}");
    let event = Event::parse(name, data)
        .unwrap_or_else(|error| panic!("{error} in {frame:?}"))
        .unwrap_or_else(|| panic!("an event that the wire types do not know: {frame:?}"));
    (id, event)
}
