//! Runs simulations: one seed to look at, a range of them to search, or every planted fault to see
//! that the harness notices.
//!
//! ```text
//! simulate --seed N [--steps N] [--trace] [--fault NAME]
//! simulate --seeds A..B [--fault NAME] [--threads N] [--go-on]
//! simulate --faults [--seeds A..B] [--threads N]
//! ```

use std::collections::BTreeMap;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use tenure_harness::threads;
use tenure_simulation::{Options, Outcome, Planted, run};

/// Seeds tried for each planted fault unless told otherwise.
const FAULT_SEEDS: Range<u64> = 1..1001;

#[derive(Default)]
struct Arguments {
    seed: Option<u64>,
    seeds: Option<Range<u64>>,
    options: Options,
    faults: bool,
    threads: u64,
    go_on: bool,
}

fn main() -> Result<ExitCode> {
    let arguments = parse(std::env::args().skip(1))?;
    if arguments.faults {
        return Ok(table(&arguments));
    }
    if let Some(seed) = arguments.seed {
        let outcome = run(seed, &Options { trace: true, ..arguments.options });
        report(&outcome, &arguments.options);
        return Ok(code(outcome.violation.is_none()));
    }
    let Some(seeds) = arguments.seeds.clone() else {
        bail!("nothing to do: give --seed N, --seeds A..B or --faults");
    };
    Ok(search(seeds, &arguments))
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments> {
    let mut arguments = Arguments { threads: 2, ..Arguments::default() };
    while let Some(word) = words.next() {
        let mut value = || words.next().with_context(|| format!("{word} wants a value"));
        match word.as_str() {
            "--seed" => arguments.seed = Some(value()?.parse().context("--seed")?),
            "--seeds" => {
                let text = value()?;
                let (from, to) = text.split_once("..").context("--seeds wants A..B")?;
                arguments.seeds = Some(from.parse()?..to.parse()?);
            }
            "--steps" => arguments.options.steps_max = Some(value()?.parse().context("--steps")?),
            "--threads" => arguments.threads = value()?.parse().context("--threads")?,
            "--trace" => arguments.options.print = true,
            "--fault" => {
                let planted: Planted = value()?.parse().map_err(anyhow::Error::msg)?;
                arguments.options.planted = Some(planted);
            }
            "--go-on" => arguments.go_on = true,
            "--faults" => arguments.faults = true,
            _ => bail!(
                "{word:?} is not an option: use --seed N [--steps N] [--trace], --seeds A..B, \
                 --go-on, --fault NAME, --faults or --threads N"
            ),
        }
    }
    Ok(arguments)
}

/// Runs a range of seeds, one run per thread at a time. Stops at the first violation.
fn search(seeds: Range<u64>, arguments: &Arguments) -> ExitCode {
    #[expect(clippy::disallowed_methods, reason = "elapsed time for the report")]
    let began = Instant::now();
    let next = AtomicU64::new(seeds.start);
    let stop = AtomicBool::new(false);
    let found: Mutex<Vec<Outcome>> = Mutex::new(Vec::new());
    let (steps, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let seen: Mutex<BTreeMap<&'static str, u64>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..arguments.threads {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        break;
                    }
                    let outcome = run(seed, &arguments.options);
                    steps.fetch_add(outcome.steps, Ordering::Relaxed);
                    if let Ok(mut seen) = seen.lock() {
                        for (what, count) in &outcome.seen {
                            *seen.entry(what).or_default() += count;
                        }
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                    if let Some(violation) = &outcome.violation {
                        if arguments.go_on {
                            println!("seed {seed}: {}: {}", violation.invariant, violation.what);
                        }
                        stop.store(!arguments.go_on, Ordering::Relaxed);
                        if let Ok(mut found) = found.lock() {
                            found.push(outcome);
                        }
                    }
                }
            });
        }
    });
    println!(
        "{} runs, {} steps, {:.1} s",
        done.into_inner(),
        steps.into_inner(),
        began.elapsed().as_secs_f64()
    );
    for (what, count) in seen.into_inner().unwrap_or_default() {
        println!("{count:>10}  {what}");
    }
    let mut found = found.into_inner().unwrap_or_default();
    found.sort_by_key(|outcome| outcome.seed);
    if let Some(first) = found.first().filter(|_| !arguments.go_on) {
        let again = run(first.seed, &Options { trace: true, ..arguments.options });
        report(&again, &arguments.options);
    }
    code(found.is_empty())
}

/// For each planted fault the first seed that shows it.
fn table(arguments: &Arguments) -> ExitCode {
    let seeds = arguments.seeds.clone().unwrap_or(FAULT_SEEDS);
    let found = threads::each(&Planted::ALL, arguments.threads, |planted| {
        let options = Options { planted: Some(*planted), ..Options::default() };
        let mut outcomes = seeds.clone().map(|seed| run(seed, &options));
        outcomes.find_map(|outcome| outcome.violation.map(|violation| (outcome.seed, violation)))
    });
    println!("{:<16} {:>6}  invariant", "fault", "seed");
    let mut all = true;
    for (planted, caught) in Planted::ALL.iter().zip(found) {
        match caught {
            Some((seed, violation)) => {
                println!("{planted:<16} {seed:>6}  {}: {}", violation.invariant, violation.what);
            }
            None => {
                all = false;
                println!("{planted:<16} {:>6}  NOT CAUGHT by {} seeds", "-", seeds.clone().count());
            }
        }
    }
    code(all)
}

fn report(outcome: &Outcome, options: &Options) {
    let Outcome { seed, steps, ended_at, grants, hash, violation, lines, .. } = outcome;
    if let Some(violation) = violation {
        if !options.print {
            for line in lines {
                println!("{line}");
            }
        }
        println!();
        println!("seed {seed}, step {steps}, at {ended_at:?}: {}", violation.invariant);
        println!("{}", violation.what);
        let fault = options.planted.map(|planted| format!(" --fault {planted}"));
        println!(
            "again: {} --seed {seed}{} --trace",
            std::env::args().next().unwrap_or_default(),
            fault.unwrap_or_default()
        );
    } else {
        println!(
            "seed {seed}: {steps} steps, {grants} grants, {ended_at:?}, hash {hash:016x}: no \
             violation"
        );
    }
}

fn code(good: bool) -> ExitCode {
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
