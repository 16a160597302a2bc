//! Page files: what a session sees of its holds without asking. The layout is in [`tenure_wire::page`].

mod access;
mod file;
mod guard;

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use tenure_core::model::{ClaimId, SessionId};
use tenure_core::time::Boottime;
use tenure_wire::HoldState;
use tenure_wire::page::{SLOT_SIZE, SLOTS_MAX, size};
use uuid::Uuid;

use self::file::{Identity, Page, Slot};
use super::directory::{Directory, DirectoryError};

/// Why a page could not be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what} page {}", .path.display())]
pub struct PageError {
    what: &'static str,
    path: PathBuf,
    source: io::Error,
}

/// The pages of all sessions, `<runtime_dir>/pages/<session uuid>`.
#[derive(Debug)]
pub struct Pages {
    directory: Directory,
    boot_id: Uuid,
    open: HashMap<SessionId, Open>,
    /// Set once it was said that a page cannot be written.
    is_failing: bool,
}

/// A page in use.
#[derive(Debug)]
struct Open {
    slots: u32,
    /// The user who may read it.
    uid: u32,
    /// `None` while it cannot be written.
    page: Option<Page>,
}

impl Pages {
    /// Takes the directory into use, and makes it if it is missing. Pages that are in it stay as
    /// they are until [`Pages::open`] or [`Pages::remove_strays`].
    ///
    /// # Errors
    ///
    /// When the directory cannot be made, or somebody else can write to it.
    pub fn in_directory(runtime_dir: &Directory, boot_id: Uuid) -> Result<Pages, DirectoryError> {
        // 0711: whoever knows the name of a page can open it, but nobody can list them.
        let directory = runtime_dir.child("pages", 0o711)?;
        Ok(Pages { directory, boot_id, open: HashMap::new(), is_failing: false })
    }

    /// The path of a session's page, which need not be there.
    pub fn path(&self, session: SessionId) -> PathBuf {
        self.directory.join(session.to_string())
    }

    /// Makes a session's page with that many slots, readable by that user. A page of this boot that
    /// is there already is kept with its content, which stays valid until it is rewritten.
    ///
    /// # Errors
    ///
    /// When it cannot be made. The session can do without: it has its event stream.
    pub fn open(&mut self, session: SessionId, uid: u32, slots: u32) -> Result<(), PageError> {
        if self.open.contains_key(&session) {
            return Ok(());
        }
        let page = Some(self.take_up(session, uid, slots)?);
        self.open.insert(session, Open { slots, uid, page });
        Ok(())
    }

    /// Until when a page of this boot shows that hold in that slot; `None` if it does not.
    pub fn shown_until(
        &self,
        session: SessionId,
        slots: u32,
        slot: u32,
        hold: ClaimId,
    ) -> Option<Boottime> {
        let identity = Identity { session, boot_id: self.boot_id, slots };
        Page::look(&self.directory, identity, slot, hold).ok().flatten()
    }

    fn take_up(&self, session: SessionId, uid: u32, slots: u32) -> Result<Page, PageError> {
        let fail = |what| {
            let path = self.path(session);
            move |source: io::Error| PageError { what, path, source }
        };
        let identity = Identity { session, boot_id: self.boot_id, slots };
        match Page::adopt(&self.directory, identity).map_err(fail("adopt"))? {
            Some(page) => Ok(page),
            None => Page::create(&self.directory, identity, uid).map_err(fail("create")),
        }
    }

    /// Writes a slot of an open page; nothing for one that could not be opened.
    ///
    /// A page that cannot be written, because its file system turned read-only, keeps what it says,
    /// and nothing extends that: what is held there ends for its reader at valid-until. It is written
    /// again, void at first, as soon as that is possible.
    pub fn write_slot(
        &mut self,
        session: SessionId,
        slot: u32,
        hold: ClaimId,
        token: u64,
        valid_until: Boottime,
        state: HoldState,
    ) {
        let slot_content = Slot { hold, token, valid_until, state };
        self.write(session, |page| page.write_slot(slot, slot_content));
    }

    /// Voids the slots of an open page but those.
    pub fn void_all_but(&mut self, session: SessionId, keep: &[u32]) {
        self.write(session, |page| page.void_all_but(keep));
    }

