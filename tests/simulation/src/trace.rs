//! The trace of a run, for people and for comparison.

use std::collections::VecDeque;

use super::time::TrueTime;

/// Lines shown with a violation.
pub(crate) const LINES_MAX: usize = 60;

/// The last lines of a run, and a hash of all of it.
///
/// Lines cost more than the run itself, so they are only made when asked for; a violation is shown
/// by running its seed again.
#[derive(Default)]
pub(crate) struct Trace {
    lines: VecDeque<String>,
    hash: u64,
    on: bool,
    print: bool,
}

impl Trace {
    /// A trace with lines, printed at once or not, or without.
    pub(crate) fn new(on: bool, print: bool) -> Trace {
        Trace { on, print, ..Trace::default() }
    }

    /// Takes note of a happening.
    pub(crate) fn mix(&mut self, value: u64) {
        // FNV-1a, a word at a time: cheap, and the same on every machine.
        self.hash = (self.hash ^ value).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
    }

    /// Takes note of a line.
    pub(crate) fn line(&mut self, step: u64, now: TrueTime, line: impl FnOnce() -> String) {
        if !self.on {
            return;
        }
        let line = format!("{step:>7} {now:?} {}", line());
        for chunk in line.as_bytes().chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.mix(u64::from_le_bytes(word));
        }
        if self.print {
            println!("{line}");
        }
        if self.lines.len() == LINES_MAX {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }

    /// A hash of everything that happened.
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    /// The last lines.
    pub(crate) fn into_lines(self) -> Vec<String> {
        self.lines.into()
    }
}
