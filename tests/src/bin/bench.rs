//! Measures the speed targets. Started by `tests/bench/run`, which builds everything with
//! optimisation first.

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use tenure_tests::bench::{self, Effort};

/// Measures Tenure against floors of the same run.
#[derive(Parser)]
struct Arguments {
    /// Fewer and shorter rounds: a first look, not a result.
    #[arg(long)]
    quick: bool,
    /// Only these targets, such as P1,P9.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Where the JSON and the SVG go.
    #[arg(long, default_value = "target/bench")]
    out: PathBuf,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Serves a floor on a socket; the benchmark starts this itself.
    #[command(hide = true)]
    ServeFloor {
        /// `raw` or `http`.
        kind: String,
        /// Where.
        socket: PathBuf,
    },
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    if let Some(Command::ServeFloor { kind, socket }) = arguments.command {
        return bench::serve(&kind, &socket);
    }
    if cfg!(debug_assertions) {
        eprintln!("built without optimisation: these numbers mean nothing; use tests/bench/run");
    }
    let effort = if arguments.quick { Effort::QUICK } else { Effort::FULL };
    let report = bench::run(&effort, &arguments.only, &arguments.out)?;
    println!("{report}");
    println!("written to {}", arguments.out.display());
    Ok(())
}
