//! Commands under a hold that ask for another one.

use std::time::Duration;

use tenure::client::Client;
use tenure::wire::{HoldView, Kind};
use tokio::time::timeout;
use uuid::Uuid;

use crate::args::WishArgs;
use crate::exit;
use crate::failure::Failure;

/// How long to look whether this command would wait for itself.
const ADVICE_MAX: Duration = Duration::from_secs(1);

/// The holds of the `tenure run`s around this command, as far as they say so.
fn holds_around() -> Vec<Uuid> {
    let of = |name: &str| std::env::var(name).unwrap_or_default();
    let around = format!("{},{}", of("TENURE_HOLDS"), of("TENURE_HOLD"));
    around.split(',').filter_map(|hold| hold.parse().ok()).collect()
}

/// What the command is told of the holds around it, its own among them.
pub(super) fn holds_within(own: Uuid) -> String {
    let mut holds = holds_around();
    holds.dedup();
    holds.push(own);
    let holds: Vec<String> = holds.iter().map(Uuid::to_string).collect();
    holds.join(",")
}

/// A command under a hold that is to wait for the same hold would wait for its own end.
pub(super) async fn refuse_to_wait_for_itself(
    args: &WishArgs,
    kind: Kind,
    name: Option<&str>,
    what: &str,
    client: &Client,
) -> Result<(), Failure> {
    let around = holds_around();
    if around.is_empty() || kind == Kind::Semaphore || args.no_wait {
        return Ok(());
    }
    // Only a piece of advice: an agent that does not answer is met again below.
    let Ok(Ok(status)) = timeout(ADVICE_MAX, client.status()).await else { return Ok(()) };
    let tenant = args.tenant.as_deref().unwrap_or("default");
    let name = name.or(args.project.as_deref()).unwrap_or("default");
    let is_same =
        |view: &HoldView| around.contains(&view.hold) && view.kind == kind && view.name == name;
    let mut same_tenant = status.sessions.iter().filter(|session| session.tenant == tenant);
    if same_tenant.any(|session| session.holds.iter().any(is_same)) {
        let line = format!(
            "{what}: held by a `tenure run` around this command, or by its `tenure acquire`, as TENURE_HOLDS says: it would \
             wait for itself; leave one of the two out, or unset TENURE_HOLD and TENURE_HOLDS"
        );
        return Err(Failure::new(exit::NOT_ACQUIRED, line));
    }
    Ok(())
}
