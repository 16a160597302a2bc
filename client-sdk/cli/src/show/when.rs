//! Instants as people read them.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::run::kernel::local_time;

/// The time of day as this host has it.
#[allow(clippy::disallowed_methods, reason = "people read it, and nothing goes by it")]
pub(super) fn now() -> SystemTime {
    SystemTime::now()
}

/// Date and time of day where the reader is.
pub(super) fn local(at: SystemTime) -> String {
    let seconds = at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let Some([year, month, day, hour, minute, second]) = local_time(seconds) else {
        return format!("@{seconds}");
    };
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
}
