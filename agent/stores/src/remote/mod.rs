//! Everything that a remote store needs and that is not its own: calls with deadlines, connections kept
//! up, the feed of hints, the agent's own claims, expiry deadlines, examinations, streams with TLS.
//!
//! A store writes a [`Connector`] and a [`Backend`]; a [`Driver`] makes an upstream of them.
//!
//! Invariant: nothing here knows a store by name.

mod audiences;
mod backend;
mod calls;
mod connect_error;
mod driver;
mod epoch;
mod examination;
mod expiries;
mod hints;
mod interests;
mod link;
mod links;
mod name;
mod own_claims;
mod purpose;
mod reach;
mod reconnect;
mod store_clock;
pub mod stream;
mod suspicion;
#[cfg(test)]
mod tests;
mod token;
mod writes;

pub use audiences::Audience;
pub use backend::{
    Backend, ChoreOf, Chores, ClaimStep, ConnectionOf, FeedState, FoundOf, Hears, LineOf,
    Listening, NoChores, Seen, Topic, Verified,
};
pub use calls::Line;
pub use connect_error::{ConnectError, Peer, TlsFault};
pub use driver::Driver;
pub use epoch::{EpochPosition, EpochReport, EpochView, SharedEpoch};
pub use examination::{examination, examine};
pub use hints::{ConnectionHints, Heard, Hint, HintSink, Hints, hints};
pub use link::{Connected, Connector, Dialed, Dialer, HANGS_AFTER, Link, LinkState, Pump, Server};
pub use purpose::Purpose;
pub use reach::{Behind, Outage, Reach};
pub use store_clock::StoreClock;
pub use stream::{Endpoint, Tls};
pub use token::greatest_token;
pub use writes::{REFUSES_WRITES, WriteError};

use std::cell::RefCell;
use std::rc::Rc;

use crate::Upstream;
use crate::journal::{Ahead, Journal};
use crate::settings::{OpenError, Opened, Place};

/// A remote store with the journal of an agent that has nothing else to keep.
///
/// # Errors
///
/// When the journal cannot be used; then the store is not opened.
pub fn open(
    place: Place<'_>,
    store: impl FnOnce() -> Box<dyn Upstream>,
) -> Result<Opened, OpenError> {
    let (journal, mut found) =
        Journal::open(place.runtime_dir, place.boot_id, None, Ahead::default())?;
    (place.catch_up)(&mut found.keeper);
    let journal = Rc::new(RefCell::new(journal));
    Ok(Opened { store: store(), journal, saved: found.keeper })
}
