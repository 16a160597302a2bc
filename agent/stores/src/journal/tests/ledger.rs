//! Tokens only grow, and a start knows how long lost grants may live.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tenure_core::engine::TokenRange;
use tenure_core::time::Boottime;
use uuid::Uuid;

use super::Held;
use super::samples::{BOOT, files};
use crate::journal::{Ahead, Disk, Files, Ledger, LedgerError, Opened, Scribe, Start, Thread};

const START: Boottime = Boottime::from_nanos(1_000_000_000_000);

/// An agent's start.
fn opened(wall_clock_us: u64, is_known: bool) -> Opened {
    Opened {
        boot_id: BOOT,
        now: START,
        wall_clock_us,
        token_max: 0,
        longest_ttl: Duration::ZERO,
        generation: 5,
        is_known,
        ahead: Ahead::default(),
    }
}

fn try_open(
    directory: &std::path::Path,
    opened: Opened,
) -> Result<(Ledger, TokenRange), LedgerError> {
    let mut disk = Box::new(files(directory));
    let start = Start::read(&mut *disk)?;
    Ledger::open(disk, start, opened, |disk| Ok(Box::new(Thread::start(disk)?)))
}

fn open(directory: &std::path::Path, opened: Opened) -> (Ledger, TokenRange) {
    try_open(directory, opened).unwrap()
}

fn written(ledger: &mut Ledger) -> Result<u64, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let answer = std::future::poll_fn(|context| ledger.poll(START, context));
    let deadline = Duration::from_secs(60);
    runtime.block_on(async { tokio::time::timeout(deadline, answer).await.unwrap() })
}

#[test]
fn tokens_only_grow() {
    let directory = tempfile::tempdir().unwrap();
    let first = open(directory.path(), opened(5_000, true)).1;
    assert_eq!((first.first, first.last), (5_000, 4_999 + Ahead::default().tokens));
    // The clock went back, and the agent was not stopped.
    let second = open(directory.path(), opened(10, true)).1;
    assert_eq!(second.first, first.last + 1);
    // The clock went on.
    let third = open(directory.path(), opened(9_000_000_000, true)).1;
    assert_eq!(third.first, 9_000_000_000);
    // The ledger was lost, but not what was granted.
    let elsewhere = tempfile::tempdir().unwrap();
    let from_journal = Opened { token_max: third.last, ..opened(10, true) };
    assert_eq!(open(elsewhere.path(), from_journal).1.first, third.last + 1);
}

#[test]
fn more_tokens_are_durable_before_they_are_told() {
    let directory = tempfile::tempdir().unwrap();
    let (mut ledger, tokens) = open(directory.path(), opened(5_000, true));
    let mut context = Context::from_waker(Waker::noop());
    assert!(ledger.poll(START, &mut context).is_pending());
    for range in 1..4 {
        ledger.ask_tokens();
        // Asking twice is asking once.
        ledger.ask_tokens();
        let upto = written(&mut ledger).unwrap();
        assert_eq!(upto, tokens.last + range * Ahead::default().tokens);
        // A next agent would go on behind it, whatever this one wrote last.
        let copy = tempfile::tempdir().unwrap();
        std::fs::copy(directory.path().join("ledger"), copy.path().join("ledger")).unwrap();
        assert_eq!(open(copy.path(), opened(1, true)).1.first, upto + 1);
    }
    assert!(ledger.poll(START, &mut context).is_pending());
}

#[test]
fn a_torn_note_leaves_the_one_before() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ledger");
    let (mut ledger, _) = open(directory.path(), opened(5_000, true));
    ledger.ask_tokens();
    let upto = written(&mut ledger).unwrap();
    drop(ledger);
    let whole = std::fs::read(&file).unwrap();
    for slot in [0, 4096] {
        for cut in 0..76 {
            let mut torn = whole.clone();
            torn[slot + cut..slot + 76].fill(0x5a);
            std::fs::write(&file, torn).unwrap();
            // Whichever note is damaged: no token comes twice.
            assert!(open(directory.path(), opened(1, true)).1.first > upto, "{slot} {cut}");
        }
    }
    let mut none = whole;
    none.fill(0x5a);
    std::fs::write(&file, none).unwrap();
    assert!(matches!(try_open(directory.path(), opened(1, true)), Err(LedgerError::Damaged)));
}

#[test]
fn damage_takes_no_token_back_where_the_clock_was_far_ahead() {
    for slot in [0, 4096] {
        let directory = tempfile::tempdir().unwrap();
        drop(open(directory.path(), opened(5_000, true)));
        let upto = open(directory.path(), opened(9_000_000_000, true)).1.last;
        let file = directory.path().join("ledger");
        let mut bytes = std::fs::read(&file).unwrap();
        bytes[slot + 20] ^= 1;
        std::fs::write(&file, bytes).unwrap();
        // And the clock went back.
        assert!(open(directory.path(), opened(1, true)).1.first > upto, "{slot}");
    }
}

