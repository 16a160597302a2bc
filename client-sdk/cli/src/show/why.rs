//! `tenure why`: who holds it, what it waits for, how it came to that, and what to type next.

mod away;

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde::Serialize;
use tenure::client::{Client, SERVICE_SOCKET};
use tenure::wire::{
    ANOTHER_PRINCIPAL, EndedCommand, Happened, History, HistoryEntry, HoldView, Holder, Kind,
    Standing, Status, UpstreamState,
};
use tokio::time::{sleep, timeout};

use super::history::{at, why as reason};
use super::leftovers;
use super::list::holder_name;
use super::process::Seen;
use super::table::shown;
use super::{ask, find};
use crate::ANSWER_MAX;
use crate::args::{ResourceName, ResourceWords};
use crate::exit;
use crate::failure::{Failure, brief};
use crate::output::{print, print_json};
use crate::shell::{on_host, operand, option};

/// Holders, and waiters, that have a line each.
const LISTED: usize = 2;
/// Said where a gateway hides others.
const OWNERS_LACKING: &str = "who the others are takes the right \"owners\" of the agent's key at the gateway: tenured-gateway keys add --right owners";
/// Changes that are told.
const CHANGES: usize = 5;

/// The longest wait for a store that is known to be away.
const AWAY_ANSWER_MAX: Duration = Duration::from_millis(500);
/// The history hears of an end later than the store, since agents tell it of several at once: it is asked again so often.
const ENDS_LOOKS: usize = 10;
const ENDS_LOOK_EVERY: Duration = Duration::from_millis(100);

/// All that the agents know of a resource.
#[derive(Serialize)]
struct Known {
    standing: Standing,
    history: History,
    /// Why the history is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    unknown: Option<String>,
    /// The commands of holders here that have ended, by the tokens of their grants: something that they left behind holds on.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    ended_commands: BTreeMap<u64, EndedCommand>,
    /// The host of the agent that was asked.
    here: String,
    /// The option that names its socket to root, who looks for an agent elsewhere.
    #[serde(skip)]
    socket: String,
}

/// Explains a resource.
///
/// # Errors
///
/// When the agent refuses or cannot be asked.
pub(crate) async fn why(args: &ResourceWords, client: &Client) -> Result<(), Failure> {
    let args = &find(args, client).await?;
    let ResourceName { kind, name, tenant, output } = args;
    let what = format!("{kind}/{name}");
    let status = ask(client, &what, client.status()).await?;
    let standing = ask(client, &what, client.standing(*kind, name, tenant.as_deref()));
    let standing = match timeout(patience(&status), standing).await {
        Ok(Err(failure)) if failure.code == exit::UNAVAILABLE => Err(failure),
        Ok(answer) => Ok(answer?),
        Err(_) => Err(Failure::new(
            exit::UNAVAILABLE,
            format!("{what}: the upstream does not answer; see `tenure doctor`"),
        )),
    };
    let standing = match standing {
        Ok(standing) => standing,
        Err(failure) if output.json => return Err(failure),
        Err(failure) => {
            print(&away::explain(args, &status, failure.problem()))?;
            return Err(failure);
        }
    };
    let mut standing = standing;
    let mut history = client.history(*kind, name, tenant.as_deref()).await;
    for _ in 0..ENDS_LOOKS {
        if !history.as_ref().is_ok_and(|history| lacks_an_end(history, &standing)) {
            break;
        }
        #[expect(clippy::disallowed_methods, reason = "a machine that sleeps asks later")]
        sleep(ENDS_LOOK_EVERY).await;
        // Both again: meanwhile another one may have it.
        let Ok(later) = client.standing(*kind, name, tenant.as_deref()).await else { break };
        let Ok(told) = client.history(*kind, name, tenant.as_deref()).await else { break };
        (standing, history) = (later, Ok(told));
    }
    // Who holds it is told all the same.
    let (history, unknown) = match history {
        Ok(history) => (history, None),
        Err(error) => {
            let (tenant, name) = (standing.tenant.clone(), standing.name.clone());
            (History { tenant, kind: *kind, name, changes: Vec::new() }, Some(error.to_string()))
        }
    };
    let ended_commands = ended_commands(&status, &standing);
    let socket = option_for_root(client.path());
    let here = status.agent.host;
    let known = Known { standing, history, unknown, ended_commands, here, socket };
    if output.json {
        return print_json(&known);
    }
    print(&known.explain(super::when::now()))
}

/// True if one of the grants that are shown has no end.
fn lacks_an_end(history: &History, standing: &Standing) -> bool {
    let mut shown = history.changes.iter().take(CHANGES);
    shown.any(|change| is_untold(change, history, standing))
}

