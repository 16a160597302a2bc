//! The one thread that runs the keeper: timers first, then upstream answers, then tethers, then
//! client requests, a bounded number per turn.
//!
//! Invariant: nothing here waits for a client. Replies and events are handed over without waiting,
//! and a reader that cannot keep up is cut off.

mod budget;
mod effects;
mod handle;
mod latency;
mod lateness;
mod looking;
mod requests;
mod run;
mod shell;
mod spawn;
mod watches;

pub use budget::{BUFFERED_BYTES_MAX, Budget, Charge, OverBudget};
pub use handle::{
    CallError, Delivery, EventStream, Handle, HeartGone, Probe, StreamItem, StreamTether,
};
#[cfg(test)]
pub(crate) use handle::{Inbox, Message, channel};
pub use requests::{Acquisition, Registration};
pub use run::Parts;
pub use spawn::{Control, Heart, spawn};
pub use tenure_host::peer::Caller;
