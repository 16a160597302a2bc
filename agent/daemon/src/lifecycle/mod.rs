//! The parts of the agent's life that `main` puts in order: what must be there before it serves,
//! what it says when it does, what a signal does to it.

mod assemble;
mod drain;
mod fit;
mod gateway;
mod quarantine;
mod ready;
mod reload;
mod reports;
mod thrift;
mod vigil;

pub use assemble::{AssembleError, Assembled, Given, assemble};
pub use drain::{Drained, Ending, drain};
pub use fit::{Fitted, Means};
pub use gateway::{GatewayError, run_gateway};
pub use quarantine::{QuarantineError, end_quarantine};
pub use ready::Ready;
pub use reload::Reload;
pub use reports::Reports;
pub use tenure_service::prepare::{Prepared, Wanted, prepare};
pub use thrift::give_memory_back;
pub use vigil::Vigil;

/// Exit codes, as sysexits(3) has them.
pub mod exit {
    /// The socket cannot be bound, or a directory cannot be used.
    pub const UNAVAILABLE: u8 = 69;
    /// Wrong configuration.
    pub const CONFIG: u8 = 78;
}
