//! `tenure doctor`: what is wrong, and the way out.

mod host;
mod latency;

use std::fmt::Write;
use std::time::Duration;

use tenure::client::{CallError, Client};
use tenure::page::{Page, boottime_ns};
use tenure::wire::{
    Check, Code, Diagnosis, Register, Status, Tether, UpstreamState, UpstreamStatus, Verdict,
};

use super::status::{guarantee, lateness, upstream_look, word};
use super::table::{Look, visible};
use super::{answer, silence};
use crate::args::DoctorArgs;
use crate::exit;
use crate::failure::{Failure, brief};
use crate::output::{coloured, print, print_json};

/// Beats later than this endanger short holds: the agent promises to be this punctual while the
/// machine has CPU, µs.
const LATENESS_MAX_US: u64 = 50_000;

/// Fewer beats than this may all be of one standstill, and say nothing of how it goes always.
const BEATS_MIN: u64 = 100;

/// The beginning of the error of a store that answers, and takes no writes.
const REFUSES_WRITES: &str = "it refuses writes: ";

/// Checks everything that can be checked from here, has the agent examine its upstream, and returns
/// the exit status.
///
/// # Errors
///
/// When the report cannot be printed.
pub(crate) async fn doctor(args: &DoctorArgs, client: &Client) -> Result<u8, Failure> {
    let mut checks = vec![host::socket(client.path())];
    let asked_at = boottime_ns();
    let status = tokio::select! {
        status = answer(client, client.status()) => status,
        _ = silence::stopped(client.path()) => {
            Err(CallError::TimedOut { path: client.path().to_owned(), after: Duration::ZERO })
        }
    };
    // Agents of before do not tell.
    let theirs = status.as_ref().ok().and_then(|status| status.agent.boottime_ns);
    let same = theirs.map_or(Ok(()), |theirs| host::same_clock(asked_at, theirs));
    match &status {
        Ok(status) => {
            checks.push(reached(status));
            checks.push(version(status));
            checks.push(host::boot(status.agent.boot_id));
            checks.push(ready(answer(client, client.readyz()).await));
            checks.push(upstream(&status.upstream));
            checks.extend(examination(answer(client, client.doctor()).await));
            checks.push(beats(status));
            let latency = status.upstream.latency.as_ref();
            checks.extend(latency.map(|it| latency::latency(it, super::when::now())));
            checks.push(page(client).await);
        }
        Err(CallError::TimedOut { .. }) => checks.push(silence::check(client.path()).await),
        Err(error) => {
            let remedy = "start it with `tenured` (as a service: `systemctl start tenured`), or \
                          name its socket with --socket or TENURE_SOCKET";
            checks.push(Check::failure("agent", error.to_string(), remedy));
        }
    }
    checks.push(same.map_or_else(host::other_clock, |()| host::clock()));
    checks.push(host::pidfd());
    let failed = checks.iter().any(|check| check.verdict == Verdict::Failure);
    let diagnosis = Diagnosis { checks };
    if args.output.json {
        print_json(&diagnosis)?;
    } else {
        print(&render(&diagnosis, coloured()))?;
    }
    Ok(match (status.is_err(), failed) {
        (true, _) => exit::UNAVAILABLE,
        (false, true) => exit::REFUSED,
        (false, false) => 0,
    })
}

