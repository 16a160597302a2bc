//! The corpus on every store: transcripts, random plans, and faults that are built in on purpose.

use tenure_conformance::{Outcome, Runner, STORES, Seen, Store, transcript};

/// Operations of the engine itself in every test run; `tests/run` has many more of each store.
const OPERATIONS: u64 = 10_000;
/// Those of a store behind a gateway, each of which takes several turns of threads. What they reach is reached
/// by the others.
const OPERATIONS_THROUGH: u64 = 500;
/// Those of the other stores, which keep to all of the corpus in `tests/run`.
const OPERATIONS_OF_STORE: u64 = 1_500;
/// The first seed of every test run.
const FIRST_SEED: u64 = 2_000_000;
/// A planted fault must show within so many runs.
const FAULT_SEEDS: u64 = 40;

#[test]
fn the_engine_says_what_is_written() {
    let wrong: Vec<String> =
        transcript::all().iter().filter_map(|it| it.check_engine().err()).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn every_store_keeps_to_the_transcripts() {
    for store in &STORES {
        let mut runner = Runner::new(store, None);
        let mut checked = 0;
        for transcript in transcript::all() {
            let Some(outcome) = runner.check(&transcript) else { continue };
            assert!(outcome.difference.is_none(), "{}: {outcome}", store.name);
            checked += 1;
        }
        assert!(checked > 40, "{} transcripts on {}", checked, store.name);
    }
}

#[test]
fn every_store_answers_as_the_engine() {
    for store in &STORES {
        answers_as_the_engine(store);
    }
}

fn answers_as_the_engine(store: &Store) {
    let mut runner = Runner::new(store, None);
    let wanted = match store.name {
        "gateway-embedded" | "gateway-redis" | "gateway-cluster" => OPERATIONS_THROUGH,
        "engine" => OPERATIONS,
        _ => OPERATIONS_OF_STORE,
    };
    let mut operations = 0;
    let mut seen = Seen::default();
    for seed in FIRST_SEED.. {
        if operations >= wanted {
            break;
        }
        let outcome = runner.run(seed, false);
        assert!(outcome.difference.is_none(), "{}: {outcome}", store.name);
        operations += outcome.operations;
        seen.add(&outcome.seen);
    }
    if wanted < OPERATIONS {
        return;
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
        assert!(seen.0.contains_key(what), "no run of {} saw {what:?}: {seen:?}", store.name);
    }
}

#[test]
fn a_seed_repeats_itself() {
    // The whole client does some things by the machine's clock.
    for store in ["engine", "redis"].map(|name| Store::named(name).unwrap()) {
        let (mut first, mut second) = (Runner::new(store, None), Runner::new(store, None));
        // The second store has forgotten other runs.
        second.run(2, false);
        assert_eq!(first.run(1, true).lines, second.run(1, true).lines);
        assert_ne!(first.run(1, true).lines, second.run(3, true).lines);
    }
}

#[test]
fn every_planted_fault_is_noticed() {
    for store in &STORES {
        for fault in store.faults {
            let mut runner = Runner::new(store, Some(fault));
            let mut runs = (1..=FAULT_SEEDS).map(|seed| runner.run(seed, true));
            let noticed = runs.any(|Outcome { difference, .. }| difference.is_some());
            assert!(noticed, "{fault} of {} was not noticed", store.name);
        }
    }
}