    fn write(&mut self, session: SessionId, write: impl Fn(&Page) -> io::Result<()>) {
        let Some(Open { slots, uid, page }) = self.open.get(&session) else { return };
        let written = match page {
            Some(page) => write(page),
            None => {
                let Ok(page) = self.take_up(session, *uid, *slots) else { return };
                let written = page.void_all_but(&[]).and_then(|()| write(&page));
                if written.is_ok()
                    && let Some(open) = self.open.get_mut(&session)
                {
                    open.page = Some(page);
                    if std::mem::take(&mut self.is_failing) {
                        tracing::info!(%session, "pages can be written again");
                    }
                }
                return;
            }
        };
        if let Err(error) = written {
            if let Some(open) = self.open.get_mut(&session) {
                open.page = None;
            }
            if !std::mem::replace(&mut self.is_failing, true) {
                tracing::error!(
                    %session,
                    %error,
                    "a page cannot be written, nor perhaps others: what they show ends at its \
                     valid-until; check the file system of {}",
                    self.directory.path().display()
                );
            }
        }
    }

    /// Takes everything on the page back, for whoever still maps it, and removes the file.
    pub fn close(&mut self, session: SessionId) {
        self.void_all_but(session, &[]);
        if self.open.remove(&session).is_some() {
            // If it cannot be removed it is a stray for the next start; it is void already.
            let _ = self.directory.remove(session.to_string());
        }
    }

    /// Removes every page that has not been opened: of sessions that this agent does not know.
    /// Whoever maps one sees that nothing on it is held. Returns how many there were.
    ///
    /// # Errors
    ///
    /// When the directory cannot be read.
    pub fn remove_strays(&self, known: &HashSet<SessionId>) -> Result<usize, PageError> {
        let fail = |what, path: &Path| {
            let path = path.to_owned();
            move |source: io::Error| PageError { what, path, source }
        };
        let mut removed = 0;
        for name in self.directory.names().map_err(fail("list", self.directory.path()))? {
            let Some(session) = name.to_str().and_then(|name| Uuid::try_parse(name).ok()) else {
                continue;
            };
            let session = SessionId(session);
            if known.contains(&session) {
                continue;
            }
            self.void_stray(session, &name);
            let gone = self.directory.remove(&name);
            gone.map_err(fail("remove", &self.directory.join(&name)))?;
            removed += 1;
        }
        Ok(removed)
    }

