//! What commands left behind with their holds.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure::wire::EndedCommand;

use super::history::ended;
use super::table::visible;
use crate::failure::brief;

/// `sleep (4711), tee (4712)`.
pub(crate) fn names(leftovers: &BTreeMap<u32, String>) -> String {
    let name = |(pid, program): (&u32, &String)| format!("{} ({pid})", visible(program));
    leftovers.iter().map(name).collect::<Vec<_>>().join(", ")
}

/// That a command has ended, and what keeps its hold.
pub(super) fn told(command: &EndedCommand) -> String {
    let ago = brief(Duration::from_millis(command.ended_ms));
    let how = command.exit_status.map(|status| format!(" ({})", ended(status)));
    let what = match command.leftovers.is_empty() {
        true => String::new(),
        false => format!(": {}", names(&command.leftovers)),
    };
    format!(
        "its command ended {ago} ago{}; what it left behind keeps the hold{what}",
        how.unwrap_or_default()
    )
}
