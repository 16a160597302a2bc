//! Memory goes back to the system when a burst is over.

use std::time::Duration;

use tenure_host::memory;

/// How often a daemon has to look.
pub const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Less than this makes no difference, bytes.
const NOTABLE_BYTES: u64 = 1024 * 1024;
/// Looks after which it is tried again although nothing seems to have changed: what was used is free
/// by then, perhaps, and nobody else can tell.
const LOOKS_MAX: u32 = 4;
/// A busy process is left alone: whoever wants memory meanwhile has to wait. Of a core.
const BUSY_SHARE: f64 = 0.3;

/// Gives free memory back. A look may block, so it belongs on a thread that nobody waits for.
#[derive(Debug)]
pub struct Thrift {
    kept_bytes: u64,
    busy_looks_max: Option<u32>,
    before: Look,
    given_back: Option<u64>,
    looks: u32,
}

#[derive(Debug, Clone, Copy)]
struct Look {
    resident: u64,
    cpu: Duration,
}

impl Thrift {
    /// For a process that may keep so many bytes without being asked: about what it has when nothing ever happened.
    /// Sets the allocator of the whole process to keep little: [`memory::keep_little`].
    pub fn new(kept_bytes: u64) -> Thrift {
        memory::keep_little();
        let (given_back, busy_looks_max) = (None, None);
        Thrift { kept_bytes, busy_looks_max, before: Look::now(), given_back, looks: 0 }
    }

    /// For a process that is never left in peace: after so many looks it is done while it is busy, too, if it has twice
    /// its due.
    pub fn at_last_after(mut self, looks: u32) -> Thrift {
        self.busy_looks_max = Some(looks);
        self
    }

    /// Looks whether there is memory to give back, and gives it.
    pub fn look(&mut self) {
        let look = Look::now();
        self.looks += 1;
        if self.is_time(look) {
            memory::give_back();
            let after = memory::resident_bytes().unwrap_or(look.resident);
            tracing::debug!(before = look.resident, after, "gave free memory back");
            self.given_back = Some(after);
            self.looks = 0;
        }
        self.before = look;
    }

    fn is_time(&self, look: Look) -> bool {
        let Thrift { kept_bytes, busy_looks_max, before, given_back, looks } = self;
        let is_new = given_back.is_none_or(|after| look.resident.abs_diff(after) > NOTABLE_BYTES);
        let is_calm = look.cpu.saturating_sub(before.cpu) < LOOK_EVERY.mul_f64(BUSY_SHARE)
            && look.resident <= before.resident + NOTABLE_BYTES;
        let is_overdue =
            busy_looks_max.is_some_and(|most| *looks >= most) && look.resident > 2 * kept_bytes;
        let is_calm_enough = is_calm && (is_new || *looks >= LOOKS_MAX);
        look.resident > *kept_bytes && (is_calm_enough || is_overdue)
    }
}

impl Look {
    fn now() -> Look {
        // A size that cannot be seen is never given back.
        Look {
            resident: memory::resident_bytes().unwrap_or(0),
            cpu: memory::cpu_time().unwrap_or(Duration::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1024 * 1024;

    fn thrift() -> Thrift {
        let before = Look { resident: 100 * MIB, cpu: Duration::ZERO };
        Thrift { before, ..Thrift::new(16 * MIB) }
    }

    fn after(resident_mib: u64, busy: bool) -> Look {
        let cpu = if busy { LOOK_EVERY } else { Duration::ZERO };
        Look { resident: resident_mib * MIB, cpu }
    }

    #[test]
    fn memory_goes_back_in_peace_once() {
        let thrift = thrift();
        assert!(thrift.is_time(after(100, false)));
        assert!(!thrift.is_time(after(100, true)) && !thrift.is_time(after(102, false)));
        assert!(!thrift.is_time(after(16, false)), "it may keep that");
        let mut again = Thrift { given_back: Some(100 * MIB), ..thrift };
        assert!(!again.is_time(after(100, false)), "there was no more to give");
        again.looks = LOOKS_MAX;
        assert!(again.is_time(after(100, false)));
    }

    #[test]
    fn a_process_that_is_never_in_peace_gives_back_at_last() {
        let mut thrift = thrift().at_last_after(6);
        thrift.looks = 5;
        assert!(!thrift.is_time(after(100, true)));
        thrift.looks = 6;
        assert!(thrift.is_time(after(100, true)) && !thrift.is_time(after(30, true)));
    }
}
