//! The simulation: the rules hold over many seeds, a seed repeats itself, and faults that are built
//! in on purpose are noticed.

use std::fmt::Write;
use std::ops::Range;

use tenure_simulation::{Options, Outcome, Planted, run};

/// Runs of every test run; `tests/run` has many more.
const SEEDS: Range<u64> = 1_000_000..1_000_240;
/// A planted fault must show within so many runs.
const FAULT_SEEDS: Range<u64> = 1..601;

fn report(outcome: &Outcome, planted: Option<Planted>) -> String {
    let again = run(outcome.seed, &Options { planted, trace: true, ..Options::default() });
    let mut text = String::new();
    for line in &again.lines {
        let _ = writeln!(text, "{line}");
    }
    if let Some(violation) = &outcome.violation {
        let _ = writeln!(text, "{}: {}", violation.invariant, violation.what);
    }
    let _ = write!(text, "again: target/debug/simulate --seed {} --trace", outcome.seed);
    text
}

fn keep_the_rules(seeds: Range<u64>) {
    for seed in seeds {
        let outcome = run(seed, &Options::default());
        assert!(outcome.violation.is_none(), "{}", report(&outcome, None));
    }
}

#[test]
fn the_rules_hold() {
    keep_the_rules(SEEDS.start..SEEDS.start + 120);
}

#[test]
fn the_rules_hold_for_others() {
    keep_the_rules(SEEDS.start + 120..SEEDS.end);
}

#[test]
fn a_seed_repeats_itself() {
    let options = Options { trace: true, ..Options::default() };
    for seed in 1..7 {
        let (first, second) = (run(seed, &options), run(seed, &options));
        assert_eq!(first.hash, second.hash, "seed {seed}");
        assert_eq!((first.steps, first.grants), (second.steps, second.grants), "seed {seed}");
    }
    assert_ne!(run(1, &options).hash, run(2, &options).hash);
}

#[test]
fn runs_see_what_they_are_for() {
    let mut seen = std::collections::BTreeMap::<&str, u64>::new();
    for seed in SEEDS.start..SEEDS.start + 120 {
        for (what, count) in run(seed, &Options::default()).seen {
            *seen.entry(what).or_default() += count;
        }
    }
    for what in [
        "agent killed",
        "agent killed at commit",
        "agent paused",
        "agent restarted",
        "agent stopped",
        "agent_stopping",
        "expired",
        "grant of a leader",
        "grant of a lease",
        "grant of a master",
        "grant of a permit",
        "grant that nobody read",
        "hold kept over a start",
        "journal lost",
        "link cut",
        "machine slept",
        "max_hold",
        "preempted",
        "program killed",
        "program paused",
        "revoked",
        "slept",
        "stalled",
        "upstream paused",
        "upstream reset",
        "upstream restarted",
        "upstream_reset",
        "wait in a crowd",
        "wall clock set",
    ] {
        assert!(seen.get(what).is_some_and(|count| *count > 0), "no run saw {what:?}: {seen:?}");
    }
}

#[test]
fn every_planted_fault_is_noticed() {
    for planted in Planted::ALL {
        let options = Options { planted: Some(planted), ..Options::default() };
        let noticed = FAULT_SEEDS.map(|seed| run(seed, &options)).find(|it| it.violation.is_some());
        assert!(noticed.is_some(), "{planted} was not noticed by {FAULT_SEEDS:?}");
    }
}
