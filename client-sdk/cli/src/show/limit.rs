//! `tenure limit`.

use tenure::client::{CallError, Client};
use tenure::wire::{Acquire, Code, Kind, LimitChanged, Register, Standing, Wait};
use uuid::Uuid;

use super::{answer, ask};
use crate::args::LimitArgs;
use crate::exit;
use crate::failure::Failure;
use crate::output::{print, print_json};

/// Shows or changes how many permits a semaphore has.
///
/// # Errors
///
/// When the agent refuses or cannot be asked; when nobody uses the semaphore, which then has no limit.
pub(crate) async fn limit(args: &LimitArgs, client: &Client) -> Result<(), Failure> {
    let what = format!("semaphore/{}", args.name);
    let changed = match args.limit {
        Some(limit) => change(args, client, &what, limit).await?,
        None => None,
    };
    let question = client.standing(Kind::Semaphore, &args.name, args.tenant.as_deref());
    let standing = ask(client, &what, question).await?;
    if standing.holding + standing.waiting == 0 {
        let line = format!(
            "{what}: nobody holds or waits for it, and a limit lasts as long as somebody does; name it when \
             asking for a permit: `tenure run --semaphore {} --limit N`",
            args.name
        );
        return Err(Failure::new(exit::REFUSED, line));
    }
    if args.output.json {
        return print_json(&standing);
    }
    print(&render(&what, &standing, changed))
}

fn render(what: &str, standing: &Standing, changed: Option<LimitChanged>) -> String {
    let limit = standing.limit.unwrap_or(1);
    let former = changed.map(|it| format!(" instead of {}, for everybody", it.from));
    let held = standing.holding;
    format!("{what}: limit {limit}{}; {held} held\n", former.unwrap_or_default())
}

/// Asks for a permit with that limit, as every program may that wants one, and gives it back at once if there is
/// one. The limit changes in any case.
async fn change(
    args: &LimitArgs,
    client: &Client,
    what: &str,
    limit: u32,
) -> Result<Option<LimitChanged>, Failure> {
    let register = Register {
        name: Some("tenure limit".to_owned()),
        surface: Some("cli".to_owned()),
        tenant: args.tenant.clone(),
        ..Register::default()
    };
    let session = ask(client, what, client.register(&register)).await?.session;
    let acquired = answer(client, client.acquire(&wanted(args, session, limit))).await;
    // The permit goes with its session.
    let ended = ask(client, what, client.release(session, None)).await;
    let changed = match acquired {
        Ok(tenure::client::AcquireReply::Acquired(acquired)) => acquired.limit_changed,
        Ok(tenure::client::AcquireReply::Waiting(waiting)) => waiting.limit_changed,
        Err(CallError::Refused(problem)) if problem.code == Code::Contended => {
            problem.limit_changed
        }
        Err(error) => return Err(Failure::of_call(what, &error)),
    };
    ended.map(|_| changed)
}

fn wanted(args: &LimitArgs, session: Uuid, limit: u32) -> Acquire {
    Acquire {
        session,
        kind: Kind::Semaphore,
        name: Some(args.name.clone()),
        wait: Wait::None,
        behind_own: false,
        fleet: false,
        timeout_ms: None,
        request: None,
        ttl_ms: None,
        max_hold_ms: None,
        hold_at_least_ms: None,
        limit: Some(limit),
        priority: None,
        grace_ms: None,
        attributes: None,
    }
}
