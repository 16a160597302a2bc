//! Instants at which calls pass the stages of their way through the agent. They are kept for a benchmark that
//! asks for them; otherwise no clock is read.

use std::fmt::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{env, fs};

use tenure_core::time::Boottime;

use crate::clock;

/// The variable with the file that the marks are written to at the end. No setting, which `TENURED_` begins.
const FILE: &str = "TENURE_BENCH_MARKS";
/// Marks that are kept; those after them are not.
const MARKS_MAX: usize = 1 << 16;

static WANTED: AtomicBool = AtomicBool::new(false);
static MARKS: Mutex<Vec<(Stage, Boottime)>> = Mutex::new(Vec::new());

/// A stage of a call's way, in the order in which calls pass them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The API has bytes of a client.
    Read,
    /// The request is parsed and checked, and goes to the heart.
    Asked,
    /// The heart takes it.
    Taken,
    /// A request to the store is with the operating system.
    Sent,
    /// The heart has bytes of the store.
    Heard,
    /// The heart has handed a reply or an event over.
    Decided,
    /// The API has the reply.
    Answered,
    /// Bytes for a client are with the operating system.
    Wrote,
}

impl Stage {
    fn name(self) -> &'static str {
        match self {
            Stage::Read => "read",
            Stage::Asked => "asked",
            Stage::Taken => "taken",
            Stage::Sent => "sent",
            Stage::Heard => "heard",
            Stage::Decided => "decided",
            Stage::Answered => "answered",
            Stage::Wrote => "wrote",
        }
    }
}

/// A call has come to that stage.
pub fn mark(stage: Stage) {
    if WANTED.load(Ordering::Relaxed) {
        keep(stage);
    }
}

#[cold]
fn keep(stage: Stage) {
    let now = clock::now();
    let mut marks = marks();
    if marks.len() < MARKS_MAX {
        marks.push((stage, now));
    }
}

/// Nothing panics while it holds the lock.
fn marks() -> MutexGuard<'static, Vec<(Stage, Boottime)>> {
    MARKS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does the work of an agent. If a benchmark wants marks, they are kept from here on, and in its file at the end:
/// one a line, a stage and the instant in ns.
pub fn around<T>(work: impl FnOnce() -> T) -> T {
    let Some(file) = env::var_os(FILE) else { return work() };
    marks().reserve(MARKS_MAX);
    WANTED.store(true, Ordering::Relaxed);
    let outcome = work();
    let mut text = String::new();
    for (stage, at) in marks().iter() {
        // A text takes everything.
        let _ = writeln!(text, "{} {}", stage.name(), at.as_nanos());
    }
    // Without the file the benchmark says so.
    let _ = fs::write(file, text);
    outcome
}
