//! Everything that was secured comes back, and nothing else.

use std::os::unix::fs::PermissionsExt;

use tenure_core::engine::journal as engine;
use tenure_core::keeper::journal as keeper;
use tenure_core::time::Boottime;
use tenure_wire::{Kind, LostReason};
use uuid::Uuid;

use super::disk::Faulty;
use super::samples::{BOOT, Memory, files, grant, hold, record, resource, session, waiter};
use crate::journal::{Ahead, Disk, FILE, Found, Fresh, Journal};

const NOW: Boottime = Boottime::from_nanos(1_000);

fn open(disk: &Faulty) -> (Journal, Found) {
    Journal::open(Box::new(disk.clone()), BOOT, None, Ahead::default()).unwrap()
}

fn reopened(disk: &Faulty) -> Found {
    let (journal, found) = open(&disk.crash());
    assert_eq!(journal.fresh(), None);
    found
}

#[test]
fn what_the_keeper_wrote_comes_back() {
    let disk = Faulty::default();
    let (mut journal, _) = open(&disk);
    assert_eq!(journal.fresh(), Some(&Fresh::Missing));
    let mut changed = session(1);
    changed.secret = "another".to_owned();
    let mut departing = hold(3);
    departing.departing = true;
    let mut waiting = hold(4);
    (waiting.token, waiting.granted_at, waiting.valid_until) = (None, None, Boottime::ZERO);
    waiting.slot = 7;
    let mut ended = hold(5);
    ended.slot = 9;
    let sooner = keeper::SavedEnd::Hold {
        hold: ended.claim.id,
        session: session(1).id,
        request: Some("job-2".into()),
        lost: Some(LostReason::Expired),
        until: Boottime::from_nanos(60_000),
    };
    let later = keeper::SavedEnd::Session {
        session: session(2).id,
        uid: 1000,
        why: "it was released".into(),
        until: Boottime::from_nanos(61_000),
    };
    let entries = [
        keeper::Entry::Session(Box::new(session(1))),
        keeper::Entry::Session(Box::new(session(2))),
        keeper::Entry::Session(Box::new(changed.clone())),
        keeper::Entry::SessionEnded(session(2).id),
        keeper::Entry::Hold(Box::new(hold(3))),
        keeper::Entry::Valid { row: 3, valid_until: Boottime::from_nanos(9_000) },
        keeper::Entry::Hold(Box::new(departing.clone())),
        keeper::Entry::Hold(Box::new(waiting.clone())),
        keeper::Entry::Hold(Box::new(ended.clone())),
        keeper::Entry::Valid { row: 5, valid_until: Boottime::from_nanos(9_000) },
        keeper::Entry::HoldEnded { row: 5, hold: ended.claim.id },
        keeper::Entry::Remembered(later.clone()),
        keeper::Entry::Remembered(sooner.clone()),
    ];
    for entry in &entries {
        journal.write(entry.clone());
        assert_eq!(journal.secure(NOW), None);
    }
    departing.valid_until = Boottime::from_nanos(9_000);
    let remembered = vec![sooner, later];
    let expected =
        keeper::Saved { sessions: vec![changed], holds: vec![departing, waiting], remembered };
    assert_eq!(reopened(&disk).keeper, expected);
    // Also when the next agent is killed before it wrote anything.
    let again = disk.crash();
    drop(open(&again));
    assert_eq!(reopened(&again).keeper, expected);
}

#[test]
fn what_the_engine_wrote_comes_back() {
    let disk = Faulty::default();
    let (mut journal, _) = open(&disk);
    let mut regranted = grant(1, Kind::Lease);
    regranted.in_grace = false;
    regranted.route_version = 8;
    let semaphore = resource(Kind::Semaphore, "a-name");
    let other = resource(Kind::Semaphore, "another");
    let entries = [
        engine::Entry::Grant(Box::new(grant(1, Kind::Lease))),
        engine::Entry::Grant(Box::new(regranted.clone())),
        engine::Entry::Grant(Box::new(grant(2, Kind::Master))),
        engine::Entry::Grant(Box::new(grant(3, Kind::Semaphore))),
        engine::Entry::Grant(Box::new(grant(4, Kind::Leader))),
        engine::Entry::GrantEnded { row: 3 },
        engine::Entry::Waiter(Box::new(waiter(5))),
        engine::Entry::Waiter(Box::new(waiter(6))),
        engine::Entry::WaiterEnded { row: 5 },
        engine::Entry::Limit { resource: semaphore.clone(), limit: 2 },
        engine::Entry::Limit { resource: semaphore.clone(), limit: 3 },
        engine::Entry::Limit { resource: other.clone(), limit: 3 },
        engine::Entry::LimitEnded { resource: other },
        engine::Entry::Session(Box::new(record(9))),
        engine::Entry::Session(Box::new(record(8))),
        engine::Entry::Session(Box::new(record(9))),
        engine::Entry::Session(Box::new(record(7))),
        engine::Entry::SessionEnded(record(7).owner.session),
        engine::Entry::Routes { tenant: None, version: 4 },
        engine::Entry::Routes { tenant: Some("a".into()), version: 5 },
        engine::Entry::Routes { tenant: Some("b".into()), version: 6 },
        engine::Entry::RoutesEnded { tenant: "a".into() },
    ];
    for entry in &entries {
        journal.write_engine(entry.clone());
    }
    journal.secure(NOW);
    let saved = reopened(&disk).engine;
    assert_eq!(saved.grants, [regranted, grant(2, Kind::Master), grant(4, Kind::Leader)]);
    assert_eq!(saved.waiters, [waiter(6)]);
    assert_eq!(saved.limits, [(semaphore, 3)]);
    assert_eq!(saved.sessions, [record(8), record(9)]);
    assert_eq!(saved.routes, [(None, 4), (Some("b".into()), 6)]);
    assert_eq!(saved.token_max(), grant(4, Kind::Leader).token);
}

