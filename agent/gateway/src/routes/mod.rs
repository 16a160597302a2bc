//! Pure. The routes of mailboxes as a gateway has read them, and what of them each reader and each proxy lacks.
//!
//! | file | what |
//! |---|---|
//! | `table.rs` | the routes of a tenant under the store's version, and the changes since an earlier one |
//! | `expiries.rs` | when the time of each route is up |
//! | `queue.rs` | what a proxy has not been told yet, and when to try again |
//! | `refused.rs` | what a proxy refuses to be told, and when to try again |
//! | `ranges.rs` | which partitions are whose |
//!
//! Versions are the store's own, so that those of all gateways over one store are the same, and go on over their
//! restarts. A store's count begins with its clock, so that versions grow also where it has lost what it had.

mod expiries;
mod queue;
mod ranges;
mod refused;
#[cfg(test)]
mod simulation;
mod table;

use std::sync::Arc;

use tenure_wire::Route;

pub use self::queue::{Outcome, PUSH_WITHIN, Push, Queue};
pub use self::ranges::{PROXIES_MAX, ranges};
#[cfg(test)]
pub(crate) use self::table::tests;
pub use self::table::{Gone, Lack, Place, Reading, Table};

/// A change of the route of a mailbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub mailbox: Arc<str>,
    pub state: State,
}

impl From<Arc<Route>> for Change {
    fn from(route: Arc<Route>) -> Change {
        Change { mailbox: route.name.as_str().into(), state: State::Routed(route) }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    Routed(Arc<Route>),
    /// With the version of the table as of which there is no route.
    Removed(u64),
}
