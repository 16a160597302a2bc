//! Upstreams: the stores of truth, and the journal of whoever runs a keeper over one.

#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "a name that says all needs no comment; nobody else links this")]

pub mod embedded;
pub mod journal;
pub mod redis;
pub mod remote;
pub mod settings;

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tenure_core::engine;
pub use tenure_core::model::Report;
use tenure_core::model::{CallId, Request};
use tenure_core::time::Boottime;
use tenure_wire::{Check, UpstreamState};

/// The health of the upstream, for people.
#[derive(Debug, Clone)]
pub struct Health {
    pub state: UpstreamState,
    pub last_error: Option<String>,
    /// Why nothing can be granted now, if that is for a reason of this host.
    pub grants_nothing: Option<String>,
}

/// An examination of an upstream: what was found, in the order in which it is worth reading.
///
/// Runs on the API's threads, so that it delays no beat, and is dropped when its caller goes away or
/// [`EXAMINATION_MAX`] has passed. Needs a runtime with time.
pub type Examination = Pin<Box<dyn Future<Output = Vec<Check>> + Send>>;

/// How long an examination may take; somebody waits for it at a terminal.
pub const EXAMINATION_MAX: Duration = Duration::from_millis(4500);

/// A store of truth. Lives on the heart's thread; whatever it waits for it waits for elsewhere.
pub trait Upstream {
    fn health(&self) -> Health;

    /// A thorough look at the upstream and its settings, to be run elsewhere.
    fn examine(&self) -> Examination;

    /// True if its data are part of the agent's own journal. A call to it takes effect together
    /// with the turn that makes it, and may be made before the turn is secured.
    fn shares_journal(&self) -> bool;

    /// True if a call is on its way, so that the runtime must run for its answer to come.
    fn is_calling(&self) -> bool;

    /// Starts a call. Every call is answered by exactly one [`Report::Answer`], within a deadline
    /// of the upstream's own.
    fn submit(&mut self, now: Boottime, call: CallId, request: Request);

    /// The next thing it has to say.
    fn poll_report(&mut self, context: &mut Context<'_>) -> Poll<Report>;

    /// When [`Upstream::handle_timeout`] wants to be called.
    fn poll_timeout(&self) -> Option<Boottime>;

    /// Does what is due.
    fn handle_timeout(&mut self, now: Boottime);

    /// Grants again, although what an earlier agent granted may be valid still; how long it would have
    /// been. `None` if there is no quarantine.
    fn end_quarantine(&mut self, _now: Boottime) -> Option<Duration> {
        None
    }

    /// The keys of what it has in the agent's own journal.
    fn rows(&self) -> Vec<engine::journal::Key> {
        Vec::new()
    }

    /// A row of the journal as it is now; `None` if it has ended.
    fn row(&self, _key: &engine::journal::Key) -> Option<engine::journal::Entry> {
        None
    }

    /// About how many rows there are.
    fn rows_count(&self) -> usize {
        0
    }

    /// Everything has been released, and the agent ends: the next one finds nothing unexplained.
    fn close(&mut self);
}
