//! Tests the Debian package in a booted system; see `tests/packaging/run`.
//!
//! ```text
//! packaging [--until N]
//! ```

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;

use anyhow::{Context, Result, bail};
use tenure_tests::harness::boottime_ns;
use tenure_tests::packaging::steps::STEPS;
use tenure_tests::packaging::{Log, World};

fn main() -> Result<ExitCode> {
    let mut words = std::env::args().skip(1);
    let last = match (words.next().as_deref(), words.next()) {
        (None, _) => STEPS.len(),
        (Some("--until"), Some(number)) => number.parse().context("--until")?,
        (Some(word), _) => bail!("{word:?} is not an option: use --until N"),
    };
    let folder = folder()?;
    let log = Rc::new(Log::create(&folder.join("log.txt"))?);
    let failed = match World::make(&folder, Rc::clone(&log)) {
        Ok(world) => walk(world, &log, last),
        Err(error) => {
            log.say(&format!("FAILED before the first step: {error:#}"));
            true
        }
    };
    let (verdict, failures) = if failed { ("FAILED", 1) } else { ("ok", 0) };
    log.say(&format!("test result: {verdict}. {} passed; {failures} failed;", log.passed()));
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Takes the steps in order, up to the first that fails, and says whether one did.
fn walk(mut world: World, log: &Log, last: usize) -> bool {
    for (number, (title, step)) in STEPS.iter().enumerate().take(last) {
        log.say(&format!("\n== {}. {title}", number + 1));
        let began = boottime_ns();
        let outcome = catch_unwind(AssertUnwindSafe(|| step(&mut world)));
        let seconds = (boottime_ns() - began) / 1_000_000_000;
        log.say(&format!("   took {seconds} s"));
        if let Err(panic) = outcome {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or_default();
            log.say(&format!("FAILED: {text}\nThe units and their journal:"));
            world.machine.run("systemctl status --no-pager --full --lines=0 'tenured*'");
            world.machine.run("journalctl --no-pager --boot --lines=120");
            return true;
        }
    }
    false
}

/// Below the directory of builds, where the tree is kept from one run to the next.
fn folder() -> Result<PathBuf> {
    let program = std::env::current_exe()?;
    let target = program.ancestors().nth(2).map(Path::to_owned);
    Ok(target.context("a program lies in target/PROFILE")?.join("packaging"))
}