/// True if a grant has ended and the history lacks its end.
fn is_untold(change: &HistoryEntry, history: &History, standing: &Standing) -> bool {
    let of_it = |other: &HistoryEntry| other.token == change.token && other.what != change.what;
    let has_ended = history.changes.iter().any(of_it);
    let is_held = standing.holders.iter().any(|holder| holder.token == change.token)
        || standing.holding > standing.holders.len() as u64;
    change.what == Happened::Granted && !has_ended && !is_held
}

/// The commands of the caller's own sessions that have ended while their holds of a resource go on.
fn ended_commands(status: &Status, standing: &Standing) -> BTreeMap<u64, EndedCommand> {
    let is_meant = |hold: &&HoldView| hold.kind == standing.kind && hold.name == standing.name;
    let of_tenant = status.sessions.iter().filter(|session| session.tenant == standing.tenant);
    let ended =
        of_tenant.filter_map(|session| session.ended_command.as_ref().map(|it| (session, it)));
    ended
        .flat_map(|(session, command)| {
            let holds = session.holds.iter().filter(is_meant);
            holds.filter_map(|hold| hold.token).map(|token| (token, command.clone()))
        })
        .collect()
}

/// The longest wait for the store: short where the agent knows it to be away.
fn patience(status: &Status) -> Duration {
    match status.upstream.state {
        UpstreamState::Down | UpstreamState::Connecting => AWAY_ANSWER_MAX,
        UpstreamState::Up | UpstreamState::Quarantined => ANSWER_MAX,
    }
}

impl Known {
    fn explain(&self, now: SystemTime) -> String {
        let Known { standing, history, .. } = self;
        let Standing { kind, name, holders, holding, waiters, waiting, limit, .. } = standing;
        let of = limit.map(|limit| format!(", {holding} of {limit}")).unwrap_or_default();
        let mut out = match holders.first() {
            None => format!("{kind}/{} is free\n", shown(name)),
            Some(first) => {
                let how = first.kept_ms.map_or("held", |_| "kept");
                format!("{kind}/{} is {how}{of}\n", shown(name))
            }
        };
        let seen: Vec<_> = holders.iter().take(LISTED).map(|holder| self.look_at(holder)).collect();
        for (holder, seen) in holders.iter().zip(&seen) {
            let _ = writeln!(out, "  held     {}", held(holder, now));
            if let Some(kept) = self.kept(holder, now) {
                let _ = writeln!(out, "  kept     {kept}");
                continue;
            }
            if let Some(process) = process(holder, seen.as_ref()) {
                let _ = writeln!(out, "  process  {process}");
            }
            if let Some(command) = self.ended_commands.get(&holder.token) {
                let _ = writeln!(out, "  left     {}", leftovers::told(command));
            }
        }
        rest(&mut out, *holding, holders.len().min(LISTED));
        for waiter in waiters.iter().take(LISTED) {
            let (host, name) = (shown(&waiter.host), shown(&waiter.name));
            let since = brief(Duration::from_millis(waiter.since_ms));
            let _ = writeln!(out, "  waiting  {}. {name} on {host} for {since}", waiter.position);
        }
        rest(&mut out, *waiting, waiters.len().min(LISTED));
        let names = || holders.iter().map(|it| &it.name).chain(waiters.iter().map(|it| &it.name));
        if names().any(|name| name == ANOTHER_PRINCIPAL) {
            let _ = writeln!(out, "  {OWNERS_LACKING}");
        }
        let room = if holders.len() > 1 { CHANGES - 2 } else { CHANGES };
        if let Some(unknown) = &self.unknown {
            let _ = writeln!(out, "  its history is not known: {}", shown(unknown));
        }
        for change in history.changes.iter().take(room) {
            let _ = writeln!(out, "  {}", self.line(change, now));
        }
        for next in self.next(holders.first(), seen.first().and_then(Option::as_ref)) {
            let _ = writeln!(out, "  next     {next}");
        }
        out
    }

    /// The words about a resource that is kept from others although its holder has released it. An agent of an earlier
    /// release does not tell other hosts for how long.
    fn kept(&self, holder: &Holder, now: SystemTime) -> Option<String> {
        if let Some(kept) = super::when::kept(holder, now) {
            return Some(kept);
        }
        let ended = |it: &HistoryEntry| it.token == holder.token && it.what != Happened::Granted;
        let is_kept = holder.is_of_tenure() && self.history.changes.iter().any(ended);
        is_kept.then(|| "from others, as was asked for; its holder has let go".to_owned())
    }

    /// A change as a line.
    fn line(&self, change: &HistoryEntry, now: SystemTime) -> String {
        let (at, name, host) = (at(change, now), shown(&change.name), shown(&change.host));
        if change.what != Happened::Granted {
            return format!(
                "{at}  {} by {name} on {host}: {}",
                change.what,
                shown(&reason(change))
            );
        }
        if !is_untold(change, &self.history, &self.standing) {
            return format!("{at}  granted to {name} on {host}");
        }
        let silent = "its end was not told: its host or agent fell silent";
        format!("{at}  granted to {name} on {host} ({silent})")
    }

