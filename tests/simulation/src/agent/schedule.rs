//! When an agent takes its next turn.

use super::super::time::TrueTime;

/// More turns than this without anything from outside within a second mean that timers spin.
const IDLE_TURNS_MAX: u32 = 2000;

/// The next turn, and how many there were for nothing.
#[derive(Default)]
pub(crate) struct Schedule {
    due: Option<TrueTime>,
    /// Turns since something came from outside.
    idle_turns: u32,
}

impl Schedule {
    /// Something has come from outside.
    pub(crate) fn wake(&mut self) {
        self.idle_turns = 0;
    }

    /// Nothing is planned any more.
    pub(crate) fn clear(&mut self) {
        self.due = None;
    }

    /// Takes a turn at that instant, if none is planned before; whether it is planned now.
    pub(crate) fn plan(&mut self, at: TrueTime) -> bool {
        let is_sooner = self.due.is_none_or(|due| at < due);
        if is_sooner {
            self.due = Some(at);
        }
        is_sooner
    }

    /// True if the turn is due; none is planned then.
    pub(crate) fn take_due(&mut self, now: TrueTime) -> bool {
        self.due.take_if(|due| *due <= now).is_some()
    }

    /// Counts a turn for nothing; true if there were too many.
    pub(crate) fn spins(&mut self) -> bool {
        self.idle_turns += 1;
        self.idle_turns > IDLE_TURNS_MAX
    }
}
