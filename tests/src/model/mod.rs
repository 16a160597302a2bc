//! The model test: the engine says what every answer means, and the scripts on a real Redis must say
//! the same.
//!
//! `Plan` draws operations from a seed. `Replay` carries them out on both sides, whose clocks are the
//! test's, and compares complete answers. The first difference ends a run; `shrink` leaves out what
//! is not needed to show it. What cannot be the same is named in `allowances`.

mod allowances;
mod clock;
mod compare;
mod messages;
mod operation;
mod oracle;
mod plan;
mod planted;
mod replay;
mod routes;
mod run;
mod scripts;
mod seen;
mod server;
mod shrink;
mod text;
mod tokens;

pub use planted::Planted;
pub use run::{Outcome, Runner};
pub use seen::Seen;
