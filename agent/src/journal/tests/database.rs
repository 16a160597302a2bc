use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rusqlite::Connection;
use tenure::wire::Kind;
use uuid::Uuid;

use super::samples::{BOOT, claim, grant, hold, record, resource, session, waiter};
use crate::engine::journal as engine;
use crate::host::clock::Boottime;
use crate::journal::{Database, Fresh};
use crate::keeper::journal as keeper;

fn open(directory: &Path) -> Database {
    Database::open(directory, BOOT).unwrap()
}

fn journal(directory: &Path) -> std::path::PathBuf {
    directory.join("journal.db")
}

#[test]
fn what_the_keeper_wrote_comes_back() {
    let directory = tempfile::tempdir().unwrap();
    let mut database = open(directory.path());
    assert_eq!(database.fresh(), Some(&Fresh::Missing));
    let mut changed = session(1);
    changed.secret = "another".to_owned();
    let mut departing = hold(3);
    departing.departing = true;
    let mut waiting = hold(4);
    (waiting.token, waiting.granted_at, waiting.valid_until) = (None, None, Boottime::ZERO);
    let entries = [
        keeper::Entry::Session(Box::new(session(1))),
        keeper::Entry::Session(Box::new(session(2))),
        keeper::Entry::Session(Box::new(changed.clone())),
        keeper::Entry::SessionEnded(session(2).id),
        keeper::Entry::Hold(Box::new(hold(3))),
        keeper::Entry::Valid { row: 3, valid_until: Boottime::from_nanos(9_000) },
        keeper::Entry::Hold(Box::new(departing.clone())),
        keeper::Entry::Hold(Box::new(waiting.clone())),
        keeper::Entry::Hold(Box::new(hold(5))),
        keeper::Entry::Valid { row: 5, valid_until: Boottime::from_nanos(9_000) },
        keeper::Entry::HoldEnded { row: 5, hold: hold(5).claim.id },
    ];
    for entry in &entries {
        database.write(entry.clone());
    }
    database.commit().unwrap();
    drop(database);

    let mut database = open(directory.path());
    assert_eq!(database.fresh(), None);
    departing.valid_until = Boottime::from_nanos(9_000);
    let expected = keeper::Saved { sessions: vec![changed], holds: vec![departing, waiting] };
    assert_eq!(database.load(), expected);
    assert_eq!(database.load(), keeper::Saved::default());
}

#[test]
fn what_the_engine_wrote_comes_back() {
    let directory = tempfile::tempdir().unwrap();
    let mut database = open(directory.path());
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
        database.write_engine(entry.clone());
    }
    database.commit().unwrap();
    drop(database);

    let saved = open(directory.path()).load_engine();
    assert_eq!(saved.grants, [regranted, grant(2, Kind::Master), grant(4, Kind::Leader)]);
    assert_eq!(saved.waiters, [waiter(6)]);
    assert_eq!(saved.limits, [(semaphore, 3)]);
    assert_eq!(saved.sessions, [record(8), record(9)]);
    assert_eq!(saved.routes, [(None, 4), (Some("b".into()), 6)]);
    assert_eq!(saved.token_max(), grant(4, Kind::Leader).token);
}

#[test]
fn what_is_not_committed_does_not_come_back() {
    let directory = tempfile::tempdir().unwrap();
    let mut database = open(directory.path());
    database.write(keeper::Entry::Hold(Box::new(hold(1))));
    database.commit().unwrap();
    database.commit().unwrap();
    database.write(keeper::Entry::Hold(Box::new(hold(2))));
    drop(database);
    assert_eq!(open(directory.path()).load().holds, [hold(1)]);
}

#[test]
fn what_is_secured_comes_back_without_a_commit_and_once() {
    let directory = tempfile::tempdir().unwrap();
    let mut database = open(directory.path());
    for row in 1..=3 {
        database.write(keeper::Entry::Hold(Box::new(hold(row))));
        database.write_engine(engine::Entry::Grant(Box::new(grant(row, Kind::Leader))));
        database.secure().unwrap();
    }
    database.commit().unwrap();
    // Over what the database has already, and for what it has not.
    database.write(keeper::Entry::HoldEnded { row: 2, hold: hold(2).claim.id });
    database.write_engine(engine::Entry::GrantEnded { row: 2 });
    database.secure().unwrap();
    database.write(keeper::Entry::Hold(Box::new(hold(4))));
    database.write(keeper::Entry::Valid { row: 4, valid_until: Boottime::from_nanos(9_999) });
    database.secure().unwrap();
    database.write(keeper::Entry::Hold(Box::new(hold(5))));
    drop(database);

    for _ in 0..2 {
        let mut database = open(directory.path());
        let rows: Vec<_> = database.load().holds.iter().map(|hold| hold.row).collect();
        assert_eq!(rows, [1, 3, 4]);
        assert_eq!(database.load_engine().grants.len(), 2);
    }
}

