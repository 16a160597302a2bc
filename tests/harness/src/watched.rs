//! A state that one thread changes and another one waits on.

use std::sync::{Condvar, Mutex, MutexGuard};

use crate::DEADLINE;

const NO_PANIC: &str = "no thread panics while it has the state";

#[derive(Debug, Default)]
pub struct Watched<T> {
    state: Mutex<T>,
    changed: Condvar,
}

impl<T> Watched<T> {
    /// For a look, or for a change of which nobody need be told.
    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.state.lock().expect(NO_PANIC)
    }

    /// Changes it, and wakes whoever waits.
    #[track_caller]
    pub fn change(&self, change: impl FnOnce(&mut T)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    /// Waits without a deadline while this holds.
    #[track_caller]
    pub fn wait_while(&self, holds: impl FnMut(&mut T) -> bool) -> MutexGuard<'_, T> {
        self.changed.wait_while(self.lock(), holds).expect(NO_PANIC)
    }

    /// Waits until `look` finds something.
    ///
    /// # Errors
    ///
    /// The state, when nothing was found within [`DEADLINE`].
    #[track_caller]
    pub fn wait<F>(&self, mut look: impl FnMut(&T) -> Option<F>) -> Result<F, MutexGuard<'_, T>> {
        let mut found = None;
        let look = |state: &mut T| {
            found = look(state);
            found.is_none()
        };
        let (state, _) =
            self.changed.wait_timeout_while(self.lock(), DEADLINE, look).expect(NO_PANIC);
        found.ok_or(state)
    }
}