/// A line for each check, and one below it that says what to do.
fn render(diagnosis: &Diagnosis, coloured: bool) -> String {
    let words = |check: &Check| word(&check.verdict).len();
    let verdict_width = diagnosis.checks.iter().map(words).max().unwrap_or(0);
    let names = diagnosis.checks.iter().map(|check| visible(&check.name).chars().count());
    let name_width = names.max().unwrap_or(0);
    let indent = verdict_width + name_width + 4;
    let mut out = String::new();
    for Check { name, verdict, detail, remedy } in &diagnosis.checks {
        let look = match verdict {
            Verdict::Ok => Look::Good,
            Verdict::Warning | Verdict::Unknown => Look::Warning,
            Verdict::Failure => Look::Bad,
        };
        let mark = look.paint(&format!("{:<verdict_width$}", word(verdict)), coloured);
        let (name, detail) = (visible(name), visible(detail));
        let _infallible = writeln!(out, "{mark}  {name:<name_width$}  {detail}");
        if let Some(remedy) = remedy {
            let _infallible = writeln!(out, "{:indent$}→ {}", "", visible(remedy));
        }
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
    let detail = format!("the agent has {theirs}, this command {ours}");
    Check::warning("version", detail, "install both from one release")
}

fn ready(answer: Result<(), CallError>) -> Check {
    match answer {
        Ok(()) => Check::ok("ready", "the agent answers requests"),
        Err(CallError::Refused(problem)) if problem.code == Code::UpstreamUnavailable => {
            let remedy = "what is held goes on; do what the detail says";
            Check::failure("ready", problem.detail, remedy)
        }
        Err(error) => Check::failure(
            "ready",
            said(&error),
            "look into the agent's log, and restart it: holds survive a restart",
        ),
    }
}

fn upstream(upstream: &UpstreamStatus) -> Check {
    if let Some(store) = &upstream.behind {
        return behind(upstream, store);
    }
    let mut detail = format!("{} {}", upstream.kind, upstream_look(upstream.state).0);
    if let Some(address) = &upstream.address {
        let _infallible = write!(detail, " at {address}");
    }
    let _infallible = write!(detail, ", {}", guarantee(upstream));
    if let Some(error) = &upstream.last_error {
        let ago = upstream.last_error_ms.map(|ms| brief(Duration::from_millis(ms)));
        let ago = ago.map(|ago| format!(" {ago} ago")).unwrap_or_default();
        let sort =
            if upstream.state == UpstreamState::Up { "the last error was" } else { "last error" };
        let _infallible = write!(detail, "; {sort}{ago}: {error}");
    }
    match upstream.state {
        UpstreamState::Up => Check::ok("upstream", detail),
        UpstreamState::Connecting => {
            Check::warning("upstream", detail, "wait a moment and run this again")
        }
        UpstreamState::Quarantined => Check::warning(
            "upstream",
            detail,
            "wait one ttl: holds that the agent or its upstream lost may still be valid",
        ),
        UpstreamState::Down if refuses_writes(upstream) => Check::failure(
            "upstream",
            detail,
            "it can be reached: mend what the error says, in the store; the agent goes on trying, and holds stay valid until \
             their valid-until",
        ),
        UpstreamState::Down => {
            let what = match &upstream.address {
                Some(address) => format!("check that {address} can be reached from this host"),
                None => "check that the server runs".to_owned(),
            };
            let remedy = format!(
                "{what}, and the agent's upstream and upstream_secret_file with `tenured \
                 check-config`; the agent goes on trying, and holds stay valid until their \
                 valid-until"
            );
            Check::failure("upstream", detail, remedy)
        }
    }
}

/// True if the store answers, and takes no writes.
fn refuses_writes(upstream: &UpstreamStatus) -> bool {
    upstream.last_error.as_ref().is_some_and(|error| error.starts_with(REFUSES_WRITES))
}

/// A gateway that is reached, and its store is not.
fn behind(upstream: &UpstreamStatus, store: &str) -> Check {
    let at = upstream.address.as_ref().map(|address| format!(" at {address}"));
    let since = upstream.since_ms.map(|ms| format!(" for {}", brief(Duration::from_millis(ms))));
    let (at, since) = (at.unwrap_or_default(), since.unwrap_or_default());
    let error = upstream.last_error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
    let detail = format!("the gateway{at} answers, its store ({store}) is down{since}{error}");
    let remedy = "mend that where the gateway runs, and see its log; this agent and the gateway go on trying, \
                  and holds stay valid until their valid-until";
    Check::failure("upstream", detail, remedy)
}

/// The agent's examination of its upstream, or why it did not look.
fn examination(answer: Result<Diagnosis, CallError>) -> Vec<Check> {
    let error = match answer {
        Ok(diagnosis) => return diagnosis.checks,
        Err(error) => error,
    };
    let code = match &error {
        CallError::Refused(problem) => Some(problem.code),
        _ => None,
    };
    let remedy = match code {
        Some(Code::Forbidden) => "run `sudo tenure doctor` for a look at the upstream's settings",
        Some(Code::NotFound) => {
            "the agent is older than this command: install both from one release"
        }
        _ => "run this again in a moment",
    };
    vec![Check::unknown("examination", said(&error), remedy)]
}

/// An error in a report that is itself what its reader is told to look at.
fn said(error: &CallError) -> String {
    match error {
        CallError::TimedOut { after, .. } => format!("no answer within {after:?}"),
        error => error.to_string(),
    }
}

fn beats(status: &Status) -> Check {
    let beats = &status.upstream.beat_lateness;
    let detail = lateness(beats);
    if beats.p999_us <= LATENESS_MAX_US {
        Check::ok("beats", detail)
    } else if beats.p50_us <= LATENESS_MAX_US || beats.beats < BEATS_MIN {
        let remedy = "now and then, not always: the agent was stopped, or the machine was paused, \
                      asleep or busy for a while; the agent's log says when it stood still";
        Check::warning("beats", detail, remedy)
    } else {
        let remedy =
            "the machine starves the agent of CPU: give it a higher weight, or longer ttls";
        Check::warning("beats", detail, remedy)
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
            return Check::failure("session", said(&error), no_session(&error));
        }
    };
    let page = Page::open(registered.page.as_ref(), registered.session, registered.boot_id);
    // The session ends with this process at the latest.
    let _released = answer(client, client.release(registered.session, None)).await;
    match page {
        Ok(_) => Check::ok("page", format!("readable at {}", registered.page)),
        Err(error) => Check::warning(
            "page",
            error.to_string(),
            "`tenure run` asks the agent instead; mount its runtime directory here, or let it give \
             files away (CAP_CHOWN)",
        ),
    }
}

