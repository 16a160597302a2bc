//! `tenure status`.

use std::time::Duration;

use tenure::client::Client;
use tenure::wire::{GatewayStatus, LatenessStatus, Status, UpstreamState, UpstreamStatus};
use tokio::time::sleep;

use super::ask;
use super::holds::{self, Choice};
use super::table::{Look, Screen, visible};
use crate::args::StatusArgs;
use crate::exit;
use crate::failure::{Failure, brief};
use crate::output::{print, print_json};

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
    let choice = Choice { filter: args.filter.as_deref(), verbose: args.verbose };
    loop {
        let mut status = ask(client, "status", client.status()).await?;
        if let Some(glob) = choice.filter {
            holds::narrow(&mut status.sessions, glob);
        }
        if args.output.json {
            print_json(&status)?;
        } else {
            let screen = Screen::of_stdout();
            // Home, and clear what was below: less flicker than an empty screen in between.
            let home = if args.watch && screen.coloured { "\x1b[H\x1b[J" } else { "" };
            print(&format!("{home}{}", render(&status, &choice, screen)))?;
        }
        if !args.watch {
            return is_up(&status.upstream);
        }
        #[expect(clippy::disallowed_methods, reason = "the pace of a display")]
        sleep(WATCH_EVERY).await;
    }
}

/// Fails while the upstream is away, for whoever goes by the exit status.
fn is_up(upstream: &UpstreamStatus) -> Result<(), Failure> {
    if upstream.state != UpstreamState::Down {
        return Ok(());
    }
    let line = format!(
        "status: {}: nothing is granted, and what is held runs out; see `tenure doctor`",
        down(upstream)
    );
    Err(Failure::new(exit::REFUSED, line))
}

/// The part that is away, and since when. A gateway's store is for the gateway's people to mend.
pub(super) fn down(upstream: &UpstreamStatus) -> String {
    let what = match &upstream.behind {
        Some(kind) => format!("the gateway's store ({})", visible(kind)),
        None => "the upstream".to_owned(),
    };
    match (upstream.state, upstream.since_ms) {
        (UpstreamState::Up, _) => format!("{what} is not available"),
        (_, Some(ms)) => format!("{what} is down for {}", brief(Duration::from_millis(ms))),
        (_, None) => format!("{what} is down"),
    }
}

