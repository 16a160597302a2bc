//! The log of a daemon, and the numbers that every process has. Nobody waits for whoever reads them.

mod filter;
mod format;
mod human;
mod journald;
pub mod log;
mod process;
mod writer;

pub use format::{HAS_JOURNALD, LogFormat};
pub use process::Process;
pub use writer::{Unformatted, on_log_thread};