/// The remedy when the agent refuses a session.
fn no_session(error: &CallError) -> &'static str {
    let CallError::Refused(problem) = error else { return "run this again in a moment" };
    match problem.code {
        Code::Unauthorized | Code::Forbidden => "see `[[allow]]` in the agent's configuration",
        Code::QuotaExceeded => {
            "end some of your sessions (`tenure status`), or have `[limits]` or `[[allow]]` raised in the agent's configuration"
        }
        Code::UpstreamUnavailable => {
            "do what the detail says: make space where the agent's runtime_dir and state_dir are, or make them writable"
        }
        _ => "do what the detail says, and run this again",
    }
}

#[cfg(test)]
mod tests {
    use tenure::wire::Problem;

    use super::*;

    #[test]
    fn a_remedy_has_a_line_of_its_own() {
        let checks = vec![
            Check::ok("agent", "answers"),
            Check::failure("redis.eviction", "volatile-lru\x1b[2J", "mend it"),
            Check::unknown("page", "gone", "look"),
        ];
        let diagnosis = Diagnosis { checks };
        assert_eq!(
            render(&diagnosis, false),
            "\
ok       agent           answers
failure  redis.eviction  volatile-lru\u{fffd}[2J
                         → mend it
unknown  page            gone
                         → look
"
        );
        assert!(render(&diagnosis, true).contains("\x1b[31mfailure\x1b[0m"));
    }

    fn status() -> Status {
        serde_json::from_value(serde_json::json!({
            "agent": {"version": "9.9.9", "pid": 7, "host_id": "h", "host": "web-1",
                "boot_id": uuid::Uuid::nil(), "uptime_ms": 1, "sessions": 0, "holds": 0,
                "waiters": 0},
            "upstream": {"kind": "redis", "state": "up", "guarantee": "single Redis",
                "address": "redis://db-1:6379/0",
                "beat_lateness": {"beats": 9, "max_us": 9, "p50_us": 1, "p999_us": 2}},
            "sessions": []
        }))
        .expect("a status")
    }

    #[test]
    fn the_way_to_a_session_is_that_of_its_refusal() {
        let way = |code| no_session(&CallError::Refused(Box::new(Problem::new(code, "no"))));
        assert!(way(Code::UpstreamUnavailable).contains("make space"));
        assert!(way(Code::Forbidden).contains("[[allow]]"));
        assert!(way(Code::QuotaExceeded).contains("end some of your sessions"));
        assert!(!way(Code::Stopping).contains("[[allow]]"));
    }

    #[test]
    fn an_error_of_before_has_its_time() {
        let mut status = status().upstream;
        status.last_error = Some("connection refused".to_owned());
        status.last_error_ms = Some(4000);
        let check = upstream(&status);
        assert_eq!(check.verdict, Verdict::Ok);
        let told = "; the last error was 4.0s ago: connection refused";
        assert!(check.detail.ends_with(told), "{}", check.detail);
    }

    #[test]
    fn late_beats_are_a_warning() {
        let mut status = status();
        assert_eq!(beats(&status).verdict, Verdict::Ok);
        assert_eq!(beats(&status).detail, "9 sent, late by p50 1 µs, worst 9 µs");
        assert_eq!(version(&status).verdict, Verdict::Warning);
        let remedy = |status: &Status| {
            let check = beats(status);
            assert_eq!(check.verdict, Verdict::Warning);
            check.remedy.expect("a way out")
        };
        // It stood still once.
        status.upstream.beat_lateness.p999_us = 30_000_000;
        assert!(!remedy(&status).contains("CPU"), "{}", remedy(&status));
        // All few beats since it was started are of that time.
        status.upstream.beat_lateness.p50_us = 60_000;
        assert!(!remedy(&status).contains("CPU"), "{}", remedy(&status));
        status.upstream.beat_lateness.beats = 100;
        assert!(remedy(&status).contains("CPU"), "{}", remedy(&status));
    }

    #[test]
    fn an_upstream_that_is_down_is_named_with_its_error_and_the_way_out() {
        let mut status = status().upstream;
        assert_eq!(upstream(&status).verdict, Verdict::Ok);
        status.state = UpstreamState::Down;
        status.last_error = Some("connection refused".to_owned());
        let check = upstream(&status);
        assert_eq!(check.verdict, Verdict::Failure);
        assert_eq!(
            check.detail,
            "redis down at redis://db-1:6379/0, single Redis; last error: connection refused"
        );
        let remedy = check.remedy.expect("a way out");
        assert!(remedy.starts_with("check that redis://db-1:6379/0 can be reached"), "{remedy}");
        status.last_error = Some("it refuses writes: Redis refused: OOM".to_owned());
        let remedy = upstream(&status).remedy.expect("a way out");
        assert!(remedy.starts_with("it can be reached: mend what the error says"), "{remedy}");
        status.last_error = Some("connection refused".to_owned());
        status.address = Some("http://gw:8740".to_owned());
        (status.behind, status.since_ms) = (Some("redis".to_owned()), Some(12_000));
        let check = upstream(&status);
        assert_eq!(
            check.detail,
            "the gateway at http://gw:8740 answers, its store (redis) is down for 12s: connection refused"
        );
        let remedy = check.remedy.expect("a way out");
        assert!(remedy.starts_with("mend that where the gateway runs"), "{remedy}");
    }

    #[test]
    fn an_examination_that_was_refused_is_no_failure() {
        for (code, expected) in [
            (Code::Forbidden, "run `sudo tenure doctor`"),
            (Code::NotFound, "the agent is older"),
            (Code::QuotaExceeded, "run this again"),
        ] {
            let refused = CallError::Refused(Box::new(Problem::new(code, "no")));
            let checks = examination(Err(refused));
            assert_eq!(checks[0].verdict, Verdict::Unknown);
            let remedy = checks[0].remedy.clone().expect("a way out");
            assert!(remedy.starts_with(expected), "{remedy}");
        }
        let found = vec![Check::ok("redis.server", "7.0.15")];
        assert_eq!(examination(Ok(Diagnosis { checks: found.clone() })), found);
    }
}
