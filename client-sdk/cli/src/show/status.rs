//! `tenure status`.

use std::fmt::Write;
use std::time::Duration;

use tenure::client::Client;
use tenure::wire::{HoldState, HoldView, SessionStatus, Status, UpstreamState};
use tokio::time::sleep;

use super::ask;
use super::table::{Cell, Look, Table, or_dash, visible};
use crate::args::StatusArgs;
use crate::failure::{Failure, brief};
use crate::output::{coloured, print, print_json};

/// How often `--watch` looks.
const WATCH_EVERY: Duration = Duration::from_secs(1);

/// Shows the agent, its upstream, sessions and holds.
///
/// # Errors
///
/// When the agent cannot be asked, also while watching.
pub(crate) async fn status(args: &StatusArgs, client: &Client) -> Result<(), Failure> {
    if args.quiet {
        return ask(client, "status", client.readyz()).await;
    }
    loop {
        let status = ask(client, "status", client.status()).await?;
        if args.output.json {
            print_json(&status)?;
        } else {
            let coloured = coloured();
            // Home, and clear what was below: less flicker than an empty screen in between.
            let home = if args.watch && coloured { "\x1b[H\x1b[J" } else { "" };
            print(&format!("{home}{}", render(&status, coloured)))?;
        }
        if !args.watch {
            return Ok(());
        }
        #[expect(clippy::disallowed_methods, reason = "the pace of a display")]
        sleep(WATCH_EVERY).await;
    }
}

pub(super) fn upstream_look(state: UpstreamState) -> (&'static str, Look) {
    match state {
        UpstreamState::Connecting => ("connecting", Look::Warning),
        UpstreamState::Up => ("up", Look::Good),
        UpstreamState::Down => ("down", Look::Bad),
        UpstreamState::Quarantined => ("quarantined", Look::Warning),
    }
}

fn render(status: &Status, coloured: bool) -> String {
    let Status { agent, upstream, sessions, .. } = status;
    let mut out = String::new();
    let mut line = |text: String| {
        out.push_str(&text);
        out.push('\n');
    };
    line(format!(
        "agent     {} on {}, pid {}, up {}",
        agent.version,
        visible(&agent.host),
        agent.pid,
        brief(Duration::from_millis(agent.uptime_ms))
    ));
    let (word, look) = upstream_look(upstream.state);
    let at = upstream.address.as_ref().map(|address| format!(" at {}", visible(address)));
    line(format!(
        "upstream  {} {}{}, {}",
        upstream.kind,
        look.paint(word, coloured),
        at.unwrap_or_default(),
        upstream.guarantee
    ));
    if let Some(error) = &upstream.last_error {
        line(format!("          last error: {}", visible(error)));
    }
    let beats = &upstream.beat_lateness;
    line(format!(
        "beats     {} sent, late by {} (half), {} (999 of 1000), {} (worst)",
        beats.beats,
        micros(beats.p50_us),
        micros(beats.p999_us),
        micros(beats.max_us)
    ));
    line(format!(
        "all users {} sessions, {} holds, {} waiting",
        agent.sessions, agent.holds, agent.waiters
    ));
    let mut sorted: Vec<&SessionStatus> = sessions.iter().collect();
    sorted.sort_by(|a, b| (&a.name, a.session).cmp(&(&b.name, b.session)));
    if sorted.is_empty() {
        out.push_str("\nYou have no sessions here.\n");
        return out;
    }
    let _infallible = write!(out, "\nSessions\n{}", session_table(&sorted).render(coloured));
    let holds = hold_table(&sorted);
    if !holds.is_empty() {
        let _infallible = write!(out, "\nHolds\n{}", holds.render(coloured));
    }
    out
}

fn session_table(sessions: &[&SessionStatus]) -> Table {
    let mut table =
        Table::new(&["SESSION", "NAME", "SURFACE", "UID", "PID", "TETHER", "ROLE", "HOLDS"]);
    for session in sessions {
        table.row([
            Cell::from(session.session),
            Cell::from(&session.name),
            Cell::from(&session.surface),
            Cell::from(session.uid),
            Cell::from(or_dash(session.pid)),
            Cell::from(word(&session.tether)),
            Cell::from(word(&session.role)),
            Cell::from(session.holds.len()),
        ]);
    }
    table
}

