//! Measures the speed targets. Started by `tests/bench/run`, which builds everything with
//! optimisation first.

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use tenure_tests::bench::{self, Effort};

/// Measures Tenure against floors, and against what people use today, in the same run.
#[derive(Parser)]
struct Arguments {
    /// Only these targets, such as P2 P3.
    #[arg(value_name = "TARGET")]
    targets: Vec<String>,
    /// Fewer and shorter rounds: a first look, not a result.
    #[arg(long)]
    quick: bool,
    /// The directory for the JSON.
    #[arg(long, default_value = "target/bench")]
    out: PathBuf,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Measures one target; the benchmark starts this itself.
    #[command(hide = true)]
    Measure { number: usize },
    /// Serves a floor on a socket; the benchmark starts this itself.
    #[command(hide = true)]
    ServeFloor {
        /// `raw` or `http`.
        kind: String,
        socket: PathBuf,
    },
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let (effort, options) =
        if arguments.quick { (Effort::QUICK, vec!["--quick"]) } else { (Effort::FULL, vec![]) };
    match arguments.command {
        Some(Command::ServeFloor { kind, socket }) => return bench::serve(&kind, &socket),
        Some(Command::Measure { number }) => return bench::measure(&effort, number),
        None => {}
    }
    if cfg!(debug_assertions) {
        eprintln!("built without optimisation: these numbers mean nothing; use tests/bench/run");
    }
    let report = bench::run(&arguments.targets, &options, &arguments.out)?;
    println!("{report}");
    println!("written to {}", arguments.out.display());
    anyhow::ensure!(report.left_out.is_empty(), "not everything could be measured");
    Ok(())
}
