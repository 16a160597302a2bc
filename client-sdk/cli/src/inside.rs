//! `tenure held` and `tenure beat`: for commands that run inside a hold.

use std::path::Path;
use std::time::Duration;

use tenure::client::Client;
use tenure::page::Page;
use uuid::Uuid;

use crate::args::HeldArgs;
use crate::exit;
use crate::failure::{Failure, brief};
use crate::output::print;
use crate::show::answer;

/// Tells whether the hold around this command is valid, by its page alone.
///
/// # Errors
///
/// When there is no hold around it, or its page cannot be read.
pub(crate) fn held(args: &HeldArgs) -> Result<u8, Failure> {
    let left = valid_for()?;
    if args.verbose {
        print(&match left.is_zero() {
            true => "not held any more\n".to_owned(),
            false => format!("held, valid for {}\n", brief(left)),
        })?;
    }
    Ok(if left.is_zero() { exit::REFUSED } else { 0 })
}

/// How long the surrounding hold is valid; zero if it is lost.
fn valid_for() -> Result<Duration, Failure> {
    let hold: Uuid = variable("TENURE_HOLD")?;
    let session: Uuid = variable("TENURE_SESSION")?;
    let slot: u32 = variable("TENURE_SLOT")?;
    let page: String = variable("TENURE_PAGE")?;
    let page = Page::open_inherited(Path::new(&page), session)
        .map_err(|error| Failure::new(exit::UNAVAILABLE, error.to_string()))?;
    Ok(page.valid_for(slot, hold))
}

/// Says that the command inside the hold gets on.
///
/// # Errors
///
/// When there is no hold around it, or it is lost, or the agent cannot be reached.
pub(crate) async fn beat(client: &Client) -> Result<(), Failure> {
    let session = variable("TENURE_SESSION")?;
    match answer(client, client.beat(session)).await {
        Err(error) if error.is_session_gone() => {
            let line = "beat: the hold is lost: its session has ended; stop this command";
            Err(Failure::new(exit::LOST, line))
        }
        Err(error) => Err(Failure::of_call("beat", &error)),
        // A session may go on without its hold.
        Ok(()) if valid_for()?.is_zero() => {
            Err(Failure::new(exit::LOST, "beat: the hold is lost; stop this command"))
        }
        Ok(()) => Ok(()),
    }
}

fn variable<T: std::str::FromStr>(name: &str) -> Result<T, Failure> {
    let value = std::env::var(name).ok();
    value.as_ref().and_then(|value| value.parse().ok()).ok_or_else(|| {
        let line = match value {
            Some(value) => format!("{name} is {value:?}, which `tenure run` never sets"),
            None => format!(
                "{name} is not set: this is for commands inside a hold; start yours with `tenure run`"
            ),
        };
        Failure::new(exit::USAGE, line)
    })
}
