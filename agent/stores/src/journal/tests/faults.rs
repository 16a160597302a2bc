//! Each way in which a disk fails: what is told comes back, or the next agent knows that it does not.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::time::Duration;

use tenure_core::keeper::journal::Saved;
use tenure_core::time::Boottime;

use super::disk::Faulty;
use super::samples::{self, BOOT, Memory};
use crate::journal::{Ahead, FILE, Fresh, Journal, Notice};

const START: Boottime = Boottime::from_nanos(1_000_000_000);

fn open(disk: &Faulty, expected: Option<u64>) -> Journal {
    Journal::open(Box::new(disk.clone()), BOOT, expected, Ahead::default()).unwrap().0
}

/// The number of rows that the next agent takes up, or why it takes nothing up.
fn next(disk: &Faulty, expected: Option<u64>) -> Result<usize, Fresh> {
    let (journal, found) =
        Journal::open(Box::new(disk.crash()), BOOT, expected, Ahead::default()).unwrap();
    journal.fresh().cloned().map_or(Ok(found.keeper.holds.len()), Err)
}

/// Tends until nothing is due at that instant.
fn tend(journal: &mut Journal, now: Boottime, memory: &Memory) -> Vec<Notice> {
    let mut notices = Vec::new();
    for _ in 0..100_000 {
        notices.extend(journal.tend(now, memory));
        if journal.poll_timeout().is_none_or(|at| at > now) {
            return notices;
        }
    }
    panic!("it never rests");
}

#[test]
fn a_passing_error_is_survived() {
    for kind in [ErrorKind::StorageFull, ErrorKind::Other, ErrorKind::ResourceBusy] {
        let disk = Faulty::default();
        let mut journal = open(&disk, None);
        let mut memory = Memory::default();
        memory.hold(&mut journal, 1);
        assert_eq!(journal.secure(START), None);
        disk.change(|state| state.broken = Some(kind));
        memory.hold(&mut journal, 2);
        let notice = journal.secure(START);
        assert!(matches!(notice, Some(Notice::Failed(_))), "{notice:?}");
        assert!(journal.refusal().is_some());
        // Killed now, the next agent knows that it knows nothing.
        assert_eq!(next(&disk, None), Err(Fresh::Missing));
        // It goes on, tells it once, and tries again less and less often.
        memory.hold(&mut journal, 3);
        assert_eq!(journal.secure(START), None);
        let mut now = START;
        for _ in 0..20 {
            assert_eq!(tend(&mut journal, now, &memory), []);
            let again = journal.poll_timeout().unwrap();
            assert!(again > now && again <= now + Duration::from_secs(10));
            now = again;
        }
        disk.change(|state| state.broken = None);
        assert_eq!(tend(&mut journal, now, &memory), [Notice::Mended]);
        assert_eq!(journal.refusal(), None);
        assert_eq!(next(&disk, None), Ok(3));
        memory.hold(&mut journal, 4);
        journal.secure(now);
        assert_eq!(next(&disk, None), Ok(4));
    }
}

#[test]
fn what_lay_in_a_removed_directory_is_overtaken() {
    let disk = Faulty::default();
    let mut journal = open(&disk, None);
    let mut memory = Memory::default();
    memory.hold(&mut journal, 1);
    journal.secure(START);
    let (before, known) = (disk.crash(), journal.generation());
    disk.change(|state| state.files.clear());
    journal.move_on();
    // Once more, before the first was written.
    journal.move_on();
    assert!(journal.poll_timeout().is_some_and(|at| at <= START));
    memory.hold(&mut journal, 2);
    journal.secure(START);
    tend(&mut journal, START, &memory);
    assert_eq!(journal.refusal(), None);
    // Before the ledger has heard of the move, and after.
    for expected in [known, journal.generation()] {
        assert_eq!(next(&disk, Some(expected)), Ok(2));
    }
    assert_eq!(next(&before, Some(journal.generation())), Err(Fresh::Overtaken));
    // On a full disk it is written as soon as there is room.
    disk.change(|state| state.files.clear());
    disk.change(|state| state.broken = Some(ErrorKind::StorageFull));
    journal.move_on();
    tend(&mut journal, START, &memory);
    assert_eq!(next(&disk, Some(known)), Err(Fresh::Missing));
    disk.change(|state| state.broken = None);
    let again = journal.poll_timeout().expect("it tries again");
    tend(&mut journal, again, &memory);
    assert_eq!(next(&disk, Some(journal.generation())), Ok(2));
}

