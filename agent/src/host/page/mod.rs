//! Page files: what a session sees of its holds without asking. The layout is in [`tenure::page`].

mod access;
mod file;

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};

use tenure::wire::HoldState;
use uuid::Uuid;

use self::file::Page;
use super::clock::Boottime;
use super::directory::{Directory, DirectoryError};
use crate::model::{ClaimId, SessionId};

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
    open: HashMap<SessionId, Page>,
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
        Ok(Pages { directory, boot_id, open: HashMap::new() })
    }

    /// Where a session's page is, or would be.
    pub fn path(&self, session: SessionId) -> PathBuf {
        self.directory.join(session.to_string())
    }

    /// Makes a session's page, readable by that user. A page of this boot that is there already is
    /// kept with its content, which stays valid until it is rewritten.
    ///
    /// # Errors
    ///
    /// When it cannot be made. The session can do without: it has its event stream.
    pub fn open(&mut self, session: SessionId, uid: u32) -> Result<(), PageError> {
        if self.open.contains_key(&session) {
            return Ok(());
        }
        let fail = |what| {
            let path = self.path(session);
            move |source: io::Error| PageError { what, path, source }
        };
        let page = match Page::adopt(&self.directory, session, self.boot_id) {
            Ok(Some(page)) => page,
            Ok(None) => {
                Page::create(&self.directory, session, uid, self.boot_id).map_err(fail("create"))?
            }
            Err(error) => return Err(fail("adopt")(error)),
        };
        self.open.insert(session, page);
        Ok(())
    }

    /// Writes a slot of an open page; nothing for one that could not be opened.
    pub fn write_slot(
        &self,
        session: SessionId,
        slot: u32,
        hold: ClaimId,
        token: u64,
        valid_until: Boottime,
        state: HoldState,
    ) {
        if let Some(page) = self.open.get(&session) {
            page.write_slot(slot, hold, token, valid_until, state);
        }
    }

    /// Voids the slots of an open page that have no bit in `keep`.
    pub fn void_all_but(&self, session: SessionId, keep: u64) {
        if let Some(page) = self.open.get(&session) {
            page.void_all_but(keep);
        }
    }

    /// Takes everything on the page back, for whoever still maps it, and removes the file.
    pub fn close(&mut self, session: SessionId) {
        if let Some(page) = self.open.remove(&session) {
            page.take_back();
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
            if let Ok(Some(page)) = Page::adopt(&self.directory, session, self.boot_id) {
                page.take_back();
            }
            let gone = self.directory.remove(&name);
            gone.map_err(fail("remove", &self.directory.join(&name)))?;
            removed += 1;
        }
        Ok(removed)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    use std::process::Command;

    use memmap2::MmapOptions;
    use tenure::page::SIZE;

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
        pages.open(session, me()).unwrap();
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
        pages.open(session, me()).unwrap();
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
            first.open(session, me()).unwrap();
            first.write_slot(session, 3, ClaimId(session.0), 1, until, HoldState::Held);
        }
        // SAFETY: a private copy of the test's own file, only read.
        let mapped = unsafe { MmapOptions::new().map(&File::open(first.path(stray)).unwrap()) };
        let mapped = mapped.unwrap();
        fs::write(room.runtime.path().join("pages/not-a-page"), "").unwrap();
        drop(first);

        let mut second = room.pages();
        second.open(known, me()).unwrap();
        second.void_all_but(known, 1 << 3);
        assert_eq!(second.remove_strays(&HashSet::from([known])).unwrap(), 1);
        let content = fs::read(second.path(known)).unwrap();
        assert_eq!(word(&content, 4 * 64 + 24), 5, "valid until it is rewritten");
        assert_eq!(fs::metadata(second.path(known)).unwrap().mode() & 0o7777, 0o400);
        assert_eq!(word(&mapped, 4 * 64 + 24), 0);
        assert!(!second.path(stray).exists());
        second.void_all_but(known, 0);
        let content = fs::read(second.path(known)).unwrap();
        assert_eq!(word(&content, 4 * 64 + 24), 0, "the journal knows no hold in this slot");

        // After a reboot nothing on a page means anything.
        drop(second);
        let mut third = room.pages_after(Uuid::new_v4());
        third.open(known, me()).unwrap();
        let content = fs::read(third.path(known)).unwrap();
        assert_eq!(word(&content, 4 * 64 + 24), 0);
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
            pages.open(session, me()).unwrap();
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
        pages.open(session, 65_534).unwrap();
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
        room.pages().open(session, 65_534).unwrap();
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
