//! The cost of a turn. Prints, and asserts nothing: `cargo test --profile fast -p tenure-stores --lib
//! journal::tests::timing -- --ignored --nocapture`.

#![expect(clippy::disallowed_methods, reason = "a sleep would spoil the measurement anyway")]

use std::time::{Duration, Instant};

use tenure_core::engine::journal as engine;
use tenure_core::keeper::journal as keeper;
use tenure_core::time::Boottime;
use tenure_wire::Kind;

use super::samples::files;
use super::samples::{BOOT, Memory, grant, hold};
use crate::journal::{Ahead, Journal};

const NOW: Boottime = Boottime::from_nanos(1);

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

#[test]
#[ignore = "prints timings"]
fn turns() {
    for holds in [100, 100_000] {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let open = || {
            Journal::open(Box::new(files(directory.path())), BOOT, None, Ahead::default()).unwrap()
        };
        let (mut journal, _) = open();
        let mut memory = Memory::default();
        for row in 1..=holds {
            memory.hold(&mut journal, row);
            journal.secure(NOW);
        }
        let turn = |journal: &mut Journal| {
            journal.secure(NOW);
            journal.tend(NOW, &memory);
        };
        let (hold_1, grant_1) = (Box::new(hold(1)), Box::new(grant(1, Kind::Leader)));
        let granted = time(20_000, |index| {
            let row = holds + 1 + index;
            let mut hold = hold_1.clone();
            hold.row = row;
            let mut grant = grant_1.clone();
            grant.row = row;
            journal.write_engine(engine::Entry::Grant(grant));
            journal.write(keeper::Entry::Hold(hold));
            turn(&mut journal);
        });
        let released = time(20_000, |index| {
            let row = holds + 1 + index;
            journal.write_engine(engine::Entry::GrantEnded { row });
            journal.write(keeper::Entry::HoldEnded { row, hold: hold_1.claim.id });
            turn(&mut journal);
        });
        let beats = time(1_000, |index| {
            let first = index * 512 % holds;
            for row in first..first + 512 {
                let valid_until = Boottime::from_nanos(1 << 40 | index);
                journal.write(keeper::Entry::Valid { row: 1 + row % holds, valid_until });
            }
            turn(&mut journal);
        });
        drop(journal);
        let start = Instant::now();
        let (_, found) = open();
        let opened = start.elapsed();
        assert_eq!(found.keeper.holds.len(), usize::try_from(holds).unwrap());
        println!(
            "{holds:>6} holds: grant {granted:.1} µs, release {released:.1} µs, 512 valid \
             {beats:.0} µs, reopen {opened:?}"
        );
    }
}