#[test]
fn too_much_to_secure_is_committed_instead() {
    let directory = tempfile::tempdir().unwrap();
    let mut database = open(directory.path());
    for row in 1..=5000 {
        database.write(keeper::Entry::Hold(Box::new(hold(row))));
    }
    database.secure().unwrap();
    assert!(!database.is_behind());
    drop(database);
    assert_eq!(open(directory.path()).load().holds.len(), 5000);
}

#[test]
fn another_boot_starts_from_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let mut database = open(directory.path());
    database.write(keeper::Entry::Hold(Box::new(hold(1))));
    database.commit().unwrap();
    drop(database);
    let mut database = Database::open(directory.path(), Uuid::from_u128(8)).unwrap();
    assert_eq!(database.fresh(), Some(&Fresh::OtherBoot));
    assert_eq!(database.load(), keeper::Saved::default());
}

#[test]
fn another_layout_starts_from_nothing() {
    let directory = tempfile::tempdir().unwrap();
    drop(open(directory.path()));
    let connection = Connection::open(journal(directory.path())).unwrap();
    connection.execute("UPDATE meta SET value = 0 WHERE key = 'schema'", []).unwrap();
    drop(connection);
    assert_eq!(open(directory.path()).fresh(), Some(&Fresh::OtherSchema { found: 0 }));
}

#[test]
fn a_damaged_file_is_kept_aside() {
    let garbage: [&[u8]; 2] = [b"not a database", &[0; 9000]];
    for content in garbage {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(journal(directory.path()), content).unwrap();
        let mut database = open(directory.path());
        assert!(matches!(database.fresh(), Some(Fresh::Damaged { .. })), "{:?}", database.fresh());
        let aside = directory.path().join("journal.db.damaged");
        assert!(std::fs::read(aside).unwrap() == content);
        database.write(keeper::Entry::Hold(Box::new(hold(1))));
        database.commit().unwrap();
    }
}

#[test]
fn an_empty_file_is_none() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(journal(directory.path()), "").unwrap();
    assert_eq!(open(directory.path()).fresh(), Some(&Fresh::Missing));
}

#[test]
fn a_row_that_cannot_be_read_is_damage() {
    let directory = tempfile::tempdir().unwrap();
    let mut database = open(directory.path());
    database.write(keeper::Entry::Hold(Box::new(hold(1))));
    database.commit().unwrap();
    drop(database);
    let connection = Connection::open(journal(directory.path())).unwrap();
    connection.execute("UPDATE holds SET body = '{}'", []).unwrap();
    drop(connection);
    assert!(matches!(open(directory.path()).fresh(), Some(Fresh::Damaged { .. })));
}

#[test]
fn others_can_read_it_while_it_is_used() {
    let directory = tempfile::tempdir().unwrap();
    let mut database = open(directory.path());
    database.write(keeper::Entry::Hold(Box::new(hold(1))));
    database.write_engine(engine::Entry::Grant(Box::new(grant(1, Kind::Leader))));
    database.commit().unwrap();
    database.write(keeper::Entry::Hold(Box::new(hold(2))));
    let reader = Connection::open(journal(directory.path())).unwrap();
    let row: (String, String, String, String, i64) = reader
        .query_row("SELECT id, kind, name, state, token FROM readable_holds", [], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?))
        })
        .unwrap();
    let id = claim(1, Kind::Leader).id.to_string();
    let token = 1_763_000_000_000_001;
    assert_eq!(row, (id, "leader".into(), "a-name".into(), "held".into(), token));
    let count: i64 = reader
        .query_row("SELECT count(*) FROM readable_grants WHERE kind = 'leader'", [], |row| {
            row.get(0)
        })
        .unwrap();
    assert_eq!(count, 1);
    database.commit().unwrap();
}

#[test]
fn nobody_else_may_read_it() {
    let directory = tempfile::tempdir().unwrap();
    let mut database = open(directory.path());
    database.write(keeper::Entry::Hold(Box::new(hold(1))));
    database.commit().unwrap();
    for name in ["journal.db", "journal.db-wal", "journal.db-shm"] {
        let mode = std::fs::metadata(directory.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

#[test]
fn after_a_failed_commit_a_restart_knows_that_it_knows_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let mut database = open(directory.path());
    database.write(keeper::Entry::Hold(Box::new(hold(1))));
    database.commit().unwrap();
    let other = Connection::open(journal(directory.path())).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    database.write(keeper::Entry::Hold(Box::new(hold(2))));
    assert!(database.commit().unwrap_err().to_string().contains("journal.db"));
    assert!(database.failure().unwrap().contains("locked"));
    // Once is enough.
    database.write(keeper::Entry::Hold(Box::new(hold(3))));
    database.commit().unwrap();
    drop(database);
    drop(other);
    assert_eq!(open(directory.path()).fresh(), Some(&Fresh::Missing));
}

#[test]
fn a_quarantine_is_remembered() {
    let directory = tempfile::tempdir().unwrap();
    let mut database = open(directory.path());
    assert_eq!(database.quarantined_until(), None);
    database.set_quarantined_until(Boottime::from_nanos(77));
    database.commit().unwrap();
    drop(database);
    assert_eq!(open(directory.path()).quarantined_until(), Some(Boottime::from_nanos(77)));
}
