//! The processes that write to the directories of a host.

use std::collections::BTreeSet;

/// Goes on with what a process had begun when it was killed.
pub(super) const KERNEL: u64 = 0;

/// Processes that can write; the last one has the greatest number.
#[derive(Debug)]
pub(super) struct Processes {
    alive: BTreeSet<u64>,
    last: u64,
    /// The process that has the lock.
    lock: Option<u64>,
    /// A process is killed at its so many-eth write from now on.
    dies: Option<(u64, u64)>,
}

impl Default for Processes {
    fn default() -> Processes {
        Processes { alive: BTreeSet::from([KERNEL]), last: KERNEL, lock: None, dies: None }
    }
}

impl Processes {
    /// A new one.
    pub(super) fn begin(&mut self) -> u64 {
        self.last += 1;
        self.alive.insert(self.last);
        self.last
    }

    /// Takes the lock for a process; whether it has it.
    pub(super) fn lock(&mut self, process: u64) -> bool {
        *self.lock.get_or_insert(process) == process
    }

    /// One is over.
    pub(super) fn end(&mut self, process: u64) {
        self.alive.remove(&process);
        self.lock.take_if(|owner| *owner == process);
        self.dies.take_if(|(of, _)| *of == process);
    }

    pub(super) fn is_alive(&self, process: u64) -> bool {
        self.alive.contains(&process)
    }

    /// One is to be killed at its so many-eth write from now on; never, with `None`.
    pub(super) fn die_at(&mut self, process: u64, writes: Option<u64>) {
        self.dies = writes.map(|writes| (process, writes));
    }

    /// Counts a write; true if the process is killed at it.
    pub(super) fn dies_now(&mut self, process: u64) -> bool {
        match &mut self.dies {
            Some((of, left)) if *of == process && *left > 0 => *left -= 1,
            Some((of, _)) if *of == process => {
                self.dies = None;
                self.alive.remove(&process);
                return true;
            }
            _ => {}
        }
        false
    }
}