    /// The process of a holder, if it is here.
    fn look_at(&self, holder: &Holder) -> Option<Seen> {
        if holder.host != self.here {
            return None;
        }
        let process = Seen::find(holder.pid?)?;
        let guards = holder.command.as_ref().is_some_and(|command| command.contains("tenure"));
        Some(if guards { process.child().unwrap_or(process) } else { process })
    }

    /// Two commands to type next.
    fn next(&self, holder: Option<&Holder>, seen: Option<&Seen>) -> [String; 2] {
        let Standing { kind, name, tenant, .. } = &self.standing;
        let tenant = match tenant.as_str() {
            tenure::wire::DEFAULT_TENANT => String::new(),
            tenant => option(" --tenant", tenant),
        };
        let of = |command: &str| format!("{command} {kind}{tenant} {}", operand(name));
        let revoke = of(&format!("sudo tenure{} revoke", self.socket));
        let command = holder.and_then(|holder| self.ended_commands.get(&holder.token));
        let left = command.map(leftovers::present).unwrap_or_default();
        let left = left.keys().map(u32::to_string).collect::<Vec<_>>().join(",");
        if seen.is_none() && !left.is_empty() {
            return [look(left), revoke];
        }
        match (holder, seen) {
            (None, _) if self.standing.waiting > 0 => {
                ["tenure doctor".to_owned(), of("tenure observe")]
            }
            (None, _) => [run(*kind, name, &tenant), of("tenure history")],
            (Some(_), Some(Seen { pid, state: 'T' })) => [format!("kill -CONT {pid}"), revoke],
            (Some(_), Some(Seen { pid, .. })) => [look(*pid), revoke],
            (Some(holder), None) => {
                let is_hidden = holder.name == ANOTHER_PRINCIPAL;
                let is_away = holder.host != self.here && holder.is_of_tenure() && !is_hidden;
                let there = is_away.then(|| on_host(&holder.host, &of("tenure why"))).flatten();
                [there.unwrap_or_else(|| of("tenure history")), revoke]
            }
        }
    }
}

/// The option that names the socket of an agent to root; none of the agent that serves the whole host.
fn option_for_root(socket: &Path) -> String {
    match socket.to_str() {
        Some(SERVICE_SOCKET) | None => String::new(),
        Some(path) => option(" --socket", path),
    }
}

fn rest(out: &mut String, all: u64, listed: usize) {
    let more = all.saturating_sub(listed as u64);
    if more > 0 {
        let _ = writeln!(out, "           and {more} more");
    }
}

/// A holder, and since when.
fn held(holder: &Holder, now: SystemTime) -> String {
    let since = Duration::from_millis(holder.since_ms);
    if !holder.is_of_tenure() {
        return format!("by {}", shown(&holder_name(holder)));
    }
    let began = now.checked_sub(since).unwrap_or(SystemTime::UNIX_EPOCH);
    let (began, since) = (super::when::local(began), brief(since));
    let beat = holder.last_beat_ms.map(|ago| brief(Duration::from_millis(ago)));
    let beat = beat.map(|ago| format!(", last beat {ago} ago")).unwrap_or_default();
    let (name, host, token) = (shown(&holder.name), shown(&holder.host), holder.token);
    format!("by {name} on {host} since {began}, for {since}{beat} (token {token})")
}

/// Its process, as far as anybody knows it.
fn process(holder: &Holder, seen: Option<&Seen>) -> Option<String> {
    let mut text = format!("pid {}", holder.pid?);
    match (&holder.user, holder.uid) {
        (Some(user), _) => text = format!("{text} of {}", shown(user)),
        (None, Some(uid)) => text = format!("{text} of uid {uid}"),
        (None, None) => {}
    }
    text = format!("{text} on {}", shown(&holder.host));
    if let Some(seen) = seen {
        text = format!("{text}, pid {} is {}", seen.pid, seen.words());
    }
    if let Some(command) = &holder.command {
        text = format!("{text}: {}", shown(command));
    }
    Some(text)
}

/// The command that shows a process.
fn look(pid: impl fmt::Display) -> String {
    format!("ps -o pid,user,stat,etime,wchan:20,args -p {pid}")
}

fn run(kind: Kind, name: &str, tenant: &str) -> String {
    let resource = match kind {
        Kind::Master => format!("--master {}", option("--project", name)),
        kind => option(&format!("--{kind}"), name),
    };
    format!("tenure run {resource}{tenant} -- COMMAND")
}

#[cfg(test)]
mod tests;