#[test]
fn a_lost_journal_is_waited_for_as_long_as_what_lives() {
    let directory = tempfile::tempdir().unwrap();
    let start = |is_known| open(directory.path(), opened(1, is_known)).0;
    let (mut ledger, _) = open(directory.path(), opened(1, false));
    assert_eq!(ledger.quarantined_until(), Boottime::ZERO, "nothing was there before");
    let day = Duration::from_secs(86_400);
    assert!(ledger.covers(Ahead::default().ttl) && !ledger.covers(day));
    ledger.cover(START, day);
    assert!(!ledger.covers(day), "not before it is on the medium");
    written(&mut ledger).unwrap();
    assert!(ledger.covers(day));
    drop(ledger);
    let until = start(false).quarantined_until();
    assert!(until >= START + day && until <= START + day * 5 / 4, "{until:?}");
    // Nothing was granted meanwhile: another loss does not make it longer, nor a journal shorter.
    assert_eq!(start(false).quarantined_until(), until);
    let mut ledger = start(true);
    assert_eq!(ledger.quarantined_until(), until);
    ledger.end_quarantine();
    written(&mut ledger).unwrap();
    drop(ledger);
    assert_eq!(start(true).quarantined_until(), Boottime::ZERO);

    let another = Opened { boot_id: Uuid::from_u128(8), ..opened(1, false) };
    assert_eq!(open(directory.path(), another).0.quarantined_until(), Boottime::ZERO);
}

#[test]
fn a_long_ttl_does_not_count_when_its_hold_has_ended() {
    let directory = tempfile::tempdir().unwrap();
    let (mut ledger, _) = open(directory.path(), opened(1, true));
    let day = Duration::from_secs(86_400);
    ledger.cover(START, day);
    written(&mut ledger).unwrap();
    ledger.look_at(START, day);
    assert_eq!(ledger.poll_timeout(), None, "it lives");
    ledger.look_at(START, Duration::ZERO);
    let at = ledger.poll_timeout().unwrap();
    ledger.handle_timeout(at, Duration::ZERO);
    assert!(!ledger.covers(day), "from the instant at which less is being noted");
    written(&mut ledger).unwrap();
    assert_eq!(ledger.poll_timeout(), None);
    drop(ledger);
    let (ledger, _) = open(directory.path(), opened(1, false));
    assert!(ledger.quarantined_until() <= START + Ahead::default().ttl * 5 / 4);
}

#[test]
fn long_ttls_that_come_back_stay_noted_longer_and_longer() {
    let directory = tempfile::tempdir().unwrap();
    let (mut ledger, _) = open(directory.path(), opened(1, true));
    let Ahead { lower_after: first, lower_after_max: most, .. } = Ahead::default();
    let day = Duration::from_secs(86_400);
    let mut now = START;
    // How long one that has ended stays noted, if the next one comes so much later.
    let mut stays = |after: Duration| {
        now = now + after;
        ledger.cover(now, day);
        written(&mut ledger).unwrap();
        ledger.look_at(now, Duration::ZERO);
        let ended = std::mem::replace(&mut now, ledger.poll_timeout().unwrap());
        ledger.handle_timeout(now, Duration::ZERO);
        written(&mut ledger).unwrap();
        now.since(ended)
    };
    let soon = Duration::from_millis(10);
    assert_eq!([soon; 3].map(&mut stays), [first, first * 2, first * 4]);
    assert_eq!([soon; 6].map(&mut stays)[5], most);
    assert_eq!(stays(most), first);
}

#[test]
fn nothing_is_waited_for_after_a_clean_end() {
    let directory = tempfile::tempdir().unwrap();
    let (mut ledger, _) = open(directory.path(), opened(1, true));
    ledger.close();
    drop(ledger);
    let (ledger, _) = open(directory.path(), opened(1, false));
    assert_eq!(ledger.quarantined_until(), Boottime::ZERO);
}

/// A disk that has no space for anything new, for as long as that is set.
#[derive(Debug)]
struct Full(Files, Arc<AtomicBool>);

