//! PURE. The vocabulary that keeper, engine and upstreams share: ids, resources, and the requests,
//! answers and hints that pass between an agent and its upstream; and the queue in which waiters stand.
//!
//! Invariant: nothing here decides anything but what a request may say (`check.rs`).

mod agents;
mod change;
mod check;
pub mod defaults;
mod failure;
mod history;
mod members;
mod peer;
mod queue;
mod report;
mod request;
mod resource;
mod share;
pub mod spare;
#[cfg(test)]
mod tests;

pub use agents::{
    AGENTS_PROJECT, AgentFacts, AgentSeen, SHOWN_EVERY, SHOWN_FOR, SHOWN_TEXT_MAX, UNSEEN_AFTER,
    all_agents, short,
};
pub use change::{Change, GrantHint};
pub use failure::{Denial, DenialRule, Failure};
pub use history::{
    Ending, HISTORY_KEPT, HISTORY_MAX, HistoryEntry, Holder, RECORD_MAX, TEXT_BYTES_MAX,
};
pub use members::{Member, Members, Within};
pub use peer::{COMMAND_BYTES_MAX, Peer, Process, Program, Quota};
pub use queue::Queue;
pub use report::Report;
pub use request::{
    Answer, BEATS_MAX, Beat, BeatAnswer, CallId, Claim, ClaimAnswer, GoneReason, LeaseTimes, Owner,
    Page, RESOURCES_LISTED_MAX, REVOKED_BY_MAX, Request, Revocation, STANDING_LISTED_MAX,
    SessionRecord, StandingEntry, Subject, TakeOver, Terms, UpstreamStanding,
};
pub use resource::{ClaimId, HostId, MARK_BYTES, Resource, SessionId};
pub use share::{Full, Share};
pub use tenure_wire::rules::{AGENTS_TENANT, GATEWAYS_TENANT, is_own_tenant};
