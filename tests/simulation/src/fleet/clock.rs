//! The time of a fleet: it stands still until somebody has something to do.

use std::cell::Cell;

use tenure_core::time::Boottime;

thread_local! {
    static NOW: Cell<Boottime> = const { Cell::new(Boottime::ZERO) };
}

/// The present instant of the fleet on this thread.
pub(super) fn now() -> Boottime {
    NOW.get()
}

pub(super) fn set(now: Boottime) {
    NOW.set(now);
}
