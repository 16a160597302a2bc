//! `tenure acquire` and `tenure release`: a hold that lasts over several commands.

use std::io;

use tenure::client::Client;
use tenure::wire::{Register, Release, Tether};

use super::acquire::Granted;
use super::nesting::held_around;
use super::request::wished;
use super::signals::Signals;
use super::{Acquisition, environment, resource_name, say_limit_changed, validity_at_start};
use crate::args::duration::millis;
use crate::args::{AcquireArgs, ReleaseArgs};
use crate::exit::{self, End};
use crate::failure::Failure;
use crate::inside::variable;
use crate::output::print;
use crate::shell::literal;

/// Acquires a resource for a process, or for a while, and prints what the next command needs to know.
///
/// # Errors
///
/// Why it is not held.
pub(crate) async fn acquire(args: &AcquireArgs, client: Client) -> Result<End, Failure> {
    let wish = &args.wish;
    let (kind, name) = wish.resource.resource();
    let what = resource_name(wish, kind, name.as_deref());
    let system = |error: io::Error| Failure::new(exit::REFUSED, format!("{what}: {error}"));
    let mut signals = Signals::install().map_err(system)?;
    let mut asked = wished(wish, kind, name);
    asked.max_hold_ms = args.max_hold.map(millis);
    let acquisition = Acquisition { wish, what: &what, progress: None, service: None };
    let (campaign, granted) =
        match acquisition.acquire(&client, register(args), asked, &mut signals).await {
            Ok(granted) => granted,
            Err(end) => return end,
        };
    let Granted { tether, acquired, asked_at } = granted;
    if let Err((status, why)) = validity_at_start(&client, &tether.registered, &acquired, asked_at)
    {
        campaign.abandon(None).await;
        return Err(Failure::new(status, format!("{what}: {why}")));
    }
    say_limit_changed(&what, acquired.limit_changed);
    let around = held_around(&client).await;
    let environment = environment(&client, &tether.registered, &acquired, &around);
    let lines = environment.map(|(name, value)| {
        let value = value.to_string_lossy();
        match args.export {
            true => format!("export {name}={}\n", literal(&value)),
            false => format!("{name}={value}\n"),
        }
    });
    // Nobody would know of it.
    if let Err(failure) = print(&lines.concat()) {
        campaign.abandon(None).await;
        return Err(failure);
    }
    Ok(End::Exit(0))
}

fn register(args: &AcquireArgs) -> Register {
    let tether = if args.tie.pid.is_some() { Tether::Process } else { Tether::Keepalive };
    Register {
        name: Some(args.session_name.clone().unwrap_or_else(|| "tenure-acquire".to_owned())),
        surface: Some("cli".to_owned()),
        tenant: args.wish.tenant.clone(),
        project: args.wish.project.clone(),
        tether: Some(tether),
        pid: args.tie.pid,
        keepalive_ms: args.tie.keepalive.map(millis),
        ..Register::default()
    }
}

/// Gives back what a session holds, and ends it.
///
/// # Errors
///
/// When it was not held any more, or the agent does not answer.
pub(crate) async fn release(args: &ReleaseArgs, client: &Client) -> Result<(), Failure> {
    let session = match args.session {
        Some(session) => session,
        None => variable("TENURE_SESSION")?,
    };
    let exit_status = args.status;
    let status = client.status().await.map_err(|error| Failure::of_call("release", &error))?;
    let found = status.sessions.iter().find(|found| found.session == session);
    if found.is_some_and(|found| found.tether == Tether::Connection) {
        let line = "release: TENURE_SESSION is that of the `tenure run` around this command, which gives back at its end; \
                    name the session of `tenure acquire` with --session";
        return Err(Failure::new(exit::USAGE, line));
    }
    // A session outlives what it held.
    let held = found.is_some_and(|found| found.holds.iter().any(|hold| hold.token.is_some()));
    let release = Release { session, hold: None, exit_status, stopped: None };
    match client.give_back(&release).await {
        Ok(true) if held => Ok(()),
        Err(error) if !error.is_session_gone() => Err(Failure::of_call("release", &error)),
        Ok(_) | Err(_) => {
            let line = format!(
                "release: session {session} holds nothing any more: it was lost, or given back before; or it is another user's"
            );
            Err(Failure::new(exit::REFUSED, line))
        }
    }
}
