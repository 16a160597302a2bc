//! What commands left behind with their holds.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure::wire::EndedCommand;

use super::history::ended;
use super::process::Seen;
use super::table::visible;
use crate::failure::brief;

/// `: sleep (4711), tee (4712) and 3 more`; nothing of nobody.
pub(crate) fn named(leftovers: &BTreeMap<u32, String>, more: u64) -> String {
    if leftovers.is_empty() {
        return String::new();
    }
    let name = |(pid, program): (&u32, &String)| format!("{} ({pid})", visible(program));
    let names = leftovers.iter().map(name).collect::<Vec<_>>().join(", ");
    match more {
        0 => format!(": {names}"),
        more => format!(": {names} and {more} more"),
    }
}

/// Those that go on; all of them if none can be seen from here.
pub(super) fn present(command: &EndedCommand) -> BTreeMap<u32, String> {
    let mut seen = command.leftovers.clone();
    seen.retain(|pid, _| Seen::find(*pid).is_some());
    if seen.is_empty() { command.leftovers.clone() } else { seen }
}

/// That a command has ended, and what keeps its hold.
pub(super) fn told(command: &EndedCommand) -> String {
    let ago = brief(Duration::from_millis(command.ended_ms));
    let how = command.exit_status.map(|status| format!(" ({})", ended(status)));
    format!(
        "its command ended {ago} ago{}; what it left behind keeps the hold{}",
        how.unwrap_or_default(),
        named(&present(command), command.more)
    )
}
