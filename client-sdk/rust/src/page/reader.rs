//! A session's page as its client reads it.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use uuid::Uuid;

use super::map::Map;
use super::{
    BOOT_ID_AT, HOLD_AT, MAGIC, SESSION_AT, SLOT_SIZE, SLOTS_AT, SLOTS_MAX, STATE_AT, STATE_FREE,
    TOKEN_AT, VALID_UNTIL_AT, VERSION, VERSION_AT, boottime_ns, size,
};

/// Why a page cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PageError {
    /// It cannot be opened.
    #[error(
        "the page {} cannot be opened: it is readable by the user who registered, and in a \
         container only where the agent's runtime directory is mounted at the same path",
        path.display()
    )]
    Open {
        /// The page's file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// It is not a page of this version and this session.
    #[error("{} is not this session's page: {what}; is the agent of another version?", path.display())]
    Foreign {
        /// The page's file.
        path: PathBuf,
        /// The difference.
        what: String,
    },
}

/// A session's page, mapped read-only.
///
/// ```no_run
/// # fn example(registered: tenure::wire::Registered, acquired: tenure::wire::Acquired)
/// # -> Result<(), tenure::page::PageError> {
/// let page = tenure::page::Page::open(
///     registered.page.as_ref(),
///     registered.session,
///     registered.boot_id,
/// )?;
/// if page.held(acquired.slot, acquired.hold) {
///     println!("{:?} left", page.valid_for(acquired.slot, acquired.hold));
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Page {
    map: Map,
    slots: u32,
    /// Device and inode, to tell whether a path still names this page.
    file: (u64, u64),
}

impl Page {
    /// Maps the page at `path` and checks that it is the page of that session in that boot.
    ///
    /// # Errors
    ///
    /// [`PageError`].
    pub fn open(path: &Path, session: Uuid, boot_id: Uuid) -> Result<Page, PageError> {
        Page::open_checked(path, session, Some(boot_id))
    }

    /// The same for a program that was started under a hold and was told page and session in its
    /// environment: it cannot be of another boot than those.
    ///
    /// # Errors
    ///
    /// [`PageError`].
    pub fn open_inherited(path: &Path, session: Uuid) -> Result<Page, PageError> {
        Page::open_checked(path, session, None)
    }

    fn open_checked(path: &Path, session: Uuid, boot_id: Option<Uuid>) -> Result<Page, PageError> {
        let foreign = |what: String| PageError::Foreign { path: path.to_owned(), what };
        let (map, metadata) = Map::open(path)
            .map_err(|source| PageError::Open { path: path.to_owned(), source })?
            .ok_or_else(|| foreign(format!("it is shorter than {SLOT_SIZE} bytes")))?;
        let magic = map.load_u64(0).to_le_bytes();
        let version = map.load_u32(VERSION_AT);
        let slots = map.load_u32(SLOTS_AT);
        let of = Uuid::from_bytes(map.load_bytes(SESSION_AT));
        let boot = Uuid::from_bytes(map.load_bytes(BOOT_ID_AT));
        if magic != MAGIC {
            Err(foreign(format!("it begins with {magic:02x?}, not with {MAGIC:02x?}")))
        } else if version != VERSION {
            Err(foreign(format!("it has version {version}, not {VERSION}")))
        } else if slots > SLOTS_MAX || map.length() < size(slots) {
            let bytes = map.length();
            Err(foreign(format!("it says that it has {slots} slots, and has {bytes} bytes")))
        } else if of != session {
            Err(foreign(format!("it is of session {of}, not {session}")))
        } else if let Some(boot_id) = boot_id.filter(|boot_id| boot != *boot_id) {
            Err(foreign(format!("it is of boot {boot}, not {boot_id}")))
        } else {
            Ok(Page { map, slots, file: (metadata.dev(), metadata.ino()) })
        }
    }

    /// True if `path` still names this very file, rather than a newer one in its place.
    pub fn is_at(&self, path: &Path) -> bool {
        std::fs::metadata(path).is_ok_and(|now| (now.dev(), now.ino()) == self.file)
    }

    /// Until when the hold is valid, in ns of [`boottime_ns`]; 0 when it is not held, or when the
    /// slot is another hold's by now.
    #[inline]
    pub fn valid_until(&self, slot: u32, hold: Uuid) -> u64 {
        let Some(base) = self.slot_at(slot) else { return 0 };
        // In this order: a slot changes owner by valid-until zero, the new hold, its valid-until.
        // A word that is read before the slot is seen to be this hold's can only be this hold's.
        let valid_until = self.map.load_u64(base + VALID_UNTIL_AT);
        if self.map.load_bytes(base + HOLD_AT) == *hold.as_bytes() { valid_until } else { 0 }
    }

    /// True if the hold is valid at this instant.
    #[inline]
    pub fn held(&self, slot: u32, hold: Uuid) -> bool {
        let valid_until = self.valid_until(slot, hold);
        // The clock comes last: a thread that was stopped in between must not see an earlier now.
        boottime_ns() < valid_until
    }

    /// How long the hold is valid from now on unless renewed; zero when it is not held.
    pub fn valid_for(&self, slot: u32, hold: Uuid) -> Duration {
        let valid_until = self.valid_until(slot, hold);
        Duration::from_nanos(valid_until.saturating_sub(boottime_ns()))
    }

    /// The state code of the slot, such as [`STATE_HELD`](super::STATE_HELD);
    /// [`STATE_FREE`] when it is another hold's.
    pub fn state(&self, slot: u32, hold: Uuid) -> u32 {
        self.of(slot, hold, |base| self.map.load_u32(base + STATE_AT)).unwrap_or(STATE_FREE)
    }

    /// The fencing token of the grant; `None` when there is none, or the slot is another hold's.
    pub fn token(&self, slot: u32, hold: Uuid) -> Option<u64> {
        self.of(slot, hold, |base| self.map.load_u64(base + TOKEN_AT)).filter(|token| *token != 0)
    }

    /// The slot of the hold: `slot`, unless the page shows it as valid elsewhere.
    #[cfg(feature = "client")]
    pub(crate) fn find(&self, slot: u32, hold: Uuid) -> u32 {
        let mut found = (self.valid_until(slot, hold), slot);
        for candidate in 0..self.slots {
            let valid_until = self.valid_until(candidate, hold);
            if valid_until > found.0 {
                found = (valid_until, candidate);
            }
        }
        found.1
    }

    fn of<T>(&self, slot: u32, hold: Uuid, read: impl Fn(usize) -> T) -> Option<T> {
        let base = self.slot_at(slot)?;
        let value = read(base);
        (self.map.load_bytes(base + HOLD_AT) == *hold.as_bytes()).then_some(value)
    }

    #[inline]
    fn slot_at(&self, slot: u32) -> Option<usize> {
        (slot < self.slots).then_some(SLOT_SIZE * (slot as usize + 1))
    }
}