#[test]
fn a_turn_comes_back_wholly_or_not_at_all() {
    let disk = Faulty::default();
    let (mut journal, _) = open(&disk);
    let mut memory = Memory::default();
    memory.hold(&mut journal, 1);
    journal.secure(NOW);
    // Many records, written at once, without their mark: nothing of the turn was told.
    for row in 2..600 {
        memory.hold(&mut journal, row);
    }
    let before = disk.bytes(FILE);
    journal.secure(NOW);
    assert_eq!(reopened(&disk).keeper.holds.len(), 599);
    let killed = disk.crash();
    killed.change(|state| {
        state.files.get_mut(FILE).unwrap()[..128].copy_from_slice(&before[..128]);
    });
    assert_eq!(reopened(&killed).keeper.holds.len(), 1);
    // Bytes behind the mark are overwritten.
    let (mut journal, _) = open(&killed);
    memory.hold(&mut journal, 700);
    journal.secure(NOW);
    assert_eq!(reopened(&killed).keeper.holds.len(), 2);
}

#[test]
fn another_boot_starts_from_nothing() {
    let disk = Faulty::default();
    let (mut journal, _) = open(&disk);
    Memory::default().hold(&mut journal, 1);
    journal.secure(NOW);
    let next = disk.crash();
    let (journal, found) =
        Journal::open(Box::new(next.clone()), Uuid::from_u128(8), None, Ahead::default()).unwrap();
    assert_eq!(journal.fresh(), Some(&Fresh::OtherBoot));
    assert_eq!(found.keeper, keeper::Saved::default());
}

#[test]
fn every_changed_byte_and_every_cut_is_noticed() {
    let disk = Faulty::default();
    let (mut journal, _) = open(&disk);
    let mut memory = Memory::default();
    for row in 1..=4 {
        memory.hold(&mut journal, row);
        journal.secure(NOW);
    }
    let whole = disk.bytes(FILE);
    let expected = reopened(&disk);
    let check = |bytes: Vec<u8>, what: &str| {
        let damaged = disk.crash();
        damaged.change(|state| drop(state.files.insert(FILE, bytes.clone())));
        let (journal, found) = open(&damaged);
        match journal.fresh() {
            // Bytes that mean nothing.
            None => assert_eq!(found.keeper, expected.keeper, "{what}"),
            Some(Fresh::Damaged { .. } | Fresh::OtherVersion { .. }) => {
                assert!(damaged.bytes("journal.damaged") == bytes, "{what}: kept aside");
            }
            // The boot's bytes.
            Some(Fresh::OtherBoot) => {}
            Some(other) => panic!("{what}: {other:?}"),
        }
        journal.fresh().is_none()
    };
    let mut harmless = 0;
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        harmless += usize::from(check(bytes, &format!("byte {at}")));
    }
    assert!(harmless < 64, "only the unused part of the head: {harmless}");
    for length in 0..whole.len() {
        assert!(!check(whole[..length].to_vec(), &format!("cut to {length}")));
    }
}

