//! The pages that a session has had, newest last.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use uuid::Uuid;

use crate::page::{Page, PageError};

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
#[derive(Debug)]
pub(super) struct Pages {
    pages: [OnceLock<Page>; PAGES_MAX],
    newest: AtomicUsize,
    following: Mutex<()>,
}

impl Pages {
    pub(super) fn new(page: Page) -> Pages {
        let pages = [const { OnceLock::new() }; PAGES_MAX];
        // Fails only where there is a page already.
        let _ = pages[0].set(page);
        Pages { pages, newest: AtomicUsize::new(0), following: Mutex::default() }
    }

    /// `None` is impossible: `newest` never points before a page.
    #[inline]
    pub(super) fn newest(&self) -> Option<&Page> {
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
