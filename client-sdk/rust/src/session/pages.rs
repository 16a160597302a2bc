//! The pages that a session has had, newest last.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use uuid::Uuid;

use crate::page::{Page, PageError};
use crate::process::Process;

/// Files that one session follows its page through; an agent makes a new one at most once a start.
/// A session whose agent has done so more often is gone.
const PAGES_MAX: usize = 64;

/// Why the page that is there now cannot be followed.
#[derive(Debug, thiserror::Error)]
pub(super) enum FollowError {
    #[error(transparent)]
    Page(#[from] PageError),
    #[error("its page was replaced {PAGES_MAX} times, more often than a session follows")]
    TooMany,
}

/// Only ever grows, so that a reader needs no lock: two loads, where a lock would cost as much as
/// the clock.
pub(super) struct Pages {
    /// A child shares the memory that is mapped, and nothing on it is the child's.
    process: Process,
    pages: [OnceLock<Page>; PAGES_MAX],
    newest: AtomicUsize,
    following: Mutex<()>,
}

impl Pages {
    pub(super) fn new(page: Page) -> Pages {
        let pages = [const { OnceLock::new() }; PAGES_MAX];
        // Fails only where there is a page already.
        let _ = pages[0].set(page);
        Pages {
            process: Process::current(),
            pages,
            newest: AtomicUsize::new(0),
            following: Mutex::default(),
        }
    }

    /// True in a process that was forked off the one which mapped them.
    #[inline]
    pub(super) fn are_of_parent(&self) -> bool {
        !self.process.is_current()
    }

    /// `None` only in a child of the process: `newest` never points before a page.
    #[inline]
    pub(super) fn newest(&self) -> Option<&Page> {
        if self.are_of_parent() {
            return None;
        }
        self.pages.get(self.newest.load(Ordering::Acquire))?.get()
    }

    /// Maps the file that is now at `path`, if that is another than the newest one.
    pub(super) fn follow(
        &self,
        path: &Path,
        session: Uuid,
        boot_id: Uuid,
    ) -> Result<(), FollowError> {
        let _one_at_a_time = self.following.lock().unwrap_or_else(PoisonError::into_inner);
        if self.newest().is_some_and(|page| page.is_at(path)) {
            return Ok(());
        }
        let page = Page::open(path, session, boot_id)?;
        let next = self.newest.load(Ordering::Acquire) + 1;
        let place = self.pages.get(next).ok_or(FollowError::TooMany)?;
        if place.set(page).is_ok() {
            self.newest.store(next, Ordering::Release);
        }
        Ok(())
    }
}
