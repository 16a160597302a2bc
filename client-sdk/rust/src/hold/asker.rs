//! The task or thread that asks for a hold.

use std::thread::{self, ThreadId};

use tokio::task;

/// A task, or a thread outside of a runtime's tasks. An asker can wait for others, and not for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asker {
    Task(task::Id),
    Thread(ThreadId),
}

impl Asker {
    /// The task that runs this, else the thread.
    pub(crate) fn current() -> Asker {
        let thread = || Asker::Thread(thread::current().id());
        task::try_id().map_or_else(thread, Asker::Task)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn tasks_and_threads_are_told_apart() {
        let this = Asker::current();
        assert_eq!(this, Asker::current());
        let task = || async { (Asker::current(), Asker::current()) };
        let (one, again) = tokio::spawn(task()).await.unwrap();
        let (other, _) = tokio::spawn(task()).await.unwrap();
        let thread = thread::spawn(Asker::current).join().unwrap();
        assert_eq!(one, again);
        for (a, b) in [(this, one), (one, other), (this, thread), (one, thread)] {
            assert_ne!(a, b);
        }
    }
}