fn hold_table(sessions: &[&SessionStatus]) -> Table {
    let mut table = Table::new(&["RESOURCE", "STATE", "TOKEN", "VALID FOR", "HELD BY", "HOLD"]);
    for (session, hold) in sessions.iter().flat_map(|s| s.holds.iter().map(move |hold| (s, hold))) {
        table.row([
            Cell::from(format!("{}/{}", hold.kind, hold.name)),
            state(hold),
            Cell::from(or_dash(hold.token)),
            Cell::from(match hold.valid_ms {
                0 => "-".to_owned(),
                ms => brief(Duration::from_millis(ms)),
            }),
            Cell::from(&session.name),
            Cell::from(hold.hold),
        ]);
    }
    table
}

fn state(hold: &HoldView) -> Cell {
    let look = match hold.state {
        HoldState::Held => Look::Good,
        HoldState::Waiting | HoldState::Jeopardy => Look::Warning,
        HoldState::Released => Look::Plain,
        HoldState::Lost => Look::Bad,
    };
    match (hold.state, hold.position) {
        (HoldState::Waiting, Some(position)) => Cell::new(format!("waiting, {position}."), look),
        (state, _) => Cell::new(word(&state), look),
    }
}

/// The word on the wire of an enum's value.
pub(super) fn word(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => "?".to_owned(),
    }
}

pub(super) fn micros(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} µs"),
        1_000..1_000_000 => format!("{}.{} ms", us / 1_000, us % 1_000 / 100),
        _ => brief(Duration::from_micros(us)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_status_is_readable() {
        let status = serde_json::from_value(json!({
            "agent": {"version": "0.1.0", "pid": 7, "host_id": "h", "host": "web-1",
                "boot_id": uuid::Uuid::nil(), "uptime_ms": 61_000, "sessions": 2, "holds": 1,
                "waiters": 1},
            "upstream": {"kind": "redis", "state": "down", "guarantee": "single Redis",
                "address": "redis://db-1:6379/0", "last_error": "refused",
                "beat_lateness": {"beats": 9, "max_us": 2_300_000, "p50_us": 12, "p999_us": 1_250}},
            "sessions": [{"session": uuid::Uuid::nil(), "name": "nightly", "surface": "cli",
                "tenant": "default", "project": "default", "uid": 1000, "pid": 12,
                "tether": "connection", "role": "none", "streams": 1,
                "holds": [
                    {"hold": uuid::Uuid::nil(), "kind": "leader", "name": "cleanup",
                     "state": "jeopardy", "token": 17, "ttl_ms": 30_000, "valid_ms": 9_500,
                     "valid_until_boottime_ns": 1, "slot": 0},
                    {"hold": uuid::Uuid::nil(), "kind": "semaphore", "name": "gpu",
                     "state": "waiting", "ttl_ms": 30_000, "valid_ms": 0,
                     "valid_until_boottime_ns": 0, "slot": 1, "position": 2}]}]
        }))
        .expect("a status");
        assert_eq!(
            render(&status, false),
            "\
agent     0.1.0 on web-1, pid 7, up 1m1s
upstream  redis down at redis://db-1:6379/0, single Redis
          last error: refused
beats     9 sent, late by 12 µs (half), 1.2 ms (999 of 1000), 2.3s (worst)
all users 2 sessions, 1 holds, 1 waiting

Sessions
  SESSION                               NAME     SURFACE  UID   PID  TETHER      ROLE  HOLDS
  00000000-0000-0000-0000-000000000000  nightly  cli      1000  12   connection  none  2

Holds
  RESOURCE        STATE        TOKEN  VALID FOR  HELD BY  HOLD
  leader/cleanup  jeopardy     17     9.5s       nightly  00000000-0000-0000-0000-000000000000
  semaphore/gpu   waiting, 2.  -      -          nightly  00000000-0000-0000-0000-000000000000
"
        );
    }
}
