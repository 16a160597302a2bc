//! Runs the model test: so many operations, one seed to look at, or every planted fault to see that
//! the test notices.
//!
//! ```text
//! model --seed N [--trace] [--fault NAME]
//! model --operations N [--from SEED] [--threads N] [--fault NAME]
//! model --faults
//! ```

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use tenure_tests::model::{Outcome, Planted, Runner, Seen};

/// Seeds tried for each planted fault.
const FAULT_SEEDS: u64 = 100;

#[derive(Default)]
struct Arguments {
    seed: Option<u64>,
    operations: Option<u64>,
    from: Option<u64>,
    threads: Option<u64>,
    trace: bool,
    fault: Option<Planted>,
    faults: bool,
}

fn main() -> Result<ExitCode> {
    let arguments = parse(std::env::args().skip(1))?;
    if arguments.faults {
        return Ok(table());
    }
    if let Some(seed) = arguments.seed {
        let outcome = Runner::new(arguments.fault).run(seed, arguments.trace);
        report(&outcome, arguments.fault);
        return Ok(code(outcome.difference.is_none()));
    }
    let Some(operations) = arguments.operations else {
        bail!("nothing to do: give --seed N, --operations N or --faults");
    };
    Ok(search(operations, &arguments))
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments> {
    let mut arguments = Arguments::default();
    while let Some(word) = words.next() {
        let mut value = || words.next().with_context(|| format!("{word} wants a value"));
        match word.as_str() {
            "--seed" => arguments.seed = Some(value()?.parse().context("--seed")?),
            "--operations" => {
                arguments.operations = Some(value()?.parse().context("--operations")?);
            }
            "--from" => arguments.from = Some(value()?.parse().context("--from")?),
            "--threads" => arguments.threads = Some(value()?.parse().context("--threads")?),
            "--trace" => arguments.trace = true,
            "--fault" => arguments.fault = Some(value()?.parse().map_err(anyhow::Error::msg)?),
            "--faults" => arguments.faults = true,
            _ => bail!(
                "{word:?} is not an option: use --seed N [--trace], --operations N, --from SEED, \
                 --threads N, --fault NAME or --faults"
            ),
        }
    }
    Ok(arguments)
}

/// Runs one seed after the other, on one server per thread, until there were so many operations.
/// Stops at the first difference.
fn search(operations: u64, arguments: &Arguments) -> ExitCode {
    #[expect(clippy::disallowed_methods, reason = "elapsed time for the report")]
    let began = Instant::now();
    let (next, done) = (AtomicU64::new(arguments.from.unwrap_or(1)), AtomicU64::new(0));
    let (asked, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let found: Mutex<Vec<Outcome>> = Mutex::default();
    let seen: Mutex<Seen> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..arguments.threads.unwrap_or(2) {
            scope.spawn(|| {
                let mut runner = Runner::new(arguments.fault);
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
        report(outcome, arguments.fault);
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
fn table() -> ExitCode {
    println!("{:<22} {:>5}  difference", "fault", "seed");
    let mut all = true;
    for planted in Planted::ALL {
        let mut runner = Runner::new(Some(planted));
        let mut outcomes = (1..=FAULT_SEEDS).map(|seed| runner.run(seed, true));
        let caught = outcomes.find(|outcome| outcome.difference.is_some());
        match caught {
            Some(Outcome { seed, difference, .. }) => {
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

fn report(outcome: &Outcome, fault: Option<Planted>) {
    for line in &outcome.lines {
        println!("{line}");
    }
    let Outcome { seed, operations, .. } = outcome;
    match &outcome.difference {
        Some(difference) => {
            let fault = fault.map(|fault| format!(" --fault {fault}")).unwrap_or_default();
            println!("seed {seed}: {difference}");
            println!(
                "again: cargo run --release -p tenure-tests --bin model -- --seed {seed}{fault}"
            );
        }
        None => println!("seed {seed}: {operations} operations, no difference"),
    }
}

fn code(good: bool) -> ExitCode {
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
