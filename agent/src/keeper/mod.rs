//! PURE. The agent's mind: local sessions, holds, waiters, timers, which beat is due, what to tell
//! whom. Takes `now` and inputs, returns commands.

mod command;
pub mod journal;
mod request;
mod settings;

pub use command::{Command, Note, Numbered, StreamEnd};
pub use request::{
    Peer, Process, Reply, Request, SessionFacts, StatusView, StreamId, StreamTarget, Ticket,
};
pub use settings::{
    BEAT_MIN, BEATS_PER_CALL_MAX, HOLDS_PER_SESSION_MAX, Rhythm, STREAMS_PER_SESSION_MAX, Settings,
};