impl Full {
    fn check(&self) -> io::Result<()> {
        let is_full = self.1.load(Ordering::SeqCst);
        if is_full { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }
}

impl Disk for Full {
    fn length(&mut self, file: &'static str) -> io::Result<Option<u64>> {
        self.0.length(file)
    }
    fn read_at(&mut self, file: &'static str, at: u64, into: &mut [u8]) -> io::Result<usize> {
        self.0.read_at(file, at, into)
    }
    fn create(&mut self, file: &'static str) -> io::Result<()> {
        self.0.create(file)
    }
    fn write_at(&mut self, file: &'static str, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.check()?;
        self.0.write_at(file, at, bytes)
    }
    fn reserve(&mut self, file: &'static str, from: u64, upto: u64) -> io::Result<()> {
        self.check()?;
        self.0.reserve(file, from, upto)
    }
    fn sync(&mut self, file: &'static str) -> io::Result<()> {
        self.0.sync(file)
    }
    fn rename(&mut self, from: &'static str, to: &'static str) -> io::Result<()> {
        self.0.rename(from, to)
    }
    fn remove(&mut self, file: &'static str) -> io::Result<()> {
        self.0.remove(file)
    }
}

#[test]
fn a_first_ledger_without_space_grants_nothing_until_it_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let is_full = Arc::new(AtomicBool::new(true));
    let start = || {
        let mut disk = Box::new(Full(files(directory.path()), Arc::clone(&is_full)));
        let found = Start::read(&mut *disk).unwrap();
        let scribe = |disk| -> io::Result<Box<dyn Scribe>> { Ok(Box::new(Thread::start(disk)?)) };
        Ledger::open(disk, found, opened(5_000, true), scribe).unwrap()
    };
    // Also where the one before left an empty file.
    drop(start());
    let (mut ledger, tokens) = start();
    assert_eq!((tokens.first, tokens.last), (5_000, 4_999), "there are none");
    assert!(!ledger.covers(Duration::from_millis(1)));
    assert!(ledger.failure().is_some_and(|cause| cause.contains("state_dir")));
    let mut try_again = || {
        let at = ledger.poll_timeout().unwrap();
        ledger.handle_timeout(at, Duration::ZERO);
        written(&mut ledger)
    };
    assert!(try_again().is_err());
    is_full.store(false, Ordering::SeqCst);
    assert_eq!(try_again(), Ok(4_999 + Ahead::default().tokens));
    assert!(ledger.covers(Ahead::default().ttl) && ledger.failure().is_none());
    drop(ledger);
    assert!(start().1.first > 4_999 + Ahead::default().tokens);
}

#[test]
fn the_generation_of_the_journal_is_known_in_its_boot() {
    let directory = tempfile::tempdir().unwrap();
    let mut ledger = open(directory.path(), opened(1, true)).0;
    let known = || {
        let start = Start::read(&mut files(directory.path())).unwrap();
        (start.generation(BOOT), start.generation(Uuid::from_u128(8)))
    };
    assert_eq!(known(), (Some(5), None));
    ledger.follow(6);
    written(&mut ledger).unwrap();
    assert_eq!(known(), (Some(6), None));
}

#[test]
fn failed_notes_are_tried_again_and_promise_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let slow = Held::default();
    let scribe = slow.clone();
    let disk = Box::new(files(directory.path()));
    let (mut ledger, tokens) =
        Ledger::open(disk, Start::default(), opened(1, true), |_| Ok(Box::new(scribe))).unwrap();
    let mut context = Context::from_waker(Waker::noop());
    let mut answer = |ledger: &mut Ledger, answer| {
        slow.answer(answer);
        ledger.poll(START, &mut context)
    };
    let hour = Duration::from_secs(3600);
    ledger.cover(START, hour);
    ledger.ask_tokens();
    let failed = answer(&mut ledger, Err(io::ErrorKind::StorageFull.into()));
    assert!(matches!(&failed, Poll::Ready(Err(_))), "{failed:?}");
    assert!(ledger.failure().is_some() && !ledger.covers(hour));
    let again = ledger.poll_timeout().unwrap();
    ledger.handle_timeout(again, hour);
    assert_eq!(answer(&mut ledger, Ok(())), Poll::Ready(Ok(tokens.last + Ahead::default().tokens)));
    assert!(ledger.failure().is_none() && ledger.covers(hour));

    // Less may be on the medium although the disk said no.
    ledger.look_at(START, Duration::ZERO);
    let lower = ledger.poll_timeout().unwrap();
    ledger.handle_timeout(lower, Duration::ZERO);
    assert!(answer(&mut ledger, Err(io::ErrorKind::Other.into())).is_ready());
    assert!(!ledger.covers(hour));

    let notes = slow.notes.borrow();
    assert!(notes.windows(2).all(|pair| pair[0].high_water <= pair[1].high_water));
    assert_eq!(
        notes[0].sequence, notes[1].sequence,
        "a failed note may be torn: its slot is used again"
    );
}
