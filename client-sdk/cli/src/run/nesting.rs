//! Commands under a hold that ask for another one.

use std::collections::HashSet;
use std::time::Duration;

use tenure::client::Client;
use tenure::wire::{HoldView, Kind};
use tokio::time::timeout;
use uuid::Uuid;

use crate::args::WishArgs;
use crate::exit;
use crate::failure::Failure;

/// How long a question may take whose answer is only a piece of advice.
pub(super) const ADVICE_MAX: Duration = Duration::from_secs(1);

/// So many holds around a command are more than commands within each other.
const AROUND_MANY: usize = 16;
/// The last so many are told to a command: a variable has room for three thousand.
const AROUND_MAX: usize = 256;

/// The holds of the `tenure run`s around this command, as far as they say so.
pub(super) fn holds_around() -> Vec<Uuid> {
    let of = |name: &str| std::env::var(name).unwrap_or_default();
    let around = format!("{},{}", of("TENURE_HOLDS"), of("TENURE_HOLD"));
    around.split(',').filter_map(|hold| hold.parse().ok()).collect()
}

/// The same without those that have ended, once there are many: a script that acquires again and again keeps its variables.
pub(super) async fn held_around(client: &Client) -> Vec<Uuid> {
    let mut around = holds_around();
    around.dedup();
    if around.len() >= AROUND_MANY
        && let Ok(Ok(status)) = timeout(ADVICE_MAX, client.status()).await
    {
        let held: HashSet<Uuid> = status
            .sessions
            .iter()
            .flat_map(|session| session.holds.iter().map(|view| view.hold))
            .collect();
        around.retain(|hold| held.contains(hold));
    }
    around.drain(..around.len().saturating_sub(AROUND_MAX));
    around
}

/// What the command is told of the holds around it, its own among them.
pub(super) fn holds_within(around: &[Uuid], own: Uuid) -> String {
    let mut holds = around.to_vec();
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
    if around.is_empty() || args.no_wait && args.quiet {
        return Ok(());
    }
    // Only a piece of advice: an agent that does not answer is met again below.
    let Ok(Ok(status)) = timeout(ADVICE_MAX, client.status()).await else { return Ok(()) };
    let tenant = args.tenant.as_deref().unwrap_or("default");
    let name = name.or(args.project.as_deref()).unwrap_or("default");
    let is_same =
        |view: &HoldView| around.contains(&view.hold) && view.kind == kind && view.name == name;
    let same_tenant = status.sessions.iter().filter(|session| session.tenant == tenant);
    let same: Vec<_> = same_tenant.flat_map(|it| &it.holds).filter(|view| is_same(view)).collect();
    // Other holders may return permits, but not if the commands around this one hold all permits.
    let limit = args.limit.or(same.iter().filter_map(|view| view.limit).min());
    let is_all = kind != Kind::Semaphore || limit.is_some_and(|it| same.len() >= it as usize);
    if !same.is_empty() && is_all {
        if args.no_wait {
            let line = format!(
                "{what}: taken by a `tenure run` around this command, or by its `tenure acquire`, as TENURE_HOLDS says"
            );
            return Err(Failure::new(args.conflict_exit_code, line));
        }
        let line = format!(
            "{what}: held by a `tenure run` around this command, or by its `tenure acquire`, as TENURE_HOLDS says: it would \
             wait for itself; leave one of the two out, or unset TENURE_HOLD and TENURE_HOLDS"
        );
        return Err(Failure::new(exit::NOT_ACQUIRED, line));
    }
    Ok(())
}
