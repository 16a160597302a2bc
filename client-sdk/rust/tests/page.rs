//! The page, with a writer that can stop.
#![allow(clippy::expect_used, missing_docs, reason = "tests")]

mod writer;

use std::time::{Duration, Instant};

use tenure::page::{self, Page, PageError};
use uuid::Uuid;
use writer::{PageFile, boottime_in};

struct Fixture {
    _directory: tempfile::TempDir,
    file: PageFile,
    session: Uuid,
    boot_id: Uuid,
}

fn fixture() -> Fixture {
    let directory = tempfile::tempdir().expect("a directory");
    let (session, boot_id) = (Uuid::new_v4(), Uuid::new_v4());
    let file = PageFile::create(&directory.path().join("page"), session, boot_id);
    Fixture { _directory: directory, file, session, boot_id }
}

impl Fixture {
    fn open(&self) -> Result<Page, PageError> {
        Page::open(&self.file.path, self.session, self.boot_id)
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "only for how long the test is patient")]
fn a_hold_ends_at_valid_until_though_nobody_writes() {
    let fixture = fixture();
    let page = fixture.open().expect("a page");
    let hold = Uuid::new_v4();
    let valid_until = boottime_in(Duration::from_millis(200));
    fixture.file.hold(5, hold, 7, page::STATE_HELD, valid_until);
    let deadline = Instant::now() + Duration::from_secs(10);
    while page.held(5, hold) {
        assert!(Instant::now() < deadline, "held for ever");
        assert_eq!(page.token(5, hold), Some(7));
    }
    assert!(page::boottime_ns() >= valid_until, "ended before its time");
    assert_eq!(page.valid_until(5, hold), valid_until);
    assert_eq!(page.valid_for(5, hold), Duration::ZERO);
}

#[test]
fn a_slot_is_its_owners_alone() {
    let fixture = fixture();
    let page = fixture.open().expect("a page");
    let (former, hold) = (Uuid::new_v4(), Uuid::new_v4());
    let valid_until = boottime_in(Duration::from_secs(60));
    fixture.file.hold(0, former, 1, page::STATE_HELD, valid_until);
    assert!(page.held(0, former));
    fixture.file.hold(0, hold, 2, page::STATE_JEOPARDY, valid_until);
    assert!(page.held(0, hold) && !page.held(0, former));
    assert_eq!(page.state(0, hold), page::STATE_JEOPARDY);
    assert_eq!((page.state(0, former), page.token(0, former)), (page::STATE_FREE, None));
    fixture.file.hold(0, hold, 2, page::STATE_LOST, 0);
    assert!(!page.held(0, hold));
    assert!(!page.held(62, hold) && !page.held(63, hold) && !page.held(u32::MAX, hold));
}

#[test]
fn a_page_of_another_sort_is_refused() {
    let check = |at: usize, bytes: &[u8], what: &str| {
        let fixture = fixture();
        fixture.file.patch(at, bytes);
        let error = fixture.open().expect_err("foreign").to_string();
        assert!(error.contains(what) && error.contains("page"), "{error}");
    };
    check(0, b"X", "begins with");
    check(page::VERSION_AT, &[2], "version 2");
    check(page::SLOTS_AT, &[64], "says that it has 64 slots, and has 4096 bytes");
    check(page::SLOTS_AT, &[0, 16], "says that it has 4096 slots");
    check(page::SESSION_AT, &[0; 16], "of session 00000000");
    check(page::BOOT_ID_AT, &[0; 16], "of boot 00000000");

    let fixture = fixture();
    std::fs::write(&fixture.file.path, [0; 60]).expect("written");
    assert!(fixture.open().expect_err("short").to_string().contains("shorter"));
    std::fs::remove_file(&fixture.file.path).expect("removed");
    assert!(fixture.open().expect_err("missing").to_string().contains("runtime directory"));
}

#[test]
fn a_page_knows_when_it_was_replaced() {
    let fixture = fixture();
    let page = fixture.open().expect("a page");
    assert!(page.is_at(&fixture.file.path));
    let _newer = PageFile::create(&fixture.file.path, fixture.session, fixture.boot_id);
    assert!(!page.is_at(&fixture.file.path));
}