#[test]
fn what_no_agent_has_written_is_not_taken_up() {
    let refuse = |expected: &str, write: &dyn Fn(&mut Journal)| {
        let disk = Faulty::default();
        let (mut journal, _) = open(&disk);
        write(&mut journal);
        journal.secure(NOW);
        match open(&disk.crash()).0.fresh() {
            Some(Fresh::Damaged { cause }) => assert!(cause.contains(expected), "{cause}"),
            other => panic!("{other:?}"),
        }
    };
    let granted = |row| engine::Entry::Grant(Box::new(grant(row, Kind::Leader)));
    refuse("leader/a-name is granted twice", &|journal| {
        journal.write_engine(granted(1));
        journal.write_engine(granted(2));
    });
    refuse("is granted twice", &|journal| {
        let mut again = grant(2, Kind::Semaphore);
        again.token = grant(1, Kind::Semaphore).token;
        journal.write_engine(engine::Entry::Grant(Box::new(grant(1, Kind::Semaphore))));
        journal.write_engine(engine::Entry::Grant(Box::new(again)));
    });
    refuse("slot 4000000000", &|journal| {
        let mut outside = hold(1);
        outside.slot = 4_000_000_000;
        journal.write(keeper::Entry::Hold(Box::new(outside)));
    });
    refuse("has the slot 3 of another one", &|journal| {
        journal.write(keeper::Entry::Hold(Box::new(hold(1))));
        journal.write(keeper::Entry::Hold(Box::new(hold(2))));
    });
}

#[test]
fn a_journal_that_a_later_agent_could_not_write_is_not_taken_up() {
    let disk = Faulty::default();
    let (mut journal, _) = open(&disk);
    Memory::default().hold(&mut journal, 1);
    journal.secure(NOW);
    let generation = journal.generation();
    let taken_up = |expected| {
        let (journal, _) =
            Journal::open(Box::new(disk.crash()), BOOT, Some(expected), Ahead::default()).unwrap();
        assert!(journal.generation() > expected, "each agent has one of its own");
        journal.fresh().cloned()
    };
    assert_eq!(taken_up(generation), None);
    // The ledger is written after the journal.
    assert_eq!(taken_up(generation - 1), None);
    assert_eq!(taken_up(generation + 1), Some(Fresh::Overtaken));
}

#[test]
fn nobody_else_may_read_it_and_no_link_is_followed() {
    let directory = tempfile::tempdir().unwrap();
    let secret = directory.path().join("secret");
    std::fs::write(&secret, "of somebody else").unwrap();
    let runtime = tempfile::tempdir().unwrap();
    for name in [FILE, "journal.new"] {
        std::os::unix::fs::symlink(&secret, runtime.path().join(name)).unwrap();
    }
    let open = || Journal::open(Box::new(files(runtime.path())), BOOT, None, Ahead::default());
    assert!(open().is_err());
    std::fs::remove_file(runtime.path().join(FILE)).unwrap();
    let (mut journal, _) = open().unwrap();
    Memory::default().hold(&mut journal, 1);
    journal.secure(NOW);
    let mode = std::fs::metadata(runtime.path().join(FILE)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(std::fs::read(&secret).unwrap(), b"of somebody else");
    drop(journal);
    assert_eq!(open().unwrap().1.keeper.holds.len(), 1);
}

#[test]
fn a_long_journal_is_written_anew_while_it_goes_on() {
    let disk = Faulty::default();
    let (mut journal, _) = open(&disk);
    let mut memory = Memory::default();
    let mut longest = 0;
    let mut rewritten = 0;
    // Rows that come and go, and some that stay.
    for row in 1..=20_000_u64 {
        memory.hold(&mut journal, row);
        if row > 300 && row % 20 != 0 {
            memory.end(&mut journal, row - 300);
        }
        assert_eq!(journal.secure(NOW), None);
        let before = disk.bytes_len(FILE);
        assert_eq!(journal.tend(NOW, &memory), None);
        let after = disk.bytes_len(FILE);
        longest = longest.max(after);
        rewritten += usize::from(after < before);
        if row % 1_777 == 0 {
            assert_eq!(reopened(&disk).keeper.holds, memory.saved(), "row {row}");
        }
    }
    assert!(rewritten > 1, "{rewritten}");
    let live: usize = memory.saved().len() * 700;
    assert!(longest < 3 * live + 6 * 1024 * 1024, "{longest} bytes for {live}");
    assert_eq!(reopened(&disk).keeper.holds, memory.saved());
    assert!(!disk.has("journal.new") || journal.poll_timeout().is_some());
}

#[test]
fn reading_takes_a_little_at_a_time() {
    let disk = Faulty::default();
    let (mut journal, _) = open(&disk);
    let mut memory = Memory::default();
    for row in 1..=3000 {
        memory.hold(&mut journal, row);
        journal.secure(NOW);
    }
    // A record that says it is huge is not read into memory.
    let next = disk.crash();
    next.change(|state| state.files.get_mut(FILE).unwrap()[128..132].fill(0xff));
    assert!(matches!(open(&next).0.fresh(), Some(Fresh::Damaged { .. })));
    let mut reader = disk.crash();
    assert!(reader.length(FILE).unwrap().unwrap() > 1024 * 1024);
    assert_eq!(reopened(&disk).keeper.holds, memory.saved());
}
