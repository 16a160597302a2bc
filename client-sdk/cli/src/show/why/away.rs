//! The agent's own knowledge of a resource of which its store does not tell.

use std::fmt::Write;
use std::time::Duration;

use tenure::wire::{
    DEFAULT_TENANT, HoldState, HoldView, Problem, SessionStatus, Status, UpstreamState,
};

use super::LISTED;
use crate::args::ResourceName;
use crate::failure::{brief, ordinal};
use crate::show::status::down;
use crate::show::table::{or_dash, shown};

/// The beginning of what an agent says of a store that answers, and refuses.
const REFUSES: &str = "the upstream refuses ";

/// Explains a resource by what goes through this agent, and by what the agent said of its store.
pub(super) fn explain(args: &ResourceName, status: &Status, problem: Option<&Problem>) -> String {
    let ResourceName { kind, name, tenant, .. } = args;
    let mut out = format!("{kind}/{}: nobody can tell who holds it\n", shown(name));
    let refusal = problem
        .map(|problem| problem.detail.as_str())
        .filter(|detail| status.upstream.state == UpstreamState::Up && detail.starts_with(REFUSES));
    let store = refusal.map_or_else(|| down(&status.upstream), shown);
    let _ = writeln!(out, "  store    {store}");
    if let Some(error) = &status.upstream.last_error {
        let _ = writeln!(out, "           {}", shown(error));
    }
    let is_meant =
        |session: &&SessionStatus| session.tenant == tenant.as_deref().unwrap_or(DEFAULT_TENANT);
    let sessions = status.sessions.iter().filter(is_meant);
    let holds = sessions.flat_map(|session| session.holds.iter().map(move |hold| (session, hold)));
    let mut here: Vec<_> =
        holds.filter(|(_, hold)| hold.kind == *kind && hold.name == *name).collect();
    // Holders come before waiters.
    here.sort_by_key(|(_, hold)| (hold.token.is_none(), hold.position));
    for (session, hold) in here.iter().take(2 * LISTED) {
        let _ = writeln!(out, "  here     {}", line(session, hold));
    }
    if here.is_empty() {
        out.push_str("  here     you neither hold it nor wait for it through this agent\n");
    }
    super::rest(&mut out, here.len() as u64, here.len().min(2 * LISTED));
    out.push_str("  next     tenure doctor\n  next     tenure status --watch\n");
    out
}

fn line(session: &SessionStatus, hold: &HoldView) -> String {
    let who = format!("{}, pid {}", shown(&session.name), or_dash(session.pid));
    let time = |ms: u64| brief(Duration::from_millis(ms));
    let since = hold.since_ms.map(|ms| format!(" for {}", time(ms))).unwrap_or_default();
    let valid = time(hold.valid_ms);
    match hold.state {
        HoldState::Held => format!("held by {who}{since}, valid for {valid} more"),
        HoldState::Jeopardy => format!("held by {who}{since}, not renewed: it ends in {valid}"),
        _ => match hold.position {
            Some(position) => format!("waiting, {}: {who}", ordinal(position)),
            None => format!("waiting: {who}"),
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tenure::wire::{Code, Kind};

    use super::*;
    use crate::args::OutputArgs;

    #[test]
    fn what_goes_through_this_agent_is_told_without_the_store() {
        let nil = uuid::Uuid::nil();
        let hold = |state: &str, more: serde_json::Value| {
            let mut hold = json!({"hold": nil, "kind": "leader", "name": "a", "state": state,
                "ttl_ms": 30_000, "valid_ms": 0, "valid_until_boottime_ns": 0, "slot": 0});
            let more = more.as_object().cloned().expect("an object");
            hold.as_object_mut().expect("an object").extend(more);
            hold
        };
        let session = |tenant: &str, hold: serde_json::Value| {
            json!({"session": nil, "name": "nightly", "surface": "cli", "tenant": tenant,
                "project": "default", "uid": 1000, "pid": 12, "tether": "connection",
                "role": "none", "streams": 1, "holds": [hold]})
        };
        let jeopardy =
            hold("jeopardy", json!({"token": 7, "since_ms": 22_320_000, "valid_ms": 9_500}));
        let status: Status = serde_json::from_value(json!({
            "agent": {"version": "0.1.0", "pid": 7, "host_id": "h", "host": "web-1",
                "boot_id": nil, "uptime_ms": 61_000, "sessions": 2, "holds": 1, "waiters": 1},
            "upstream": {"kind": "redis", "state": "down", "guarantee": "single Redis",
                "since_ms": 12_000, "last_error": "refused",
                "beat_lateness": {"beats": 9, "max_us": 2, "p50_us": 1, "p999_us": 1}},
            "sessions": [session("default", hold("waiting", json!({"position": 2}))),
                session("default", jeopardy.clone()), session("other", jeopardy)],
        }))
        .expect("a status");
        let mut args = ResourceName {
            kind: Kind::Leader,
            name: "a".to_owned(),
            tenant: None,
            output: OutputArgs { json: false },
        };
        assert_eq!(
            explain(&args, &status, None),
            "\
leader/a: nobody can tell who holds it
  store    the upstream is down for 12s
           refused
  here     held by nightly, pid 12 for 6h12m, not renewed: it ends in 9.5s
  here     waiting, 2nd: nightly, pid 12
  next     tenure doctor
  next     tenure status --watch
"
        );
        args.name = "b".to_owned();
        let told = explain(&args, &status, None);
        assert!(told.contains("you neither hold it nor wait for it"), "{told}");
        // A store that answers and refuses is not said to be silent.
        let refuses = "the upstream refuses (Redis: the key 'leader:b' is a hash)";
        let problem = Problem::new(Code::UpstreamUnavailable, refuses);
        let is_told = |status: &Status| explain(&args, status, Some(&problem)).contains(refuses);
        assert!(!is_told(&status), "it is down");
        let mut up = status;
        up.upstream.state = UpstreamState::Up;
        assert!(is_told(&up));
        let silent = Problem::new(Code::UpstreamUnavailable, "the upstream is not available (x)");
        let told = explain(&args, &up, Some(&silent));
        assert!(told.contains("store    the upstream is not available\n"), "{told}");
    }
}
