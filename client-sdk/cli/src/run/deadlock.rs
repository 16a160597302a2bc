//! Commands under holds that wait for each other.

use nix::unistd::Pid;
use tenure::client::Client;
use tenure::wire::{HoldView, Holder, Kind, Standing, Waiter};
use tokio::time::timeout;

use super::family;
use super::nesting::{ADVICE_MAX, holds_around};
use crate::show::shown;

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
