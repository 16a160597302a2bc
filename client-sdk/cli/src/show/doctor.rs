//! `tenure doctor`: what is wrong, and the way out.

mod host;

use std::fmt::Write;

use serde::Serialize;
use tenure::client::{CallError, Client};
use tenure::page::Page;
use tenure::wire::{Register, Status, Tether, UpstreamState};

use super::answer;
use super::status::{micros, upstream_look, word};
use super::table::{Look, visible};
use crate::args::DoctorArgs;
use crate::exit;
use crate::failure::Failure;
use crate::output::{coloured, print, print_json};

/// Beats later than this endanger short holds: the agent promises to be this punctual while the
/// machine has CPU, µs.
const LATENESS_MAX_US: u64 = 50_000;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Ok,
    Warn,
    Fail,
}

/// One line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Check {
    check: &'static str,
    verdict: Verdict,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    way_out: Option<String>,
}

impl Check {
    fn ok(check: &'static str, found: impl Into<String>) -> Check {
        Check { check, verdict: Verdict::Ok, found: found.into(), way_out: None }
    }

    fn warn(check: &'static str, found: impl Into<String>, way_out: impl Into<String>) -> Check {
        let way_out = Some(way_out.into());
        Check { check, verdict: Verdict::Warn, found: found.into(), way_out }
    }

    fn fail(check: &'static str, found: impl Into<String>, way_out: impl Into<String>) -> Check {
        Check { verdict: Verdict::Fail, ..Check::warn(check, found, way_out) }
    }
}

/// All lines.
#[derive(Debug, Serialize)]
struct Report {
    checks: Vec<Check>,
}

/// Checks everything that can be checked from here; returns the exit status.
///
/// # Errors
///
/// When the report cannot be printed.
pub(crate) async fn doctor(args: &DoctorArgs, client: &Client) -> Result<u8, Failure> {
    let mut checks = vec![host::socket(client.path())];
    let status = answer(client, client.status()).await;
    match &status {
        Ok(status) => {
            checks.push(reached(status));
            checks.push(version(status));
            checks.push(host::boot(status.agent.boot_id));
            checks.push(ready(answer(client, client.readyz()).await));
            checks.push(upstream(status));
            checks.push(beats(status));
            checks.push(page(client).await);
        }
        Err(error) => {
            let way_out = "start it with `tenured` (as a service: `systemctl start tenured`), or \
                           name its socket with --socket or TENURE_SOCKET";
            checks.push(Check::fail("agent", error.to_string(), way_out));
        }
    }
    checks.push(host::clock());
    checks.push(host::pidfd());
    let failed = checks.iter().any(|check| check.verdict == Verdict::Fail);
    let report = Report { checks };
    if args.output.json {
        print_json(&report)?;
    } else {
        print(&render(&report, coloured()))?;
    }
    Ok(match (status.is_err(), failed) {
        (true, _) => exit::UNAVAILABLE,
        (false, true) => exit::REFUSED,
        (false, false) => 0,
    })
}

fn render(report: &Report, coloured: bool) -> String {
    let mut out = String::new();
    for Check { check, verdict, found, way_out } in &report.checks {
        let look = match verdict {
            Verdict::Ok => Look::Good,
            Verdict::Warn => Look::Warning,
            Verdict::Fail => Look::Bad,
        };
        let mark = look.paint(&format!("{:<4}", word(verdict)), coloured);
        let found = visible(found);
        let way_out = way_out.as_ref().map(|way| format!("; {way}")).unwrap_or_default();
        let _infallible = writeln!(out, "{mark}  {check:<9} {found}{way_out}");
    }
    out
}

fn reached(status: &Status) -> Check {
    let agent = &status.agent;
    Check::ok("agent", format!("answers, pid {}, host {}", agent.pid, agent.host))
}

fn version(status: &Status) -> Check {
    let (theirs, ours) = (&status.agent.version, env!("CARGO_PKG_VERSION"));
    if theirs == ours {
        return Check::ok("version", format!("{ours}, as the agent's"));
    }
    let found = format!("the agent has {theirs}, this command {ours}");
    Check::warn("version", found, "install both from one release")
}

