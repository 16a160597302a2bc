//! Between the gateways that share a store: news for agents whose stream is open at another one.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_core::model::{CallId, ClaimId};
use tenure_core::time::Boottime;

/// News for the agents of a principal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// The last group of the ids of its sessions and claims.
    pub principal: Arc<str>,
    pub what: What,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// A waiting claim was granted, and what the grant said, if it said something.
    Granted(ClaimId, Option<Carried>),
    /// A grant was taken away.
    Lost(ClaimId),
    /// In the words of the gateway that relayed it.
    Relayed(Vec<u8>),
}

/// What a grant to a waiter said, for an agent whose clock its store does not know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carried {
    /// The fencing token.
    pub token: u64,
    /// Semaphore only: the limit in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Others are granted it no earlier than so long after this grant, though no beat confirms it.
    pub kept: Duration,
}

/// A store that many gateways share. Like all hints, news come late, twice or not at all.
pub trait Relay {
    /// From now on the owner of a claim is told by the last group of the claim's id, wherever its stream is.
    fn begin(&mut self);

    /// Tells what concerns this principal from now on. The call is answered once nothing is missed, or with the
    /// feed down at once: then [`Report::FeedLost`](crate::Report::FeedLost) follows.
    fn attend(&mut self, now: Boottime, call: CallId, principal: Arc<str>);

    /// Tells it no longer.
    fn leave(&mut self, now: Boottime, principal: Arc<str>);

    /// Tells all gateways that attend this principal, this one too.
    fn relay(&mut self, now: Boottime, principal: Arc<str>, news: Vec<u8>);

    /// The next news; there are none but after [`Upstream::poll_report`](crate::Upstream::poll_report), which
    /// wakes up for them.
    fn next_told(&mut self) -> Option<Told>;
}
