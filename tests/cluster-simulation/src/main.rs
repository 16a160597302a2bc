//! Runs simulations of the cluster: one seed to look at, a range of them to search, or every planted fault to see that
//! it is noticed.
//!
//! ```text
//! simulate-cluster --seed N [--fault NAME]
//! simulate-cluster --seeds A..B [--threads N]
//! simulate-cluster --faults [--seeds A..B]
//! ```
//!
//! The nodes are those of the product, with their consensus, logs, links and frames; what is simulated is under them:
//! the clock, the disk and the network of each host.

mod chance;
mod disk;
mod host;
mod invariants;
mod network;
mod program;
mod world;

use std::collections::BTreeMap;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::{Context, Result, bail};

use self::world::{Fault, Outcome};

/// Seeds tried for each planted fault unless told otherwise.
const FAULT_SEEDS: Range<u64> = 1..201;

#[derive(Default)]
struct Arguments {
    seed: Option<u64>,
    seeds: Option<Range<u64>>,
    fault: Option<Fault>,
    faults: bool,
    threads: Option<u64>,
}

fn main() -> Result<ExitCode> {
    let arguments = parse(std::env::args().skip(1))?;
    let is_good = if arguments.faults {
        let seeds = arguments.seeds.unwrap_or(FAULT_SEEDS);
        Fault::ALL.into_iter().fold(true, |all, fault| find(fault, seeds.clone()) && all)
    } else if let Some(seed) = arguments.seed {
        let outcome = run(seed, arguments.fault);
        show(&outcome);
        outcome.violation.is_none()
    } else if let Some(seeds) = arguments.seeds {
        search(seeds, arguments.threads.unwrap_or(2))
    } else {
        bail!("nothing to do: give --seed N, --seeds A..B or --faults");
    };
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments> {
    let mut arguments = Arguments::default();
    while let Some(word) = words.next() {
        let mut value = || words.next().with_context(|| format!("{word} wants a value"));
        match word.as_str() {
            "--seed" => arguments.seed = Some(value()?.parse().context("--seed")?),
            "--seeds" => {
                let text = value()?;
                let (from, to) = text.split_once("..").context("--seeds wants A..B")?;
                arguments.seeds = Some(from.parse()?..to.parse()?);
            }
            "--threads" => arguments.threads = Some(value()?.parse().context("--threads")?),
            "--fault" => {
                let name = value()?;
                let fault = Fault::ALL.into_iter().find(|fault| format!("{fault:?}") == name);
                arguments.fault = Some(fault.with_context(|| format!("no fault is {name}"))?);
            }
            "--faults" => arguments.faults = true,
            _ => bail!(
                "{word:?} is not an option: use --seed N, --seeds A..B, --fault NAME, --faults or --threads N"
            ),
        }
    }
    Ok(arguments)
}

/// Runs a seed on a thread of its own, which has asked the system for no chance yet.
fn run(seed: u64, fault: Option<Fault>) -> Outcome {
    std::thread::scope(|scope| {
        scope.spawn(|| world::run(seed, fault)).join().unwrap_or_else(|_| panic!("seed {seed}"))
    })
}

/// Runs a range of seeds, and stops at the first violation.
fn search(seeds: Range<u64>, threads: u64) -> bool {
    let (next, stop) = (AtomicU64::new(seeds.start), AtomicBool::new(false));
    let found: Mutex<Vec<Outcome>> = Mutex::default();
    let counts: Mutex<BTreeMap<&'static str, u64>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    let outcome = run(seed, None);
                    let mut counts = counts.lock().expect("no thread has panicked");
                    *counts.entry("runs").or_default() += 1;
                    for (what, count) in &outcome.counts {
                        *counts.entry(what).or_default() += count;
                    }
                    if outcome.violation.is_some() {
                        stop.store(true, Ordering::Relaxed);
                        found.lock().expect("no thread has panicked").push(outcome);
                    }
                }
            });
        }
    });
    for (what, count) in counts.into_inner().expect("no thread has panicked") {
        println!("{count:>10}  {what}");
    }
    let found = found.into_inner().expect("no thread has panicked");
    found.iter().for_each(show);
    found.is_empty()
}

/// The first seed that shows a planted fault; false if none does.
fn find(fault: Fault, seeds: Range<u64>) -> bool {
    let count = seeds.clone().count();
    let caught = seeds.map(|seed| run(seed, Some(fault))).find_map(|outcome| {
        let Outcome { seed, violation, .. } = outcome;
        violation.map(|what| (seed, what))
    });
    match &caught {
        Some((seed, what)) => println!("{fault:?}: seed {seed}: {what}"),
        None => println!("{fault:?}: NOT CAUGHT by {count} seeds"),
    }
    caught.is_some()
}

fn show(outcome: &Outcome) {
    let Outcome { seed, counts, hash, violation, trace } = outcome;
    for line in trace {
        println!("{line}");
    }
    match violation {
        None => println!("seed {seed}: {counts:?}, hash {hash:016x}: no violation"),
        Some(what) => {
            println!("seed {seed}: {what}");
            println!("again: tests/long cluster-seed {seed}");
        }
    }
}