fn ready(answer: Result<(), CallError>) -> Check {
    match answer {
        Ok(()) => Check::ok("ready", "the agent grants holds"),
        Err(error) => {
            Check::fail("ready", error.to_string(), "see the line about the upstream below")
        }
    }
}

fn upstream(status: &Status) -> Check {
    let upstream = &status.upstream;
    let mut found =
        format!("{} {}, {}", upstream.kind, upstream_look(upstream.state).0, upstream.guarantee);
    if let (Some(error), false) = (&upstream.last_error, upstream.state == UpstreamState::Up) {
        let _infallible = write!(found, "; last error: {error}");
    }
    match upstream.state {
        UpstreamState::Up => Check::ok("upstream", found),
        UpstreamState::Connecting => {
            Check::warn("upstream", found, "wait a moment and run this again")
        }
        UpstreamState::Quarantined => Check::warn(
            "upstream",
            found,
            "wait one ttl: holds of before the agent's start may still be valid",
        ),
        UpstreamState::Down => Check::fail(
            "upstream",
            found,
            "check that the server runs, and its URL and secret with `tenured check-config`",
        ),
    }
}

fn beats(status: &Status) -> Check {
    let beats = &status.upstream.beat_lateness;
    let found = format!("999 of 1000 at most {} late", micros(beats.p999_us));
    if beats.p999_us <= LATENESS_MAX_US {
        Check::ok("beats", found)
    } else {
        let way_out =
            "the machine starves the agent of CPU: give it a higher weight, or longer ttls";
        Check::warn("beats", found, way_out)
    }
}

/// Registers for a moment, since only a session has a page.
async fn page(client: &Client) -> Check {
    let register = Register {
        name: Some("tenure-doctor".to_owned()),
        surface: Some("cli".to_owned()),
        tether: Some(Tether::Process),
        ..Register::default()
    };
    let registered = match answer(client, client.register(&register)).await {
        Ok(registered) => registered,
        Err(error) => {
            let way_out = "see `[[allow]]` in the agent's configuration";
            return Check::fail("session", error.to_string(), way_out);
        }
    };
    let page = Page::open(registered.page.as_ref(), registered.session, registered.boot_id);
    // The session ends with this process at the latest.
    let _released = answer(client, client.release(registered.session, None)).await;
    match page {
        Ok(_) => Check::ok("page", format!("readable at {}", registered.page)),
        Err(error) => Check::warn(
            "page",
            error.to_string(),
            "`tenure run` asks the agent instead; mount its runtime directory here, or let it give \
             files away (CAP_CHOWN)",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_the_way_out() {
        let report = Report {
            checks: vec![Check::ok("agent", "answers"), Check::fail("page", "gone", "mount it")],
        };
        assert_eq!(
            render(&report, false),
            "ok    agent     answers\nfail  page      gone; mount it\n"
        );
        assert!(render(&report, true).contains("\x1b[31mfail\x1b[0m"));
        assert_eq!(
            serde_json::to_string(&report).expect("JSON"),
            r#"{"checks":[{"check":"agent","verdict":"ok","found":"answers"},{"check":"page","verdict":"fail","found":"gone","way_out":"mount it"}]}"#
        );
    }

    #[test]
    fn late_beats_are_a_warning() {
        let mut status: Status = serde_json::from_value(serde_json::json!({
            "agent": {"version": "9.9.9", "pid": 7, "host_id": "h", "host": "web-1",
                "boot_id": uuid::Uuid::nil(), "uptime_ms": 1, "sessions": 0, "holds": 0,
                "waiters": 0},
            "upstream": {"kind": "redis", "state": "up", "guarantee": "single Redis",
                "beat_lateness": {"beats": 9, "max_us": 9, "p50_us": 1, "p999_us": 2}},
            "sessions": []
        }))
        .expect("a status");
        assert_eq!(beats(&status).verdict, Verdict::Ok);
        assert_eq!(upstream(&status).verdict, Verdict::Ok);
        assert_eq!(version(&status).verdict, Verdict::Warn);
        status.upstream.beat_lateness.p999_us = 60_000;
        status.upstream.state = UpstreamState::Down;
        assert_eq!(beats(&status).verdict, Verdict::Warn);
        assert_eq!(upstream(&status).verdict, Verdict::Fail);
    }
}
