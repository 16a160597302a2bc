//! Tells a process from those that were forked off it.

#[cfg(target_os = "linux")]
use std::sync::LazyLock;
#[cfg(target_os = "linux")]
use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(target_os = "linux")]
use crate::page::Wiped;

/// The number of this process along a line of forks; zero until somebody asks. `None` where the kernel wipes nothing.
#[cfg(target_os = "linux")]
static MARK: LazyLock<Option<Wiped>> = LazyLock::new(|| Wiped::new().ok());
/// The next number. A child begins with a copy, so that it has another one than all before it.
#[cfg(target_os = "linux")]
static NEXT: AtomicU64 = AtomicU64::new(1);

/// The process that made something. A child has the memory of its parent, and nothing of what the parent has with
/// the agent.
#[derive(Clone, Copy)]
pub(crate) enum Process {
    /// Seen by one load, since each look at a hold asks.
    #[cfg(target_os = "linux")]
    Marked { word: &'static AtomicU64, number: u64 },
    /// Seen by a system call.
    Numbered(u32),
}

impl Process {
    /// This process.
    pub(crate) fn current() -> Process {
        #[cfg(target_os = "linux")]
        if let Some(mark) = &*MARK {
            let (word, next) = (mark.word(), NEXT.fetch_add(1, Ordering::Relaxed));
            // Of threads that ask at the same time the first one gives the number.
            let before = word.compare_exchange(0, next, Ordering::Relaxed, Ordering::Relaxed);
            return Process::Marked { word, number: before.err().unwrap_or(next) };
        }
        Process::Numbered(std::process::id())
    }

    /// False in a process that was forked off that one.
    #[inline]
    pub(crate) fn is_current(self) -> bool {
        match self {
            #[cfg(target_os = "linux")]
            Process::Marked { word, number } => word.load(Ordering::Relaxed) == number,
            Process::Numbered(number) => std::process::id() == number,
        }
    }
}