#[test]
fn a_full_disk_stops_grants_before_it_loses_anything() {
    let disk = Faulty::default();
    let mut journal = open(&disk, None);
    let mut memory = Memory::default();
    disk.change(|state| state.free = Some(0));
    let mut refused_at = None;
    let mut row = 0;
    while refused_at.is_none() {
        row += 1;
        memory.hold(&mut journal, row);
        assert_eq!(journal.secure(START), None, "row {row} has its space");
        let notices = tend(&mut journal, START, &memory);
        if journal.refusal().is_some() {
            assert!(matches!(&notices[..], [Notice::Short(_)]), "{notices:?}");
            refused_at = Some(row);
        }
    }
    // Releases and renewals are written all the same.
    for row in 1..=200 {
        memory.valid(&mut journal, row, START);
        memory.end(&mut journal, row);
        assert_eq!(journal.secure(START), None);
    }
    let left = usize::try_from(row).unwrap() - 200;
    assert_eq!(next(&disk, None), Ok(left));
    disk.change(|state| state.free = None);
    let later = START + Duration::from_secs(10);
    assert_eq!(tend(&mut journal, later, &memory), [Notice::Mended]);
    assert_eq!(journal.refusal(), None);
    assert_eq!(next(&disk, None), Ok(left));
}

#[test]
fn renewals_on_a_full_disk_use_up_nothing() {
    const HOLDS: u64 = 10_000;
    let disk = Faulty::default();
    let mut journal = open(&disk, None);
    let mut memory = Memory::default();
    for row in 1..=HOLDS {
        memory.hold(&mut journal, row);
    }
    assert_eq!(journal.secure(START), None);
    tend(&mut journal, START, &memory);
    disk.change(|state| state.free = Some(0));
    // Minutes of beats.
    let mut now = START;
    let mut notices = Vec::new();
    for second in 0..120 {
        now = START + Duration::from_secs(second);
        for row in (1..=HOLDS).skip(second as usize % 10).step_by(10) {
            memory.valid(&mut journal, row, now + Duration::from_secs(30));
            notices.extend(journal.secure(now));
            notices.extend(journal.tend(now, &memory));
        }
    }
    assert!(matches!(&notices[..], [Notice::Short(_)]), "{notices:?}");
    assert!(journal.lacks_renewals());
    // There is space for ends all the same.
    for row in 1..=200 {
        memory.end(&mut journal, row);
        assert_eq!(journal.secure(now), None);
    }
    let all = usize::try_from(HOLDS).unwrap() - 200;
    assert_eq!(next(&disk, None), Ok(all));
    // With space, it says again how long everything is valid.
    disk.change(|state| state.free = None);
    let later = now + Duration::from_secs(10);
    assert_eq!(tend(&mut journal, later, &memory), [Notice::Mended]);
    assert!(!journal.lacks_renewals());
    let found = Journal::open(Box::new(disk.crash()), BOOT, None, Ahead::default()).unwrap().1;
    assert_eq!(found.keeper.holds, memory.saved());
}

#[test]
fn renewals_use_up_nothing_while_a_log_that_does_not_fit_is_written_anew() {
    const HOLDS: u64 = 400;
    let disk = Faulty::default();
    let ahead = Ahead { rows: 8, ..Ahead::default() };
    let (mut journal, _) = Journal::open(Box::new(disk.clone()), BOOT, None, ahead).unwrap();
    let mut memory = Memory::default();
    for row in 1..=HOLDS {
        memory.hold(&mut journal, row);
    }
    let mut renew_all = |journal: &mut Journal, now: Boottime| -> Vec<Notice> {
        for row in 1..=HOLDS {
            memory.valid(journal, row, now + Duration::from_secs(30));
        }
        let failed = journal.secure(now);
        [failed, journal.tend(now, &memory)].into_iter().flatten().collect()
    };
    // It is long, but not so long that it is written anew while there is space.
    for _ in 0..50 {
        assert_eq!(renew_all(&mut journal, START), []);
    }
    // Some rows fit, but not all of them.
    disk.change(|state| state.free = Some(32 * 1024));
    let mut notices = Vec::new();
    for second in (0..240).step_by(8) {
        for _ in 0..30 {
            notices.extend(renew_all(&mut journal, START + Duration::from_secs(second)));
        }
    }
    assert!(matches!(&notices[..], [Notice::Short(_)]), "{notices:?}");
    assert_eq!(next(&disk, None), Ok(HOLDS as usize));
    disk.change(|state| state.free = None);
    let later = START + Duration::from_secs(300);
    assert_eq!(tend(&mut journal, later, &memory), [Notice::Mended]);
    assert!(!journal.lacks_renewals());
    let found = Journal::open(Box::new(disk.crash()), BOOT, None, Ahead::default()).unwrap().1;
    assert_eq!(found.keeper.holds, memory.saved());
}