/// The guarantee of the store, in more words where other hosts have no part in it.
pub(super) fn guarantee(upstream: &UpstreamStatus) -> String {
    let guarantee = visible(&upstream.guarantee);
    match upstream.kind.as_str() {
        "embedded" => format!("{guarantee}: other hosts do not respect what is held here"),
        _ => guarantee.to_string(),
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

fn render(status: &Status, choice: &Choice<'_>, screen: Screen) -> String {
    let coloured = screen.coloured;
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
    let state = format!("{}{}", look.paint(word, coloured), since(upstream));
    let (kind, at) = (&upstream.kind, at.unwrap_or_default());
    line(match &upstream.behind {
        None => format!("upstream  {kind} {state}{at}, {}", guarantee(upstream)),
        Some(store) => format!("upstream  {kind} up{at}, its store ({}) {state}", visible(store)),
    });
    if let Some(error) = &upstream.last_error {
        let ago =
            upstream.last_error_ms.map(|ms| format!(", {} ago", brief(Duration::from_millis(ms))));
        line(format!("          last error{}: {}", ago.unwrap_or_default(), visible(error)));
    }
    for (number, gateway) in upstream.gateways.iter().enumerate() {
        let title = if number == 0 { "gateways" } else { "" };
        line(format!("{title:10}{}", gateway_line(gateway)));
    }
    line(format!("beats     {}", lateness(&upstream.beat_lateness)));
    line(format!(
        "all users {}, {}, {} waiting",
        counted(agent.sessions, "session"),
        counted(agent.holds, "hold"),
        agent.waiters
    ));
    out.push_str(&holds::render(sessions, choice, screen));
    out
}

/// One of several gateways.
fn gateway_line(gateway: &GatewayStatus) -> String {
    let address = visible(&gateway.address);
    match (&gateway.away, gateway.in_use) {
        (None, true) => format!("{address} in use"),
        (None, false) => address.to_string(),
        (Some(why), _) => {
            let ms = gateway.away_ms.unwrap_or_default();
            format!("{address} away for {}: {}", brief(Duration::from_millis(ms)), visible(why))
        }
    }
}

/// ` for 3m (was down 12s before)`.
fn since(upstream: &UpstreamStatus) -> String {
    let Some(ms) = upstream.since_ms else { return String::new() };
    let since = format!(" for {}", brief(Duration::from_millis(ms)));
    match upstream.outage {
        Some(outage) if upstream.state == UpstreamState::Up => {
            format!("{since} (was down {} before)", brief(Duration::from_millis(outage.lasted_ms)))
        }
        _ => since,
    }
}

/// `1 hold`, `2 holds`.
pub(super) fn counted(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// The word on the wire of an enum's value.
pub(super) fn word(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => "?".to_owned(),
    }
}

/// Count and lateness of the beats.
pub(super) fn lateness(beats: &LatenessStatus) -> String {
    // Fewer than a thousand have no such part.
    let rare = match beats.beats {
        0..1_000 => String::new(),
        _ => format!(", p99.9 {}", micros(beats.p999_us)),
    };
    let (sent, p50, worst) = (beats.beats, micros(beats.p50_us), micros(beats.max_us));
    format!("{sent} sent, late by p50 {p50}{rare}, worst {worst}")
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
    fn a_gateway_without_its_store_is_not_called_up() {
        let status: Status = serde_json::from_value(json!({
            "agent": {"version": "0.1.0", "pid": 7, "host_id": "h", "host": "web-1",
                "boot_id": uuid::Uuid::nil(), "uptime_ms": 1, "sessions": 0, "holds": 0,
                "waiters": 0},
            "upstream": {"kind": "gateway", "state": "down", "behind": "redis", "guarantee": "g",
                "address": "http://gw:8740", "since_ms": 12_000, "last_error": "refused",
                "gateways": [{"address": "gw:8740", "in_use": true},
                    {"address": "gx:1", "in_use": false, "away": "refused", "away_ms": 12_000}],
                "beat_lateness": {"beats": 0, "max_us": 0, "p50_us": 0, "p999_us": 0}},
            "sessions": []
        }))
        .expect("a status");
        let shown = render(&status, &Choice::default(), Screen::default());
        let line = "\nupstream  gateway up at http://gw:8740, its store (redis) down for 12s\n";
        assert!(shown.contains(line), "{shown}");
        let lines = "\ngateways  gw:8740 in use\n          gx:1 away for 12s: refused\n";
        assert!(shown.contains(lines), "{shown}");
        let failure = is_up(&status.upstream).expect_err("scripts go by it");
        let line = "status: the gateway's store (redis) is down for 12s: nothing is granted";
        assert!(failure.line.starts_with(line), "{}", failure.line);
    }

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
                     "state": "jeopardy", "token": 17, "since_ms": 22_320_000, "ttl_ms": 30_000, "valid_ms": 9_500,
                     "valid_until_boottime_ns": 1, "slot": 0},
                    {"hold": uuid::Uuid::nil(), "kind": "semaphore", "name": "gpu",
                     "state": "waiting", "ttl_ms": 30_000, "valid_ms": 0,
                     "valid_until_boottime_ns": 0, "slot": 1, "position": 2}]}]
        }))
        .expect("a status");
        assert_eq!(
            render(&status, &Choice::default(), Screen::default()),
            "\
agent     0.1.0 on web-1, pid 7, up 1m1s
upstream  redis down at redis://db-1:6379/0, single Redis
          last error: refused
beats     9 sent, late by p50 12 µs, worst 2.3s
all users 2 sessions, 1 hold, 1 waiting

Holds: 1 in jeopardy, 1 waiting
  RESOURCE        STATE         HELD FOR  VALID FOR  NAME     PID
  leader/cleanup  jeopardy      6h12m     9.5s       nightly  12
  semaphore/gpu   waiting, 2nd  -         -          nightly  12
"
        );
    }
}
