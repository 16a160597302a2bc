//! Ends holds at their valid-until, whatever the agent says or fails to say.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::shared::{Shared, is_held};
use crate::hold::{Cell, Reason};
use crate::page::boottime_ns;
use crate::wire::LostReason;

/// Tokio's timers stand still while the machine sleeps, so that none is trusted for longer.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// How long a page may say *not held* before the event that tells why, ns.
const UNTOLD_MAX_NS: u64 = 100_000_000;

/// Takes the session's holds and its page; loses every hold whose valid-until has passed, or that
/// the page no longer shows. Goes on for ever.
#[expect(
    clippy::disallowed_methods,
    reason = "no nap is longer than LOOK_AGAIN; the page's clock decides"
)]
pub(super) async fn watch(shared: Arc<Shared>) {
    loop {
        match look(&shared, boottime_ns()) {
            Some(next) => tokio::select! {
                () = tokio::time::sleep(next.min(LOOK_AGAIN)) => {}
                () = shared.watch_list.notified() => {}
            },
            None => shared.watch_list.notified().await,
        }
    }
}

/// Looks at every hold once; returns when to look again, if there is any.
fn look(shared: &Shared, now: u64) -> Option<Duration> {
    let connected = shared.is_connected();
    let cells = shared.cells();
    let held = cells.iter().filter(|cell| is_held(cell));
    let next = held.filter_map(|cell| look_at(shared, cell, now, connected)).min();
    next.map(|at| Duration::from_nanos(at.saturating_sub(now)))
}

/// When to look at the hold again; `None` when it is over.
fn look_at(shared: &Shared, cell: &Cell, now: u64, connected: bool) -> Option<u64> {
    let mut shown = shared.with_page(|page| page.valid_until(cell.slot(), cell.id));
    if shown <= now {
        shown = shared.look_again(cell);
    }
    if shown > now {
        cell.see_valid_until(shown);
        cell.doubted_since.store(0, Ordering::Relaxed);
        return Some(shown);
    }
    let seen = cell.seen_valid_until();
    if shown != 0 || seen <= now {
        cell.lose(Reason::Lost(LostReason::Expired), false);
        return None;
    }
    // The page was zeroed: the agent ended it, and an event with the reason is on its way; or a
    // restarted agent gave it another slot, and a snapshot is.
    if !connected {
        return Some(seen);
    }
    let since = match cell.doubted_since.load(Ordering::Relaxed) {
        0 => {
            cell.doubted_since.store(now, Ordering::Relaxed);
            now
        }
        since => since,
    };
    let until = since.saturating_add(UNTOLD_MAX_NS);
    if until <= now {
        cell.lose(Reason::Forgotten, false);
        return None;
    }
    Some(until.min(seen))
}
