//! `tenure held` and `tenure beat`: for commands that run inside a hold.

use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use tenure::client::Client;
use tenure::page::{Page, PageError, boottime_ns};
use uuid::Uuid;

use crate::args::HeldArgs;
use crate::exit;
use crate::failure::{Failure, brief};
use crate::output::print;
use crate::show::answer;

/// Tells whether the hold around this command is valid: by its page, and where that is missing by the agent's word.
///
/// # Errors
///
/// When there is no hold around it, or its page cannot be read.
pub(crate) async fn held(args: &HeldArgs, client: &Client) -> Result<u8, Failure> {
    let left = valid_for(client).await?;
    if args.verbose {
        print(&match left.is_zero() {
            true => "not held any more\n".to_owned(),
            false => format!("held, valid for {}\n", brief(left)),
        })?;
    }
    Ok(if left.is_zero() { exit::REFUSED } else { 0 })
}

/// How long the surrounding hold is valid; zero if it is lost.
async fn valid_for(client: &Client) -> Result<Duration, Failure> {
    let hold: Uuid = variable("TENURE_HOLD")?;
    let session: Uuid = variable("TENURE_SESSION")?;
    let slot: u32 = variable("TENURE_SLOT")?;
    let page: String = variable("TENURE_PAGE")?;
    match Page::open_inherited(Path::new(&page), session) {
        Ok(page) => Ok(page.valid_for(slot, hold)),
        // It goes with its session; one that somebody else removed is made again a moment later.
        Err(PageError::Open { source, .. })
            if matches!(source.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
        {
            let status = answer(client, client.status()).await;
            let status = status.map_err(|error| Failure::of_call("held", &error))?;
            let mut holds = status.sessions.iter().flat_map(|session| &session.holds);
            let until =
                holds.find(|view| view.hold == hold).map(|view| view.valid_until_boottime_ns);
            let left = until.unwrap_or(0).saturating_sub(boottime_ns());
            Ok(Duration::from_nanos(left))
        }
        Err(error) => Err(Failure::new(exit::UNAVAILABLE, error.to_string())),
    }
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
        Ok(()) if valid_for(client).await?.is_zero() => {
            Err(Failure::new(exit::LOST, "beat: the hold is lost; stop this command"))
        }
        Ok(()) => Ok(()),
    }
}

pub(crate) fn variable<T: std::str::FromStr>(name: &str) -> Result<T, Failure> {
    let value = std::env::var(name).ok();
    value.as_ref().and_then(|value| value.parse().ok()).ok_or_else(|| {
        let line = match value {
            Some(value) => format!("{name} is {value:?}, which Tenure never sets"),
            None => format!(
                "{name} is not set: this is for commands inside a hold; start yours with `tenure run`, or take over what `tenure acquire` prints"
            ),
        };
        Failure::new(exit::USAGE, line)
    })
}
