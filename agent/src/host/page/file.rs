//! One page: its file and its memory.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use memmap2::{MmapOptions, MmapRaw};
use tenure::page::{
    BOOT_ID_AT, HOLD_AT, MAGIC, REVISION_AT, SESSION_AT, SIZE, SLOT_SIZE, SLOTS, SLOTS_AT,
    STATE_AT, TOKEN_AT, VALID_UNTIL_AT, VERSION, VERSION_AT,
};
use tenure::wire::HoldState;
use uuid::Uuid;

use super::access;
use crate::host::clock::Boottime;
use crate::host::directory::Directory;
use crate::model::{ClaimId, SessionId};

/// One mapped page.
///
/// Invariant: only the agent's own user can write to the file or change its size; truncated under
/// the mapping, it would end the agent with SIGBUS. That is why a page is never given to the
/// session's user: it stays the agent's, and an access control list lets that user read it.
#[derive(Debug)]
pub(super) struct Page {
    map: MmapRaw,
}

impl Page {
    pub(super) fn create(
        directory: &Directory,
        session: SessionId,
        uid: u32,
        boot_id: Uuid,
    ) -> io::Result<Page> {
        let name = session.to_string();
        directory.remove(&name)?;
        let mut file = directory.create(&name, 0o400)?;
        let mut content = [0; SIZE];
        content[..MAGIC.len()].copy_from_slice(&MAGIC);
        content[VERSION_AT..][..4].copy_from_slice(&VERSION.to_le_bytes());
        content[SLOTS_AT..][..4].copy_from_slice(&(SLOTS as u32).to_le_bytes());
        content[SESSION_AT..][..16].copy_from_slice(session.0.as_bytes());
        content[BOOT_ID_AT..][..16].copy_from_slice(boot_id.as_bytes());
        // Written, not only made that long: a full disk is an error here, and SIGBUS later.
        let made = file.write_all(&content).and_then(|()| {
            if uid != nix::unistd::geteuid().as_raw() {
                // Where the file system has no such lists the page stays the agent's alone, and
                // the session lives by its event stream.
                match access::let_read(&file, uid) {
                    Err(error) if error.kind() != io::ErrorKind::Unsupported => return Err(error),
                    _ => {}
                }
            }
            Page::map(&file)
        });
        made.inspect_err(|_| {
            let _ = directory.remove(&name);
        })
    }

    /// The page that is there, if it is one of this session and boot that only we can write.
    pub(super) fn adopt(
        directory: &Directory,
        session: SessionId,
        boot_id: Uuid,
    ) -> io::Result<Option<Page>> {
        let name = session.to_string();
        let file = match directory.read(&name, SIZE as u64) {
            Ok(file) => file,
            // `PermissionDenied`: something else than a file of ours.
            Err(error)
                if error.kind() == io::ErrorKind::NotFound
                    || error.kind() == io::ErrorKind::PermissionDenied =>
            {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let found = file.metadata()?;
        if found.len() != SIZE as u64 {
            return Ok(None);
        }
        // Its mode lets not even its owner write, so it is lifted for a moment.
        let mode = found.permissions();
        file.set_permissions(fs::Permissions::from_mode(mode.mode() | 0o200))?;
        let writable = directory.write(&name, SIZE as u64);
        file.set_permissions(mode)?;
        let writable = writable?;
        let same = writable.metadata()?;
        if (same.dev(), same.ino()) != (found.dev(), found.ino()) {
            return Ok(None);
        }
        let page = Page::map(&writable)?;
        Ok(page.is_of(session, boot_id).then_some(page))
    }

    fn map(file: &File) -> io::Result<Page> {
        Ok(Page { map: MmapOptions::new().len(SIZE).map_raw(file)? })
    }

    fn is_of(&self, session: SessionId, boot_id: Uuid) -> bool {
        let (session_low, session_high) = halves(session.0);
        let (boot_low, boot_high) = halves(boot_id);
        [
            (0, u64::from_le_bytes(MAGIC)),
            (VERSION_AT, u64::from(VERSION) | (SLOTS as u64) << 32),
            (SESSION_AT, session_low),
            (SESSION_AT + 8, session_high),
            (BOOT_ID_AT, boot_low),
            (BOOT_ID_AT + 8, boot_high),
        ]
        .into_iter()
        .all(|(at, value)| u64::from_le(self.word(at).load(Ordering::Relaxed)) == value)
    }

    pub(super) fn write_slot(
        &self,
        slot: u32,
        hold: ClaimId,
        token: u64,
        valid_until: Boottime,
        state: HoldState,
    ) {
        let slot = slot as usize;
        assert!(slot < SLOTS, "slot {slot} of {SLOTS}");
        let at = (slot + 1) * SLOT_SIZE;
        let valid = self.word(at + VALID_UNTIL_AT);
        let (low, high) = halves(hold.0);
        let fields = [(HOLD_AT, low), (HOLD_AT + 8, high), (TOKEN_AT, token)];
        let fields = fields.map(|(offset, value)| (self.word(at + offset), value.to_le()));
        // A slot that changes its hold is void in between: nobody may take one hold's valid-until
        // for another's.
        if fields.iter().any(|(word, value)| word.load(Ordering::Relaxed) != *value) {
            valid.store(0, Ordering::Relaxed);
            fence(Ordering::Release);
            for (word, value) in fields {
                word.store(value, Ordering::Relaxed);
            }
        }
        self.half_word(at + STATE_AT).store(code(state).to_le(), Ordering::Relaxed);
        valid.store(valid_until.as_nanos().to_le(), Ordering::Release);
        self.revise();
    }

    pub(super) fn void_all_but(&self, keep: u64) {
        for slot in (0..SLOTS).filter(|slot| keep & (1 << slot) == 0) {
            self.word((slot + 1) * SLOT_SIZE + VALID_UNTIL_AT).store(0, Ordering::Release);
        }
        self.revise();
    }

    pub(super) fn take_back(&self) {
        self.void_all_but(0);
    }

    fn revise(&self) {
        let revision = self.word(REVISION_AT);
        let next = u64::from_le(revision.load(Ordering::Relaxed)).wrapping_add(1);
        revision.store(next.to_le(), Ordering::Release);
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at + 8 <= SIZE);
        // SAFETY: inside the mapping, which is page-aligned, writable and lives as long as `self`;
        // all access of this process is atomic, and other processes can only read.
        unsafe { AtomicU64::from_ptr(self.map.as_mut_ptr().add(at).cast()) }
    }

    fn half_word(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(4) && at + 4 <= SIZE);
        // SAFETY: as in `word`; no word is accessed in both sizes at once.
        unsafe { AtomicU32::from_ptr(self.map.as_mut_ptr().add(at).cast()) }
    }
}

/// Two words whose little-endian bytes are the uuid's.
fn halves(id: Uuid) -> (u64, u64) {
    let bits = id.as_u128().swap_bytes();
    (bits as u64, (bits >> 64) as u64)
}

fn code(state: HoldState) -> u32 {
    match state {
        HoldState::Waiting => 1,
        HoldState::Held => 2,
        HoldState::Jeopardy => 3,
        HoldState::Released => 4,
        HoldState::Lost => 5,
    }
}
