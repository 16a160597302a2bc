//! Sends the same requests to every face of agent and gateway, and says where they are not treated alike.
//!
//! ```text
//! fuzz-faces [--requests N] [--seed S] [--lanes N] [--store embedded|redis|postgres|cluster] [--strict]
//! fuzz-faces --names N [--seed S] [--lanes N] [--store …]   names drawn from all of Unicode, in every operation that has them
//! fuzz-faces [--names 1] --only SEED [--store …]      one request, with what is sent and answered
//! ```
//!
//! A failure names its seed, which draws the same request again.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use tenure_tests::faces::{Options, Store, run};

fn main() -> Result<ExitCode> {
    let options = parse(std::env::args().skip(1))?;
    let report = run(&options);
    println!("{report}");
    Ok(if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Options> {
    let mut options = Options {
        requests: 10_000,
        seed: 1,
        lanes: 48,
        store: Store::Embedded,
        names: false,
        shows: false,
        strict: false,
    };
    while let Some(word) = words.next() {
        let mut value = || words.next().with_context(|| format!("{word} wants a value"));
        match word.as_str() {
            "--requests" => options.requests = value()?.parse().context("--requests")?,
            "--names" => {
                (options.names, options.requests) = (true, value()?.parse().context("--names")?);
            }
            "--seed" => options.seed = value()?.parse().context("--seed")?,
            "--lanes" => options.lanes = value()?.parse().context("--lanes")?,
            "--store" => options.store = value()?.parse().map_err(anyhow::Error::msg)?,
            "--strict" => options.strict = true,
            "--only" => {
                options.seed = value()?.parse().context("--only")?;
                (options.requests, options.lanes, options.shows) = (1, 1, true);
            }
            _ => bail!(
                "{word:?} is not an option: use --requests N, --names N, --seed S, --lanes N, --store NAME, --strict \
                 or --only SEED"
            ),
        }
    }
    Ok(options)
}
