//! Runs simulations of the cluster: one seed to look at, a range of them to search, every planted fault to see that
//! it is noticed, or the first seed that notices one that is planted in the code.
//!
//! ```text
//! simulate-cluster --seed N [--fault NAME]
//! simulate-cluster --seeds A..B [--threads N]
//! simulate-cluster --faults [--seeds A..B] [--threads N]
//! simulate-cluster --find [--seeds A..B] [--threads N]
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
use std::ops::{ControlFlow, Range};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::{Context, Result, bail};
use nix::sys::resource::{Resource, setrlimit};

use self::world::{Fault, Outcome};

/// Seeds tried for each planted fault unless told otherwise.
const FAULT_SEEDS: Range<u64> = 1..201;
const PROGRESS_EVERY: u64 = 100;
/// Processor time for a run; one takes a second.
const PROCESSOR_S_MAX: u64 = 60;
const VIOLATION: &str = "violation: ";
const BROKE_OFF: &str = "the run broke off";

#[derive(Default)]
struct Arguments {
    seed: Option<u64>,
    seeds: Option<Range<u64>>,
    fault: Option<Fault>,
    faults: bool,
    find: bool,
    threads: Option<u64>,
}

fn main() -> Result<ExitCode> {
    let arguments = parse(std::env::args().skip(1))?;
    let threads = arguments.threads.unwrap_or(2);
    let is_good = if arguments.faults {
        let seeds = arguments.seeds.unwrap_or(FAULT_SEEDS);
        let find = |fault| find(Some(fault), seeds.clone(), threads);
        let mut found = Fault::ALL.into_iter().map(find);
        found.try_fold(true, |all, found| Ok::<_, anyhow::Error>(found? && all))?
    } else if arguments.find {
        find(None, arguments.seeds.unwrap_or(FAULT_SEEDS), threads)?
    } else if let Some(seed) = arguments.seed {
        // One that goes round for ever is ended.
        setrlimit(Resource::RLIMIT_CPU, PROCESSOR_S_MAX, PROCESSOR_S_MAX)?;
        let outcome = world::run(seed, arguments.fault);
        show(&outcome);
        outcome.violation.is_none()
    } else if let Some(seeds) = arguments.seeds {
        search(seeds, threads)?
    } else {
        bail!("nothing to do: give --seed N, --seeds A..B, --faults or --find");
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
            "--find" => arguments.find = true,
            _ => bail!(
                "{word:?} is not an option: use --seed N, --seeds A..B, --fault NAME, --faults, --find or --threads N"
            ),
        }
    }
    Ok(arguments)
}

/// A run in a process of its own: a runtime draws from what the whole process has drawn before.
fn run_apart(seed: u64, fault: Option<Fault>) -> Result<Run> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--seed", &seed.to_string()]);
    if let Some(fault) = fault {
        command.args(["--fault", &format!("{fault:?}")]);
    }
    let child = command.stderr(Stdio::inherit()).stdout(Stdio::piped()).spawn()?;
    let output = child.wait_with_output()?;
    let mut shown = String::from_utf8(output.stdout)?;
    if !output.status.success() && !shown.contains(VIOLATION) {
        shown += &format!("{BROKE_OFF}: seed {seed}, {}\n", output.status);
    }
    Ok(Run { is_good: output.status.success(), shown })
}

/// A run that was shown.
struct Run {
    is_good: bool,
    shown: String,
}

impl Run {
    fn broke_off(&self) -> bool {
        self.shown.contains(BROKE_OFF)
    }

    fn counts(&self) -> impl Iterator<Item = (&str, u64)> {
        let lines = self.shown.lines().filter_map(|line| line.trim_start().split_once("  "));
        lines.filter_map(|(count, what)| Some((what, count.parse().ok()?)))
    }
}

/// Runs seeds side by side and shows each run to `see`, which may end it. Every seed below the one that ended it is seen, too.
fn run_each(
    seeds: Range<u64>,
    fault: Option<Fault>,
    threads: u64,
    see: impl Fn(u64, Run) -> ControlFlow<()> + Sync,
) -> Result<()> {
    let (next, stop) = (AtomicU64::new(seeds.start), AtomicBool::new(false));
    let look = || -> Result<()> {
        while !stop.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                break;
            }
            let run =
                run_apart(seed, fault).inspect_err(|_| stop.store(true, Ordering::Relaxed))?;
            if see(seed, run).is_break() {
                stop.store(true, Ordering::Relaxed);
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(look)).collect();
        threads.into_iter().try_for_each(|it| it.join().expect("no thread has panicked"))
    })
}

/// Runs a range of seeds, and stops at the first violation.
fn search(seeds: Range<u64>, threads: u64) -> Result<bool> {
    let counts: Mutex<BTreeMap<String, u64>> = Mutex::default();
    let is_good = AtomicBool::new(true);
    run_each(seeds, None, threads, |_, run| {
        let mut counts = counts.lock().expect("no thread has panicked");
        for (what, count) in run.counts().chain([("runs", 1)]) {
            *counts.entry(what.to_owned()).or_default() += count;
        }
        if counts["runs"].is_multiple_of(PROGRESS_EVERY) {
            eprintln!("{} runs", counts["runs"]);
        }
        if run.is_good {
            return ControlFlow::Continue(());
        }
        is_good.store(false, Ordering::Relaxed);
        print!("{}", run.shown);
        ControlFlow::Break(())
    })?;
    println!("of all runs:");
    print_counts(&counts.into_inner().expect("no thread has panicked"));
    Ok(is_good.into_inner())
}

/// The first seed that shows a planted fault, or `None` for one in the code; false if none does.
fn find(fault: Option<Fault>, seeds: Range<u64>, threads: u64) -> Result<bool> {
    let name = fault.map_or_else(|| "the code".to_owned(), |fault| format!("{fault:?}"));
    let found = Mutex::new(BTreeMap::new());
    run_each(seeds.clone(), fault, threads, |seed, run| {
        // One that breaks off has found nothing.
        if run.is_good || run.broke_off() {
            return ControlFlow::Continue(());
        }
        found.lock().expect("no thread has panicked").insert(seed, run);
        ControlFlow::Break(())
    })?;
    let found = found.into_inner().expect("no thread has panicked");
    let Some((seed, run)) = found.first_key_value() else {
        println!("{name}: NOT CAUGHT by {} seeds", seeds.count());
        return Ok(false);
    };
    let what = run.shown.lines().find_map(|line| line.strip_prefix(VIOLATION));
    println!("{name}: seed {seed}: {}", what.unwrap_or_default());
    Ok(true)
}

fn print_counts<Name: std::fmt::Display>(counts: &BTreeMap<Name, u64>) {
    for (what, count) in counts {
        println!("{count:>10}  {what}");
    }
}

fn show(outcome: &Outcome) {
    let Outcome { seed, counts, hash, violation, trace } = outcome;
    for line in trace {
        println!("{line}");
    }
    print_counts(counts);
    match violation {
        None => println!("seed {seed}, hash {hash:016x}: no violation"),
        Some(what) => {
            println!("{VIOLATION}{what}");
            println!("again: tests/long cluster-seed {seed}");
        }
    }
}
