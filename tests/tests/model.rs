//! The model test: the scripts on a real Redis answer as the engine does, a seed repeats itself, and
//! faults that are built in on purpose are noticed.

use std::fmt::Write;

use tenure_tests::model::{Outcome, Planted, Runner, Seen};

/// Operations of every test run; `tests/run` has many more, in a release build.
const OPERATIONS: u64 = 10_000;
/// The first seed of every test run.
const FIRST_SEED: u64 = 1_000_000;
/// A planted fault must show within so many runs.
const FAULT_SEEDS: u64 = 40;

fn report(outcome: &Outcome) -> String {
    let mut text = String::new();
    for line in &outcome.lines {
        let _ = writeln!(text, "{line}");
    }
    let Outcome { seed, difference, .. } = outcome;
    let _ = writeln!(text, "seed {seed}: {}", difference.as_deref().unwrap_or("no difference"));
    let _ = write!(text, "again: cargo run --release -p tenure-tests --bin model -- --seed {seed}");
    text
}

#[test]
fn the_scripts_answer_as_the_engine() {
    let mut runner = Runner::new(None);
    let mut operations = 0;
    let mut seen = Seen::default();
    for seed in FIRST_SEED.. {
        if operations >= OPERATIONS {
            break;
        }
        let outcome = runner.run(seed, false);
        assert!(outcome.difference.is_none(), "{}", report(&outcome));
        operations += outcome.operations;
        seen.add(&outcome.seen);
    }
    for what in [
        "announced",
        "beat gone: conflict",
        "beat gone: expired",
        "beat gone: preempted",
        "beat gone: released",
        "beat gone: revoked",
        "beat gone: unknown",
        "beat held",
        "beat of a master",
        "beat of a peer",
        "beat waiting",
        "claim contended",
        "claim gone: conflict",
        "claim gone: preempted",
        "claim gone: released",
        "claim gone: revoked",
        "claim held",
        "claim waiting",
        "ended",
        "no routes",
        "released",
        "released nothing",
        "revoked",
        "revoked nothing",
        "routes",
        "standing",
        "standing with sessions",
        "standing with waiters",
    ] {
        assert!(seen.0.contains_key(what), "no run saw {what:?}: {seen:?}");
    }
}

#[test]
fn a_seed_repeats_itself() {
    let (mut first, mut second) = (Runner::new(None), Runner::new(None));
    // The second server has forgotten other runs.
    second.run(2, false);
    assert_eq!(first.run(1, true).lines, second.run(1, true).lines);
    assert_ne!(first.run(1, true).lines, second.run(3, true).lines);
}

#[test]
fn every_planted_fault_is_noticed() {
    for planted in Planted::ALL {
        let mut runner = Runner::new(Some(planted));
        let noticed = (1..=FAULT_SEEDS).any(|seed| runner.run(seed, true).difference.is_some());
        assert!(noticed, "{planted} was not noticed by {FAULT_SEEDS} runs");
    }
}