#[test]
fn a_start_takes_up_renewals_that_only_pages_show() {
    let holds: Vec<_> = (1..=3).map(samples::hold).collect();
    let ids: BTreeSet<_> = holds.iter().map(|hold| hold.claim.owner.session).collect();
    let sessions = ids.into_iter().map(|id| samples::session(id.0.as_u128())).collect();
    let mut saved = Saved { sessions, holds, remembered: Vec::new() };
    let until = saved.holds[0].valid_until;
    let mut catch_up = |now, shown: Option<Boottime>| {
        saved.catch_up(now, |hold, slots| shown.filter(|_| hold.row == 2 && slots == 63));
        [0, 1, 2].map(|at| saved.holds[at].valid_until)
    };
    let later = until + Duration::from_secs(5);
    let before = Boottime::from_nanos(until.as_nanos() - 1);
    assert_eq!(catch_up(before, Some(later)), [until; 3], "the journal suffices");
    assert_eq!(catch_up(until, None), [until; 3]);
    assert_eq!(catch_up(until, Some(before)), [until; 3], "never less");
    assert_eq!(catch_up(until, Some(later)), [until, later, until]);
}

#[test]
fn space_ahead_that_runs_out_is_no_wrong_journal() {
    let disk = Faulty::default();
    let mut journal = open(&disk, None);
    let mut memory = Memory::default();
    disk.change(|state| state.free = Some(0));
    let mut row = 0;
    loop {
        row += 1;
        memory.hold(&mut journal, row);
        if let Some(notice) = journal.secure(START) {
            assert!(matches!(notice, Notice::Failed(_)), "{notice:?}");
            break;
        }
        assert_eq!(next(&disk, None), Ok(usize::try_from(row).unwrap()));
    }
    assert_eq!(next(&disk, None), Err(Fresh::Missing));
    disk.change(|state| state.free = Some(64 * 1024 * 1024));
    assert_eq!(tend(&mut journal, START, &memory), [Notice::Mended]);
    assert_eq!(next(&disk, None), Ok(usize::try_from(row).unwrap()));
}

#[test]
fn a_torn_write_is_not_taken_up() {
    for torn in 0..900 {
        let disk = Faulty::default();
        let mut journal = open(&disk, None);
        let mut memory = Memory::default();
        memory.hold(&mut journal, 1);
        journal.secure(START);
        // The agent is killed within the write: it does nothing about it any more.
        disk.change(|state| (state.torn, state.dies) = (Some(torn), true));
        memory.hold(&mut journal, 2);
        assert!(journal.secure(START).is_some(), "torn at {torn}");
        assert_eq!(next(&disk, Some(journal.generation() - 1)), Ok(1), "torn at {torn}");
    }
}

#[test]
fn a_journal_that_cannot_even_be_removed_is_disowned() {
    let disk = Faulty::default();
    let mut journal = open(&disk, None);
    let mut memory = Memory::default();
    memory.hold(&mut journal, 1);
    journal.secure(START);
    let generation = journal.generation();
    disk.change(|state| state.read_only = true);
    memory.end(&mut journal, 1);
    assert!(matches!(journal.secure(START), Some(Notice::Failed(_))));
    assert!(journal.refusal().is_some(), "nothing is granted that it would contradict");
    assert!(disk.has(FILE));
    assert!(journal.generation() > generation);
    assert_eq!(next(&disk, Some(journal.generation())), Err(Fresh::Overtaken));
    // And a whole one of this agent is taken up again.
    disk.change(|state| state.read_only = false);
    memory.hold(&mut journal, 2);
    journal.secure(START);
    assert_eq!(tend(&mut journal, START, &memory), [Notice::Mended]);
    assert_eq!(next(&disk, Some(journal.generation())), Ok(1));
}

#[test]
fn a_planned_restart_tries_once_more() {
    let disk = Faulty::default();
    let mut journal = open(&disk, None);
    let mut memory = Memory::default();
    for row in 1..=1000 {
        memory.hold(&mut journal, row);
    }
    disk.change(|state| state.broken = Some(ErrorKind::StorageFull));
    journal.secure(START);
    tend(&mut journal, START, &memory);
    assert_eq!(journal.finish(START, &memory), None);
    assert_eq!(next(&disk, None), Err(Fresh::Missing));
    disk.change(|state| state.broken = None);
    assert_eq!(journal.finish(START, &memory), Some(Notice::Mended));
    assert_eq!(next(&disk, None), Ok(1000));
}

#[test]
fn a_rewrite_that_fails_leaves_the_old_journal() {
    let disk = Faulty::default();
    let mut journal = open(&disk, None);
    let mut memory = Memory::default();
    let mut row = 0;
    // Until it is about to be written anew.
    while !disk.has("journal.new") {
        row += 1;
        memory.hold(&mut journal, row);
        if row > 100 {
            memory.end(&mut journal, row - 100);
        }
        journal.secure(START);
        journal.tend(START, &memory);
    }
    assert_eq!(next(&disk, None), Ok(100));
    // Only the new file fails.
    disk.change(|state| state.torn = Some(3));
    memory.hold(&mut journal, row + 1);
    assert_eq!(journal.secure(START), None, "the old one has it");
    assert_eq!(journal.refusal(), None);
    assert!(!disk.has("journal.new"));
    assert_eq!(next(&disk, None), Ok(101));
    assert_eq!(tend(&mut journal, START + Duration::from_secs(20), &memory), []);
    assert_eq!(next(&disk, None), Ok(101));
}

