use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::process::Command;

use memmap2::MmapOptions;
use tenure_wire::page::{SIZE, SLOTS, VALID_UNTIL_AT};

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

/// Two hundred sessions, more than are renewed at once.
#[test]
fn removed_pages_are_made_again_and_both_are_written() {
    let room = Room::new();
    let mut pages = room.pages();
    let sessions: Vec<SessionId> = (0..200).map(|_| session()).collect();
    let (hold, until) = (ClaimId(Uuid::new_v4()), Boottime::from_nanos(77));
    for session in &sessions {
        pages.open(*session, me(), SLOTS).unwrap();
        pages.write_slot(*session, 0, hold, 9, until, HoldState::Held);
    }
    let renew = |pages: &mut Pages| {
        pages.renew().unwrap();
        while pages.has_missing() {
            pages.renew_some().unwrap();
        }
    };
    let path = pages.path(sessions[0]);
    let mapped_by_the_program = File::open(&path).unwrap();
    let mut between = Vec::new();
    let valid_until = |file: &File| {
        let mut content = vec![0; SIZE];
        std::os::unix::fs::FileExt::read_exact_at(file, &mut content, 0).unwrap();
        word(&content, SLOT_SIZE + VALID_UNTIL_AT)
    };
    let folder = path.parent().unwrap();
    for round in 0..3 {
        let content = fs::read(&path).unwrap();
        fs::remove_dir_all(folder).unwrap();
        renew(&mut pages);
        assert_eq!(fs::read_dir(folder).unwrap().count(), sessions.len());
        assert_eq!(fs::read(&path).unwrap(), content);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o400);
        let later = Boottime::from_nanos(100 + round);
        pages.write_slot(sessions[0], 0, hold, 9, later, HoldState::Held);
        let shown = pages.shown_until(sessions[0], SLOTS, 0, hold);
        assert_eq!(shown, Some(later));
        assert_eq!(valid_until(&mapped_by_the_program), later.as_nanos());
        between.push(File::open(&path).unwrap());
    }
    // A page that was made in place of the first, and removed in its turn, is void: nobody writes it any more.
    assert_eq!(valid_until(&between[0]), 0);
    pages.close(sessions[0]);
    assert!(!path.exists());
    // A single page, too.
    fs::remove_file(pages.path(sessions[1])).unwrap();
    renew(&mut pages);
    assert_eq!(pages.shown_until(sessions[1], SLOTS, 0, hold), Some(until));
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
    assert!(!tries(65_534, &["truncate", "-s", "0", path]), "that would be SIGBUS for the agent");
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
        .args(["page::", "directory::", "lock::", "process::", "socket::", "peer::"])
        .env("TMPDIR", dir.path())
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && !told.contains(" 0 passed"), "{output:?}");
}
