//! One page: its file and its memory.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use memmap2::{MmapOptions, MmapRaw};
use tenure_core::model::{ClaimId, SessionId};
use tenure_core::time::Boottime;
use tenure_wire::HoldState;
use tenure_wire::page::{
    BOOT_ID_AT, HOLD_AT, MAGIC, REVISION_AT, SESSION_AT, SLOT_SIZE, SLOTS_AT, STATE_AT, TOKEN_AT,
    VALID_UNTIL_AT, VERSION, VERSION_AT, size,
};
use uuid::Uuid;

use super::access;
use super::guard::guarded;
use crate::directory::Directory;

/// The end of the name of a page that is not whole yet.
pub(super) const NEW: &str = ".new";

/// One mapped page.
///
/// Invariant: only the agent's own user can write to the file or change its size. That is why a page
/// is never given to the session's user: it stays the agent's, and an access control list lets that
/// user read it.
#[derive(Debug)]
pub(super) struct Page {
    map: MmapRaw,
    slots: u32,
    /// Device and inode of the file.
    identity: (u64, u64),
}

/// The contents of a slot.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slot {
    pub(super) hold: ClaimId,
    pub(super) token: u64,
    pub(super) valid_until: Boottime,
    pub(super) state: HoldState,
}

/// The owner of a page.
#[derive(Debug, Clone, Copy)]
pub(super) struct Identity {
    pub(super) session: SessionId,
    pub(super) boot_id: Uuid,
    pub(super) slots: u32,
}

impl Page {
    pub(super) fn create(directory: &Directory, identity: Identity, uid: u32) -> io::Result<Page> {
        let Identity { session, boot_id, slots } = identity;
        let mut content = vec![0; size(slots)];
        content[..MAGIC.len()].copy_from_slice(&MAGIC);
        content[VERSION_AT..][..4].copy_from_slice(&VERSION.to_le_bytes());
        content[SLOTS_AT..][..4].copy_from_slice(&slots.to_le_bytes());
        content[SESSION_AT..][..16].copy_from_slice(session.0.as_bytes());
        content[BOOT_ID_AT..][..16].copy_from_slice(boot_id.as_bytes());
        Page::write(directory, &session.to_string(), slots, uid, &content)
    }

    /// Makes a page again whose file somebody removed, with its content from the first moment on.
    pub(super) fn create_like(
        page: &Page,
        directory: &Directory,
        identity: Identity,
        uid: u32,
    ) -> io::Result<Page> {
        let words = 0..page.map.len() / 8;
        let content: Vec<u8> = page.guarded(|| {
            words
                .flat_map(|word| page.word(word * 8).load(Ordering::Acquire).to_ne_bytes())
                .collect()
        })?;
        let name = identity.session.to_string();
        let made_as = format!("{name}{NEW}");
        let made = Page::write(directory, &made_as, identity.slots, uid, &content)?;
        let renamed = directory.rename(&made_as, &name);
        renamed.map(|()| made).inspect_err(|_| {
            let _ = directory.remove(&made_as);
        })
    }

    fn write(
        directory: &Directory,
        name: &str,
        slots: u32,
        uid: u32,
        content: &[u8],
    ) -> io::Result<Page> {
        directory.remove(name)?;
        let mut file = directory.create(name, 0o400)?;
        // Written, not only made that long: a full disk is an error here, and a fault later.
        let made = file.write_all(content).and_then(|()| {
            if uid != nix::unistd::geteuid().as_raw() {
                // On file systems without such lists the page stays the agent's alone, and the
                // session lives by its event stream.
                match access::let_read(&file, uid) {
                    Err(error) if error.kind() != io::ErrorKind::Unsupported => return Err(error),
                    _ => {}
                }
            }
            Page::map(&file, slots)
        });
        made.inspect_err(|_| {
            let _ = directory.remove(name);
        })
    }

