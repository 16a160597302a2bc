//! Writes pages as an agent does.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tenure::page;
use uuid::Uuid;

pub(crate) struct PageFile {
    file: File,
    pub(crate) path: PathBuf,
}

impl PageFile {
    pub(crate) fn create(path: &Path, session: Uuid, boot_id: Uuid) -> PageFile {
        // A new file in the place of an old one, as after a restart.
        let _ = std::fs::remove_file(path);
        let mut bytes = vec![0; page::SIZE];
        bytes[..8].copy_from_slice(&page::MAGIC);
        bytes[page::VERSION_AT..][..4].copy_from_slice(&page::VERSION.to_le_bytes());
        bytes[page::SLOTS_AT..][..4].copy_from_slice(&page::SLOTS.to_le_bytes());
        bytes[page::SESSION_AT..][..16].copy_from_slice(session.as_bytes());
        bytes[page::BOOT_ID_AT..][..16].copy_from_slice(boot_id.as_bytes());
        let mut file = File::create_new(path).expect("a page");
        file.write_all(&bytes).expect("written");
        PageFile { file, path: path.to_owned() }
    }

    pub(crate) fn patch(&self, at: usize, bytes: &[u8]) {
        self.file.write_all_at(bytes, at as u64).expect("written");
    }

    /// The agent's order: not valid, the new owner, valid.
    pub(crate) fn hold(&self, slot: u32, hold: Uuid, token: u64, state: u32, valid_until: u64) {
        let base = page::SLOT_SIZE * (slot as usize + 1);
        self.patch(base + page::VALID_UNTIL_AT, &0u64.to_le_bytes());
        self.patch(base + page::HOLD_AT, hold.as_bytes());
        self.patch(base + page::TOKEN_AT, &token.to_le_bytes());
        self.patch(base + page::STATE_AT, &state.to_le_bytes());
        self.patch(base + page::VALID_UNTIL_AT, &valid_until.to_le_bytes());
    }
}

/// That long from now, in ns since boot.
pub(crate) fn boottime_in(from_now: Duration) -> u64 {
    page::boottime_ns() + from_now.as_nanos() as u64
}
