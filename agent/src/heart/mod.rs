//! The one thread that runs the keeper: timers first, then upstream answers, then tethers, then
//! client requests, a bounded number per turn.

#[cfg(test)]
pub(crate) mod fake;
mod handle;

pub use crate::host::peer::Caller;
pub use handle::{EventStream, Handle, HeartGone, Probe, StreamItem};