    /// Voids a page of whatever size, if it is one of this boot.
    fn void_stray(&self, session: SessionId, name: &OsStr) {
        let Ok(file) = self.directory.read(name, size(SLOTS_MAX) as u64) else { return };
        let Ok(found) = file.metadata() else { return };
        let slots = (found.len() / SLOT_SIZE as u64).saturating_sub(1);
        let slots = u32::try_from(slots).unwrap_or(0);
        let identity = Identity { session, boot_id: self.boot_id, slots };
        if slots > 0
            && let Ok(Some(page)) = Page::adopt(&self.directory, identity)
        {
            // One that cannot be written ends at its valid-until.
            let _ = page.void_all_but(&[]);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    use std::process::Command;

    use memmap2::MmapOptions;
    use tenure_wire::page::{SIZE, SLOTS};

    use super::*;

    struct Room {
        runtime: tempfile::TempDir,
        boot: Uuid,
    }

    impl Room {
        fn new() -> Room {
            let runtime = tempfile::tempdir().unwrap();
            fs::set_permissions(runtime.path(), fs::Permissions::from_mode(0o755)).unwrap();
            Room { runtime, boot: Uuid::new_v4() }
        }

        fn pages_after(&self, boot: Uuid) -> Pages {
            let runtime = Directory::private(self.runtime.path(), 0o755).unwrap();
            Pages::in_directory(&runtime, boot).unwrap()
        }

        fn pages(&self) -> Pages {
            self.pages_after(self.boot)
        }
    }

    fn me() -> u32 {
        nix::unistd::geteuid().as_raw()
    }

    fn session() -> SessionId {
        SessionId(Uuid::new_v4())
    }

    fn word(content: &[u8], at: usize) -> u64 {
        u64::from_le_bytes(content[at..at + 8].try_into().unwrap())
    }

    #[test]
    fn writes_the_documented_layout() {
        let room = Room::new();
        let mut pages = room.pages();
        let session = session();
        pages.open(session, me(), SLOTS).unwrap();
        let hold = ClaimId(Uuid::new_v4());
        let until = Boottime::from_nanos(77);
        pages.write_slot(session, 62, hold, 9, until, HoldState::Jeopardy);

        let path = pages.path(session);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o400);
        let content = fs::read(&path).unwrap();
        assert_eq!(content.len(), 4096);
        assert_eq!(&content[..8], b"TENUREP1");
        assert_eq!(content[8..16], [1, 0, 0, 0, 63, 0, 0, 0]);
        assert_eq!(&content[16..32], session.0.as_bytes());
        assert_eq!(&content[32..48], room.boot.as_bytes());
        assert_eq!(word(&content, 48), 1, "revision");
        let slot = &content[63 * 64..];
        assert_eq!(&slot[..16], hold.0.as_bytes());
        assert_eq!((word(slot, 16), word(slot, 24)), (9, 77));
        assert_eq!(slot[32..36], [3, 0, 0, 0]);
        assert!(content[64..63 * 64].iter().all(|&byte| byte == 0));

        pages.write_slot(session, 62, hold, 9, Boottime::ZERO, HoldState::Lost);
        let content = fs::read(&path).unwrap();
        assert_eq!((word(&content, 48), word(&content, 63 * 64 + 24)), (2, 0));
    }

    #[test]
    fn closing_takes_back_what_is_still_mapped() {
        let room = Room::new();
        let mut pages = room.pages();
        let session = session();
        pages.open(session, me(), SLOTS).unwrap();
        let mapped = File::open(pages.path(session)).unwrap();
        // SAFETY: a private copy of the test's own file, only read.
        let mapped = unsafe { MmapOptions::new().map(&mapped) }.unwrap();
        let until = Boottime::from_nanos(5);
        pages.write_slot(session, 0, ClaimId(Uuid::new_v4()), 1, until, HoldState::Held);
        assert_eq!(word(&mapped, 64 + 24), 5);
        pages.close(session);
        assert_eq!(word(&mapped, 64 + 24), 0);
        assert!(!pages.path(session).exists());
    }

    #[test]
    fn the_next_agent_keeps_what_it_knows_and_voids_the_rest() {
        let room = Room::new();
        let (known, stray) = (session(), session());
        let mut first = room.pages();
        let until = Boottime::from_nanos(5);
        for session in [known, stray] {
            first.open(session, me(), SLOTS).unwrap();
            first.write_slot(session, 3, ClaimId(session.0), 1, until, HoldState::Held);
        }
        // SAFETY: a private copy of the test's own file, only read.
        let mapped = unsafe { MmapOptions::new().map(&File::open(first.path(stray)).unwrap()) };
        let mapped = mapped.unwrap();
        fs::write(room.runtime.path().join("pages/not-a-page"), "").unwrap();
        drop(first);

        let mut second = room.pages();
        let shown = |slot, hold| second.shown_until(known, SLOTS, slot, hold);
        assert_eq!(shown(3, ClaimId(known.0)), Some(until));
        assert_eq!([shown(4, ClaimId(known.0)), shown(3, ClaimId(stray.0))], [None, None]);
        assert_eq!(shown(SLOTS, ClaimId(known.0)), None);
        let other_boot = room.pages_after(Uuid::new_v4());
        assert_eq!(other_boot.shown_until(known, SLOTS, 3, ClaimId(known.0)), None);
        second.open(known, me(), SLOTS).unwrap();
        second.void_all_but(known, &[3]);
        assert_eq!(second.remove_strays(&HashSet::from([known])).unwrap(), 1);
        let content = fs::read(second.path(known)).unwrap();
        assert_eq!(word(&content, 4 * 64 + 24), 5, "valid until it is rewritten");
        assert_eq!(fs::metadata(second.path(known)).unwrap().mode() & 0o7777, 0o400);
        assert_eq!(word(&mapped, 4 * 64 + 24), 0);
        assert!(!second.path(stray).exists());
        second.void_all_but(known, &[]);
        let content = fs::read(second.path(known)).unwrap();
        assert_eq!(word(&content, 4 * 64 + 24), 0, "the journal knows no hold in this slot");

        // After a reboot nothing on a page means anything.
        drop(second);
        let mut third = room.pages_after(Uuid::new_v4());
        third.open(known, me(), SLOTS).unwrap();
        let content = fs::read(third.path(known)).unwrap();
        assert_eq!(word(&content, 4 * 64 + 24), 0);
    }

    #[test]
    fn a_page_has_as_many_slots_as_asked_for() {
        let room = Room::new();
        let mut pages = room.pages();
        for (slots, bytes) in [(1, 128), (63, 4096), (64, 4160), (4095, 262_144)] {
            let session = session();
            pages.open(session, me(), slots).unwrap();
            let until = Boottime::from_nanos(5);
            let last = slots - 1;
            pages.write_slot(session, last, ClaimId(session.0), 1, until, HoldState::Held);
            // Such a slot is in a journal that somebody has changed.
            pages.write_slot(session, slots, ClaimId(session.0), 1, until, HoldState::Held);
            let content = fs::read(pages.path(session)).unwrap();
            assert_eq!(content.len(), bytes);
            assert_eq!(content[12..16], slots.to_le_bytes());
            assert_eq!(word(&content, bytes - 64 + 24), 5);

            let mut next = room.pages();
            next.open(session, me(), slots).unwrap();
            next.void_all_but(session, &[last]);
            let content = fs::read(next.path(session)).unwrap();
            assert_eq!(word(&content, bytes - 64 + 24), 5, "kept");
        }
        assert_eq!(room.pages().remove_strays(&HashSet::new()).unwrap(), 4);
    }

    /// A file that is shorter than its mapping faults, as one on a read-only file system does.
    #[test]
    fn a_page_that_cannot_be_written_ends_nobody() {
        let room = Room::new();
        let mut pages = room.pages();
        let (broken, whole) = (session(), session());
        let until = Boottime::from_nanos(5);
        for session in [broken, whole] {
            pages.open(session, me(), SLOTS).unwrap();
            pages.write_slot(session, 0, ClaimId(session.0), 1, until, HoldState::Held);
        }
        let path = pages.path(broken);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        File::options().write(true).open(&path).unwrap().set_len(0).unwrap();
        let later = Boottime::from_nanos(7);
        for session in [broken, whole] {
            pages.write_slot(session, 0, ClaimId(session.0), 1, later, HoldState::Held);
        }
        assert_eq!(word(&fs::read(pages.path(whole)).unwrap(), 64 + 24), 7);

        // Another one is made as soon as that is possible.
        pages.write_slot(broken, 1, ClaimId(broken.0), 1, later, HoldState::Held);
        let content = fs::read(&path).unwrap();
        assert_eq!((word(&content, 64 + 24), word(&content, 128 + 24)), (0, 7));
        pages.close(broken);
        assert!(!path.exists());
    }

    #[test]
    fn adopts_no_forgery() {
        let room = Room::new();
        let mut pages = room.pages();
        let victim = room.runtime.path().join("victim");
        let precious = vec![7; SIZE];
        fs::write(&victim, &precious).unwrap();

        let linked = session();
        symlink(&victim, pages.path(linked)).unwrap();
        let doubled = session();
        fs::hard_link(&victim, pages.path(doubled)).unwrap();
        let short = session();
        fs::write(pages.path(short), "short").unwrap();
        for session in [linked, doubled, short] {
            pages.open(session, me(), SLOTS).unwrap();
            pages.write_slot(session, 0, ClaimId(session.0), 1, Boottime::ZERO, HoldState::Held);
            let content = fs::symlink_metadata(pages.path(session)).unwrap();
            assert!(content.is_file() && content.len() == 4096 && content.nlink() == 1);
        }
        assert_eq!(fs::read(&victim).unwrap(), precious);
    }

    #[test]
    fn only_the_session_s_user_reads_and_nobody_else_writes() {
        if me() != 0 {
            return; // Other users take root.
        }
        let room = Room::new();
        let mut pages = room.pages();
        let session = session();
        pages.open(session, 65_534, SLOTS).unwrap();
        let path = pages.path(session);
        let path = path.to_str().unwrap();
        let tries = |uid: u32, program: &[&str]| {
            let ids = [format!("--reuid={uid}"), format!("--regid={uid}"), "--clear-groups".into()];
            Command::new("setpriv").args(ids).args(program).output().unwrap().status.success()
        };
        assert!(tries(65_534, &["cat", path]));
        assert!(!tries(65_533, &["cat", path]));
        assert!(!tries(65_534, &["chmod", "600", path]));
        assert!(
            !tries(65_534, &["truncate", "-s", "0", path]),
            "that would be SIGBUS for the agent"
        );
        assert!(!tries(65_534, &["ls", room.runtime.path().join("pages").to_str().unwrap()]));

        // Taking it up again keeps the right.
        drop(pages);
        room.pages().open(session, 65_534, SLOTS).unwrap();
        assert!(tries(65_534, &["cat", path]));
        assert!(!tries(65_533, &["cat", path]));
    }

    /// The whole file again as a user without rights, for whom its own 0400 is a barrier.
    #[test]
    fn an_unprivileged_agent_does_the_same() {
        if me() != 0 {
            return; // The other tests are that already.
        }
        let program = std::env::current_exe().unwrap();
        // Others may not reach the build directory.
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let copy = dir.path().join("tests");
        // By another process: were it open for writing here, a child forked meanwhile by another
        // test would keep it from being executed.
        assert!(Command::new("cp").arg(program).arg(&copy).status().unwrap().success());
        let ids = ["--reuid=65533", "--regid=65533", "--clear-groups"];
        let output = Command::new("setpriv")
            .args(ids)
            .arg(&copy)
            .args([
                "host::page",
                "host::directory",
                "host::lock",
                "host::process",
                "host::socket",
                "host::peer",
            ])
            .env("TMPDIR", dir.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}
