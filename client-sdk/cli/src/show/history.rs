//! `tenure history`.

use std::time::{Duration, SystemTime};

use tenure::client::Client;
use tenure::wire::{DEFAULT_TENANT, Happened, History, HistoryEntry};

use super::table::{Cell, Look, Screen, Table, or_dash, visible};
use super::when::{local, now};
use super::{ask, find};
use crate::args::{ResourceName, ResourceWords};
use crate::failure::{Failure, brief};
use crate::output::{print, print_json};

/// Shows the last changes of who holds a resource.
///
/// # Errors
///
/// When the agent refuses or cannot be asked.
pub(crate) async fn history(args: &ResourceWords, client: &Client) -> Result<(), Failure> {
    let args = &find(args, client).await?;
    let ResourceName { kind, name, tenant, output } = args;
    let what = format!("{kind}/{name}");
    let history = ask(client, &what, client.history(*kind, name, tenant.as_deref())).await?;
    if output.json {
        return print_json(&history);
    }
    print(&render(&history, now(), Screen::of_stdout()))
}

fn render(history: &History, now: SystemTime, screen: Screen) -> String {
    let History { tenant, kind, name, changes } = history;
    let mut title = format!("{kind}/{}", visible(name));
    if tenant != DEFAULT_TENANT {
        title = format!("{title} of tenant {}", visible(tenant));
    }
    if changes.is_empty() {
        return format!("{title}: no change of the last 7 days is known\n");
    }
    let mut table =
        Table::new(&["WHEN", "WHAT", "HOST", "NAME", "PID", "USER", "TOKEN", "WHY", "COMMAND"]);
    for change in changes {
        table.row([
            Cell::from(at(change, now)),
            Cell::new(change.what, look(change.what)),
            Cell::from(&change.host),
            Cell::from(&change.name),
            Cell::from(or_dash(change.program.pid)),
            Cell::from(user(change)),
            Cell::from(change.token),
            Cell::from(why(change)),
            Cell::from(or_dash(change.program.command.as_deref())),
        ]);
    }
    let count = match changes.len() {
        1 => "1 change".to_owned(),
        count => format!("{count} changes, newest first"),
    };
    format!("{title}: {count}\n{}", table.render(screen))
}

fn look(what: Happened) -> Look {
    match what {
        Happened::Granted => Look::Good,
        Happened::Released => Look::Plain,
        Happened::Lost => Look::Bad,
    }
}

/// The local time of a change.
pub(super) fn at(change: &HistoryEntry, now: SystemTime) -> String {
    local(now.checked_sub(Duration::from_millis(change.ago_ms)).unwrap_or(SystemTime::UNIX_EPOCH))
}

fn user(change: &HistoryEntry) -> String {
    let program = &change.program;
    let number = program.uid.map(|uid| uid.to_string());
    or_dash(program.user.clone().or(number))
}

/// Why a hold ended, and how long it had lasted; nothing for a grant.
pub(super) fn why(change: &HistoryEntry) -> String {
    if change.what == Happened::Granted {
        return "-".to_owned();
    }
    let reason = change.detail.as_deref().or(change.reason.as_deref()).unwrap_or("unknown");
    let mut why = match reason {
        "released" => "its holder gave it back".to_owned(),
        "wait_timeout" => "its caller had gone".to_owned(),
        "expired" => "expired: no renewal was confirmed in time".to_owned(),
        detail if change.reason.as_deref() == Some("expired") => format!("expired: {detail}"),
        "max_hold" => "--max-hold was over".to_owned(),
        "stalled" => "its program broke its promise of progress".to_owned(),
        "agent_stopping" => "its agent was stopped".to_owned(),
        "slept" => "its machine slept past the end of it".to_owned(),
        "upstream_reset" => "the upstream lost its data".to_owned(),
        other => other.to_owned(),
    };
    if let Some(status) = change.exit_status {
        why = format!("{why} ({})", ended(status));
    }
    if let Some(by) = &change.by {
        why = match &change.detail {
            Some(detail) => format!("revoked by {by}: {detail}"),
            None => format!("revoked by {by}"),
        };
    }
    match change.held_ms {
        Some(held) => format!("{why}, after {}", brief(Duration::from_millis(held))),
        None => why,
    }
}

/// How a process ended.
pub(super) fn ended(status: i32) -> String {
    let signal = status.checked_sub(128).map(nix::sys::signal::Signal::try_from);
    match signal {
        Some(Ok(signal)) => format!("killed by {}", signal.as_str()),
        _ => format!("exit status {status}"),
    }
}

#[cfg(test)]
mod tests {
    use tenure::wire::{Kind, ProgramView};

    use super::*;

    fn change(what: Happened) -> HistoryEntry {
        HistoryEntry {
            ago_ms: 60_000,
            what,
            token: 7,
            host: "hosta".to_owned(),
            name: "backup".to_owned(),
            program: ProgramView {
                pid: Some(24921),
                uid: Some(1000),
                user: Some("ann".to_owned()),
                command: Some("tenure run --leader nightly".to_owned()),
            },
            held_ms: None,
            reason: None,
            detail: None,
            exit_status: None,
            by: None,
        }
    }

    #[test]
    fn a_change_says_why_and_after_how_long() {
        let ended = HistoryEntry {
            held_ms: Some(4 * 3_600_000 + 12 * 60_000),
            reason: Some("session_ended".to_owned()),
            detail: Some("its command ended".to_owned()),
            exit_status: Some(137),
            ..change(Happened::Released)
        };
        assert_eq!(why(&ended), "its command ended (killed by SIGKILL), after 4h12m");
        let failed = HistoryEntry { exit_status: Some(3), ..ended };
        assert_eq!(why(&failed), "its command ended (exit status 3), after 4h12m");
        // Other agents may write anything.
        let odd = HistoryEntry { exit_status: Some(i32::MIN), ..failed };
        assert_eq!(why(&odd), "its command ended (exit status -2147483648), after 4h12m");
        let revoked = HistoryEntry {
            held_ms: Some(1000),
            reason: Some("revoked".to_owned()),
            by: Some("root on hostb".to_owned()),
            ..change(Happened::Lost)
        };
        assert_eq!(why(&revoked), "revoked by root on hostb, after 1.0s");
        assert_eq!(why(&change(Happened::Granted)), "-");
    }

    #[test]
    fn a_history_is_a_table_newest_first() {
        let mut history = History {
            tenant: DEFAULT_TENANT.to_owned(),
            kind: Kind::Leader,
            name: "nightly".to_owned(),
            changes: Vec::new(),
        };
        let nothing = render(&history, SystemTime::UNIX_EPOCH, Screen::default());
        assert_eq!(nothing, "leader/nightly: no change of the last 7 days is known\n");
        history.changes.push(change(Happened::Granted));
        let text = render(&history, now(), Screen::default());
        assert!(text.starts_with("leader/nightly: 1 change\n  WHEN"), "{text}");
        for part in ["granted", "hosta", "backup", "24921", "ann", "tenure run --leader nightly"] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}