#[test]
fn nothing_is_written_when_nothing_happened() {
    let disk = Faulty::default();
    let mut journal = open(&disk, None);
    let memory = Memory::default();
    let writes = disk.writes();
    for _ in 0..100 {
        journal.secure(START);
        journal.tend(START, &memory);
    }
    assert_eq!(disk.writes(), writes);
    assert_eq!(journal.poll_timeout(), None);
}

/// So many rows that come and go, until nothing may be granted.
fn churn(journal: &mut Journal, memory: &mut Memory, row: &mut u64, rows: u64) {
    for _ in 0..rows {
        *row += 1;
        memory.hold(journal, *row);
        if *row > 10 {
            memory.end(journal, *row - 10);
        }
        assert_eq!(journal.secure(START), None, "row {row} has its space");
        journal.tend(START, memory);
        if journal.refusal().is_some() {
            return;
        }
    }
}

#[test]
fn a_log_that_cannot_be_written_anew_stops_grants_before_its_space_ends() {
    let disk = Faulty::default();
    let mut journal = open(&disk, None);
    let (mut memory, mut row) = (Memory::default(), 0);
    while disk.bytes_len(FILE) < 1024 * 1024 {
        churn(&mut journal, &mut memory, &mut row, 1);
    }
    // Room for more of it, but for no other beside it.
    disk.change(|state| state.free = Some(300 * 1024));
    churn(&mut journal, &mut memory, &mut row, 100_000);
    assert!(disk.bytes_len(FILE) > 1024 * 1024 + 128 * 1024, "it is due to be written anew");
    memory.end(&mut journal, row);
    assert_eq!(journal.secure(START), None, "a release has its space");
    assert_eq!(next(&disk, None), Ok(9));
}

#[test]
fn a_shorter_log_makes_space_where_there_is_none() {
    let disk = Faulty::default();
    let mut journal = open(&disk, None);
    let (mut memory, mut row) = (Memory::default(), 0);
    disk.change(|state| state.free = Some(64 * 1024));
    churn(&mut journal, &mut memory, &mut row, 100_000);
    // Room for its rows, but for no space ahead beside the old one.
    let now = START + Duration::from_secs(10);
    assert_eq!(tend(&mut journal, now, &memory), [Notice::Mended]);
    assert_eq!(next(&disk, None), Ok(10));
}

#[test]
fn agents_that_are_killed_soon_do_not_let_the_log_grow() {
    let disk = Faulty::default();
    let (mut memory, mut row) = (Memory::default(), 0);
    for _ in 0..30 {
        let mut journal = open(&disk, None);
        churn(&mut journal, &mut memory, &mut row, 200);
        assert_eq!(next(&disk, None), Ok(10));
    }
    assert!(disk.bytes_len(FILE) < 1_500_000, "{} bytes", disk.bytes_len(FILE));
}

#[test]
fn a_start_on_a_full_disk_comes_up_with_what_is_there() {
    let disk = Faulty::default();
    let mut journal = open(&disk, None);
    let mut memory = Memory::default();
    memory.hold(&mut journal, 1);
    journal.secure(START);
    disk.change(|state| state.free = Some(0));
    for _ in 0..10 {
        let (mut journal, found) =
            Journal::open(Box::new(disk.clone()), BOOT, None, Ahead::default()).unwrap();
        assert_eq!((journal.fresh(), found.keeper.holds.len()), (None, 1));
        assert!(journal.refusal().is_some(), "nothing is granted");
        memory.valid(&mut journal, 1, START);
        assert_eq!(journal.secure(START), None);
    }
    // Also without a journal.
    disk.change(|state| state.files.clear());
    let mut journal = open(&disk, None);
    assert_eq!(journal.fresh(), Some(&Fresh::Missing));
    assert!(journal.refusal().is_some());
    assert_eq!(tend(&mut journal, START, &memory), []);
    disk.change(|state| state.free = None);
    assert_eq!(tend(&mut journal, START + Duration::from_secs(10), &memory), [Notice::Mended]);
    assert_eq!(next(&disk, None), Ok(1));
    // Another trouble than want of space is for whoever starts it.
    disk.change(|state| state.broken = Some(ErrorKind::PermissionDenied));
    assert!(Journal::open(Box::new(disk.clone()), BOOT, None, Ahead::default()).is_err());
}
