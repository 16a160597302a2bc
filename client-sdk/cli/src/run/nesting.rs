//! Commands under a hold that ask for another one.

use std::collections::HashSet;
use std::time::Duration;

use nix::unistd::Pid;
use tenure::client::Client;
use tenure::wire::{HoldView, Holder, Kind, Standing, Waiter};
use tokio::time::timeout;
use uuid::Uuid;

use super::family;
use crate::args::WishArgs;
use crate::exit;
use crate::failure::Failure;
use crate::show::shown;

/// How long to look whether this command would wait for itself.
const ADVICE_MAX: Duration = Duration::from_secs(1);

/// So many holds around a command are more than commands within each other.
const AROUND_MANY: usize = 16;
/// The last so many are told to a command: a variable has room for three thousand.
const AROUND_MAX: usize = 256;

/// The holds of the `tenure run`s around this command, as far as they say so.
fn holds_around() -> Vec<Uuid> {
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

/// The hold around this command for which a command of the holder waits, so that perhaps neither can go on. Known of two on this host.
pub(super) async fn deadlock(client: &Client, wanted: &Standing) -> Option<String> {
    let around = holds_around();
    if around.is_empty() || wanted.kind == Kind::Semaphore {
        return None;
    }
    let looked = timeout(ADVICE_MAX, async {
        let status = client.status().await.ok()?;
        for session in &status.sessions {
            // Others may give a permit back.
            let is_whole = |view: &&HoldView| view.kind != Kind::Semaphore;
            let ours = session.holds.iter().filter(|view| around.contains(&view.hold));
            for view in ours.filter(is_whole) {
                let tenant = Some(&*session.tenant);
                let standing = client.standing(view.kind, &view.name, tenant).await;
                let Ok(held) = standing else { continue };
                let is_theirs = |waiter: &Waiter| {
                    wanted.holders.iter().any(|holder| waits_within(holder, waiter))
                };
                if held.waiters.iter().any(is_theirs) {
                    return Some(format!("{}/{}", view.kind, shown(&view.name)));
                }
            }
        }
        None
    });
    looked.await.ok().flatten()
}

/// True if the process that waits was started by the one that holds.
fn waits_within(holder: &Holder, waiter: &Waiter) -> bool {
    let pid = |number: u32| i32::try_from(number).ok().map(Pid::from_raw);
    let both = waiter.pid.and_then(pid).zip(holder.pid.and_then(pid));
    holder.host == waiter.host
        && both.is_some_and(|(waiter, holder)| family::descends(waiter, holder))
}
