//! A validity page as any program may read it: the file and the layout in `tenure::page`.

use std::fs;
use std::path::{Path, PathBuf};

use tenure::page;
use uuid::Uuid;

use super::boottime_ns;

/// One slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageSlot {
    /// The hold.
    pub hold: Uuid,
    /// Its token.
    pub token: u64,
    /// CLOCK_BOOTTIME, ns; 0 = not held.
    pub valid_until_ns: u64,
    /// 0 free, 1 waiting, 2 held, 3 jeopardy, 4 released, 5 lost.
    pub state: u32,
}

/// A session's page.
pub struct PageFile {
    path: PathBuf,
}

impl PageFile {
    /// The page at that path, checked against the layout.
    #[track_caller]
    pub fn open(path: &Path) -> PageFile {
        let page = PageFile { path: path.to_owned() };
        let bytes = page.bytes();
        assert_eq!(bytes[..8], page::MAGIC, "{}", path.display());
        assert_eq!(u32_at(&bytes, page::VERSION_AT), page::VERSION);
        assert_eq!(bytes.len(), page::size(page.slots()), "{}", path.display());
        page
    }

    /// The session that the page names.
    #[track_caller]
    pub fn session(&self) -> Uuid {
        uuid_at(&self.bytes(), page::SESSION_AT)
    }

    /// How many slots it has.
    #[track_caller]
    pub fn slots(&self) -> u32 {
        u32_at(&self.bytes(), page::SLOTS_AT)
    }

    /// One slot as it is now.
    #[track_caller]
    pub fn slot(&self, slot: u32) -> PageSlot {
        let bytes = self.bytes();
        let at = page::SLOT_SIZE * (slot as usize + 1);
        PageSlot {
            hold: uuid_at(&bytes, at + page::HOLD_AT),
            token: u64_at(&bytes, at + page::TOKEN_AT),
            valid_until_ns: u64_at(&bytes, at + page::VALID_UNTIL_AT),
            state: u32_at(&bytes, at + page::STATE_AT),
        }
    }

    /// True if the page says now that the hold is held.
    #[track_caller]
    pub fn held(&self, hold: Uuid) -> bool {
        (0..self.slots())
            .map(|slot| self.slot(slot))
            .any(|slot| slot.hold == hold && boottime_ns() < slot.valid_until_ns)
    }

    #[track_caller]
    fn bytes(&self) -> Vec<u8> {
        fs::read(&self.path).unwrap_or_else(|error| panic!("{}: {error}", self.path.display()))
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn uuid_at(bytes: &[u8], at: usize) -> Uuid {
    Uuid::from_bytes(bytes[at..at + 16].try_into().expect("sixteen bytes"))
}