    /// The page that is there, if it is one of this session and boot that only we can write.
    pub(super) fn adopt(directory: &Directory, identity: Identity) -> io::Result<Option<Page>> {
        let name = identity.session.to_string();
        let bytes = size(identity.slots) as u64;
        let file = match directory.read(&name, bytes) {
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
        if found.len() != bytes {
            return Ok(None);
        }
        // Its mode lets not even its owner write, so it is lifted for a moment.
        let mode = found.permissions();
        file.set_permissions(fs::Permissions::from_mode(mode.mode() | 0o200))?;
        let writable = directory.write(&name, bytes);
        file.set_permissions(mode)?;
        let writable = writable?;
        let same = writable.metadata()?;
        if (same.dev(), same.ino()) != (found.dev(), found.ino()) {
            return Ok(None);
        }
        let page = Page::map(&writable, identity.slots)?;
        Ok(page.guarded(|| page.is_of(identity))?.then_some(page))
    }

    /// Until when a page that is there shows that hold in that slot. Does not map it.
    pub(super) fn look(
        directory: &Directory,
        identity: Identity,
        slot: u32,
        hold: ClaimId,
    ) -> io::Result<Option<Boottime>> {
        let Identity { session, boot_id, slots } = identity;
        let file = directory.read(session.to_string(), size(slots) as u64)?;
        let (mut head, mut content) = ([0; SLOT_SIZE], [0; SLOT_SIZE]);
        file.read_exact_at(&mut head, 0)?;
        file.read_exact_at(&mut content, slot_at(slot) as u64)?;
        let is_shown = slot < slots
            && head.starts_with(&MAGIC)
            && head[VERSION_AT..][..4] == VERSION.to_le_bytes()
            && head[SLOTS_AT..][..4] == slots.to_le_bytes()
            && head[SESSION_AT..][..16] == *session.0.as_bytes()
            && head[BOOT_ID_AT..][..16] == *boot_id.as_bytes()
            && content[HOLD_AT..][..16] == *hold.0.as_bytes();
        let mut valid = [0; 8];
        valid.copy_from_slice(&content[VALID_UNTIL_AT..][..8]);
        Ok(is_shown.then(|| Boottime::from_nanos(u64::from_le_bytes(valid))))
    }

    fn map(file: &File, slots: u32) -> io::Result<Page> {
        let found = file.metadata()?;
        let identity = (found.dev(), found.ino());
        Ok(Page { map: MmapOptions::new().len(size(slots)).map_raw(file)?, slots, identity })
    }

    /// True if that path leads to this page.
    pub(super) fn is_at(&self, path: &Path) -> bool {
        let found = fs::symlink_metadata(path);
        found.is_ok_and(|found| (found.dev(), found.ino()) == self.identity)
    }

    fn guarded<T>(&self, access: impl FnOnce() -> T) -> io::Result<T> {
        guarded(self.map.as_ptr(), self.map.len(), access)
    }

    fn is_of(&self, Identity { session, boot_id, slots }: Identity) -> bool {
        let (session_low, session_high) = halves(session.0);
        let (boot_low, boot_high) = halves(boot_id);
        [
            (0, u64::from_le_bytes(MAGIC)),
            (VERSION_AT, u64::from(VERSION) | u64::from(slots) << 32),
            (SESSION_AT, session_low),
            (SESSION_AT + 8, session_high),
            (BOOT_ID_AT, boot_low),
            (BOOT_ID_AT + 8, boot_high),
        ]
        .into_iter()
        .all(|(at, value)| u64::from_le(self.word(at).load(Ordering::Relaxed)) == value)
    }

    /// Writes a slot. One that the page does not have is shown to nobody.
    ///
    /// # Errors
    ///
    /// When the page cannot be written any more.
    pub(super) fn write_slot(&self, at: u32, slot: Slot) -> io::Result<()> {
        if at >= self.slots {
            return Ok(());
        }
        self.guarded(|| self.store(slot_at(at), slot))
    }

    fn store(&self, at: usize, Slot { hold, token, valid_until, state }: Slot) {
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

    /// Voids every slot that is not to be kept.
    ///
    /// # Errors
    ///
    /// When the page cannot be written any more.
    pub(super) fn void_all_but(&self, keep: &[u32]) -> io::Result<()> {
        let keep: HashSet<u32> = keep.iter().copied().collect();
        self.guarded(|| {
            for slot in (0..self.slots).filter(|slot| !keep.contains(slot)) {
                self.word(slot_at(slot) + VALID_UNTIL_AT).store(0, Ordering::Release);
            }
            self.revise();
        })
    }

    fn revise(&self) {
        let revision = self.word(REVISION_AT);
        let next = u64::from_le(revision.load(Ordering::Relaxed)).wrapping_add(1);
        revision.store(next.to_le(), Ordering::Release);
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at + 8 <= self.map.len());
        // SAFETY: inside the mapping, which is page-aligned, writable and lives as long as `self`;
        // all access of this process is atomic, and other processes can only read.
        unsafe { AtomicU64::from_ptr(self.map.as_mut_ptr().add(at).cast()) }
    }

    fn half_word(&self, at: usize) -> &AtomicU32 {
        assert!(at.is_multiple_of(4) && at + 4 <= self.map.len());
        // SAFETY: as in `word`; no word is accessed in both sizes at once.
        unsafe { AtomicU32::from_ptr(self.map.as_mut_ptr().add(at).cast()) }
    }
}

fn slot_at(slot: u32) -> usize {
    (slot as usize + 1) * SLOT_SIZE
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
