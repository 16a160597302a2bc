//! Runs the conformance corpus on a store: its transcripts, so many operations, one seed to look at,
//! or every planted fault to see that the corpus notices.
//!
//! ```text
//! conformance [--store NAME] --transcripts [--fault NAME]
//! conformance [--store NAME] --seed N [--trace] [--fault NAME]
//! conformance [--store NAME] --operations N [--from SEED] [--threads N] [--fault NAME]
//! conformance [--store NAME] --faults [--threads N]
//! ```
//!
//! Without `--store` it is `redis`.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use tenure_conformance::{Outcome, Runner, Seen, Store, transcript};
use tenure_harness::threads;

/// Seeds tried for each planted fault.
const FAULT_SEEDS: u64 = 100;

struct Arguments {
    store: &'static Store,
    fault: Option<&'static str>,
    task: Option<Task>,
    from: u64,
    threads: u64,
    trace: bool,
}

enum Task {
    Transcripts,
    Seed(u64),
    Operations(u64),
    Faults,
}

fn main() -> Result<ExitCode> {
    let arguments = parse(std::env::args().skip(1).collect())?;
    let Arguments { store, fault, trace, .. } = arguments;
    Ok(match arguments.task {
        Some(Task::Transcripts) => transcripts(&arguments),
        Some(Task::Seed(seed)) => {
            let outcome = Runner::new(store, fault).run(seed, trace);
            report(&outcome, &arguments);
            code(outcome.difference.is_none())
        }
        Some(Task::Operations(operations)) => search(operations, &arguments),
        Some(Task::Faults) => table(store, arguments.threads),
        None => bail!("nothing to do: give --transcripts, --seed N, --operations N or --faults"),
    })
}

fn parse(words: Vec<String>) -> Result<Arguments> {
    let named = |option: &str| {
        let at = words.iter().position(|word| word == option)?;
        words.get(at + 1).map(String::as_str)
    };
    let store = Store::named(named("--store").unwrap_or("redis")).map_err(anyhow::Error::msg)?;
    let fault = named("--fault").map(|name| store.fault(name)).transpose();
    let fault = fault.map_err(anyhow::Error::msg)?;
    let mut arguments = Arguments { store, fault, task: None, from: 1, threads: 2, trace: false };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().with_context(|| format!("{word} wants a value"));
        let number = |value: &String| value.parse().with_context(|| word.clone());
        match word.as_str() {
            "--store" | "--fault" => drop(value()?),
            "--transcripts" => arguments.task = Some(Task::Transcripts),
            "--seed" => arguments.task = Some(Task::Seed(number(value()?)?)),
            "--operations" => arguments.task = Some(Task::Operations(number(value()?)?)),
            "--faults" => arguments.task = Some(Task::Faults),
            "--from" => arguments.from = number(value()?)?,
            "--threads" => arguments.threads = number(value()?)?,
            "--trace" => arguments.trace = true,
            _ => bail!(
                "{word:?} is not an option: use --store NAME, --transcripts, --seed N [--trace], \
                 --operations N, --from SEED, --threads N, --fault NAME or --faults"
            ),
        }
    }
    Ok(arguments)
}

/// Runs every transcript that the store can do.
fn transcripts(arguments: &Arguments) -> ExitCode {
    let mut good = true;
    for transcript in transcript::all() {
        if let Err(wrong) = transcript.check_engine() {
            println!("{wrong}");
            good = false;
        }
    }
    let mut runner = Runner::new(arguments.store, arguments.fault);
    let (mut checked, mut left_out) = (0, 0);
    for transcript in transcript::all() {
        match runner.check(&transcript) {
            None => left_out += 1,
            Some(outcome) if outcome.difference.is_some() => {
                println!("{outcome}\n");
                good = false;
            }
            Some(_) => checked += 1,
        }
    }
    println!("{checked} transcripts without a difference, {left_out} for the engine alone");
    code(good)
}

/// Runs one seed after the other, on one server per thread, until there were so many operations.
/// Stops at the first difference.
fn search(operations: u64, arguments: &Arguments) -> ExitCode {
    let Arguments { store, fault, .. } = arguments;
    #[expect(clippy::disallowed_methods, reason = "elapsed time for the report")]
    let began = Instant::now();
    let (next, done) = (AtomicU64::new(arguments.from), AtomicU64::new(0));
    let (asked, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let found: Mutex<Vec<Outcome>> = Mutex::default();
    let seen: Mutex<Seen> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..arguments.threads {
            scope.spawn(|| {
                let mut runner = Runner::new(store, *fault);
                while asked.load(Ordering::Relaxed) < operations && !stop.load(Ordering::Relaxed) {
                    let outcome = runner.run(next.fetch_add(1, Ordering::Relaxed), false);
                    asked.fetch_add(outcome.operations, Ordering::Relaxed);
                    done.fetch_add(1, Ordering::Relaxed);
                    if let Ok(mut seen) = seen.lock() {
                        seen.add(&outcome.seen);
                    }
                    if outcome.difference.is_some() {
                        stop.store(true, Ordering::Relaxed);
                        if let Ok(mut found) = found.lock() {
                            found.push(outcome);
                        }
                    }
                }
            });
        }
    });
    let found = found.into_inner().unwrap_or_default();
    if let Some(outcome) = found.first() {
        report(outcome, arguments);
    }
    for (what, count) in seen.into_inner().unwrap_or_default().0 {
        println!("{count:>10}  {what}");
    }
    println!(
        "{} runs, {} operations, {} differences, {:.1} s",
        done.into_inner(),
        asked.into_inner(),
        found.len(),
        began.elapsed().as_secs_f64()
    );
    code(found.is_empty())
}

/// For each planted fault the first seed that shows it.
fn table(store: &Store, threads: u64) -> ExitCode {
    let found = threads::each(store.faults, threads, |planted| {
        let mut runner = Runner::new(store, Some(planted));
        let mut outcomes = (1..=FAULT_SEEDS).map(|seed| runner.run(seed, true));
        outcomes.find(|outcome| outcome.difference.is_some())
    });
    println!("{:<22} {:>5}  difference", "fault", "seed");
    let mut all = true;
    for (planted, caught) in store.faults.iter().zip(found) {
        match caught {
            Some(Outcome { of: seed, difference, .. }) => {
                println!("{planted:<22} {seed:>5}  {}", difference.unwrap_or_default());
            }
            None => {
                all = false;
                println!("{planted:<22} {:>5}  NOT NOTICED by {FAULT_SEEDS} seeds", "-");
            }
        }
    }
    code(all)
}

fn report(outcome: &Outcome, arguments: &Arguments) {
    println!("{outcome}");
    if outcome.difference.is_some() {
        let Arguments { store, fault, .. } = arguments;
        let fault = fault.map(|fault| format!(" --fault {fault}")).unwrap_or_default();
        let (store, seed) = (store.name, &outcome.of);
        let program = std::env::args().next().unwrap_or_default();
        println!("again: {program} --store {store} --seed {seed}{fault}");
    }
}

fn code(good: bool) -> ExitCode {
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
