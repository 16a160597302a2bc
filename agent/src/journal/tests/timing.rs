//! What a commit costs. Prints, and asserts nothing:
//! `cargo test --release -p tenured --lib journal::tests::timing -- --ignored --nocapture`.

#![expect(clippy::disallowed_methods, reason = "a sleep would spoil the measurement anyway")]

use std::time::{Duration, Instant};

use tenure::wire::Kind;

use super::samples::{BOOT, grant, hold};
use crate::engine::journal as engine;
use crate::host::clock::Boottime;
use crate::journal::Database;
use crate::keeper::journal as keeper;

/// µs of the median run.
fn median_us(mut runs: Vec<Duration>) -> f64 {
    runs.sort_unstable();
    runs[runs.len() / 2].as_secs_f64() * 1e6
}

fn time(runs: u64, mut run: impl FnMut(u64)) -> f64 {
    let timed = (0..runs).map(|index| {
        let start = Instant::now();
        run(index);
        start.elapsed()
    });
    median_us(timed.collect())
}

/// A database with so many holds, all granted and beaten once.
fn filled(directory: &std::path::Path, holds: u64) -> Database {
    let mut database = Database::open(directory, BOOT).unwrap();
    for row in 1..=holds {
        database.write(keeper::Entry::Hold(Box::new(hold(row))));
        database.write(keeper::Entry::Valid { row, valid_until: Boottime::from_nanos(row) });
        database.write_engine(engine::Entry::Grant(Box::new(grant(row, Kind::Leader))));
    }
    database.commit().unwrap();
    database
}

#[test]
#[ignore = "prints timings"]
fn commits() {
    for holds in [100, 100_000] {
        let directory = tempfile::tempdir().unwrap();
        let mut database = filled(directory.path(), holds);
        let hold_1 = Box::new(hold(1));
        let grant_1 = Box::new(grant(1, Kind::Leader));
        let granted = time(20_000, |index| {
            let row = holds + 1 + index;
            let mut hold = hold_1.clone();
            hold.row = row;
            let mut grant = grant_1.clone();
            grant.row = row;
            database.write_engine(engine::Entry::Grant(grant));
            database.write(keeper::Entry::Hold(hold));
            database.commit().unwrap();
        });
        let released = time(20_000, |index| {
            let row = holds + 1 + index;
            database.write_engine(engine::Entry::GrantEnded { row });
            database.write(keeper::Entry::HoldEnded { row, hold: hold_1.claim.id });
            database.commit().unwrap();
        });
        let one = time(20_000, |index| {
            database.write(keeper::Entry::Valid {
                row: 1 + index % holds,
                valid_until: Boottime::from_nanos(1 << 40 | index),
            });
            database.commit().unwrap();
        });
        let beats = time(1_000, |index| {
            let first = index * 512 % holds;
            for row in first..first + 512 {
                database.write(keeper::Entry::Valid {
                    row: 1 + row % holds,
                    valid_until: Boottime::from_nanos(1 << 40 | index),
                });
            }
            database.commit().unwrap();
        });
        let start = Instant::now();
        drop(database);
        let mut database = Database::open(directory.path(), BOOT).unwrap();
        let opened = start.elapsed();
        assert_eq!(database.load().holds.len(), usize::try_from(holds).unwrap());
        println!(
            "{holds:>6} holds: grant {granted:.1} µs, release {released:.1} µs, one valid \
             {one:.1} µs, 512 valid {beats:.0} µs, reopen {opened:?}"
        );
    }
}
