//! The shapes that travel over the agent's socket, and the layout of the validity page.
//!
//! The agent and every client use these types, so that the two cannot drift apart. Times are
//! integers with the unit last in the name. Requests refuse unknown fields; replies may grow.

#![forbid(unsafe_code)]

mod acquire;
mod agents;
mod brief;
mod doctor;
mod event;
mod history;
mod log;
pub mod page;
mod permission;
mod problem;
mod register;
pub mod rules;
mod session;
mod shown;
mod standing;
mod status;

pub use acquire::{
    Acquire, Acquired, Attributes, HoldState, Kind, LimitChanged, Release, Released, Stopped, Wait,
    Waiting,
};
pub use agents::{AgentView, Agents};
pub use brief::brief;
pub use doctor::{Check, Diagnosis, Verdict};
pub use event::{
    Event, GrantedEvent, HoldEvent, JeopardyEvent, LostEvent, LostReason, MessageEvent,
    QueuedEvent, ReleasedCause, ReleasedEvent, ShutdownEvent, SnapshotEvent,
};
pub use history::{Happened, History, HistoryEntry, ProgramView};
pub use log::{LogFilter, SetLog};
pub use permission::Permission;
pub use problem::{Code, Problem};
pub use register::{
    AgentInfo, DEFAULT_PROJECT, DEFAULT_TENANT, Register, Registered, Resume, Tether,
};
pub use session::{
    Beat, Beaten, Checkpoint, Checkpointed, EndedCommand, HoldView, Leftovers, Role,
};
pub use shown::steers_terminal;
pub use standing::{
    ANOTHER_PRINCIPAL, Holder, List, Revoke, Revoked, Route, Routes, Standing, Waiter,
};
pub use status::{
    AgentStatus, GatewayStatus, LatencyStatus, LatenessStatus, Outage, QuarantineEnded,
    SessionStatus, Status, UpstreamState, UpstreamStatus,
};
