//! The words of the keeper's refusals, with the way out of each.

use std::time::Duration;

use tenure_core::keeper::{Limit, Refusal, STREAMS_PER_SESSION_MAX, UpstreamError};
use tenure_core::model::{Denial, DenialRule, Failure, Full, Resource, Revocation};
use tenure_stores::redis::FOREIGN_KEY;
use tenure_wire::page::{SLOTS, SLOTS_MAX};
use tenure_wire::{Code, Holder, LostReason, Problem, brief};

use crate::heart::CallError;

/// The field that keeps a hold after its end.
const AT_LEAST: &str = "hold_at_least_ms";
/// When to try again what a limit or the upstream refused, ms.
const RETRY_AFTER_MS: u64 = 1000;

/// The problem that a caller of the heart is told.
pub(super) fn problem(error: &CallError) -> Problem {
    match error {
        CallError::Refused(refusal) => of(refusal),
        CallError::Gone => {
            Problem::new(Code::Stopping, "the agent is stopping; connect again when it is back")
        }
    }
}

fn of(refusal: &Refusal) -> Problem {
    let field = match refusal {
        Refusal::Unwatchable => Some("tether".to_owned()),
        Refusal::RequestReused { .. } => Some("request".to_owned()),
        _ => None,
    };
    Problem {
        field,
        holder: refusal.holder().cloned(),
        hold: refusal.hold().map(|hold| hold.0),
        limit_changed: refusal.limit_changed(),
        retry_after_ms: retry_after_ms(refusal),
        ..Problem::new(refusal.code(), detail(refusal))
    }
}

fn retry_after_ms(refusal: &Refusal) -> Option<u64> {
    match (refusal, refusal.code()) {
        (
            Refusal::Upstream(UpstreamError::Quarantined(free_in))
            | Refusal::WaitUnanswered { error: UpstreamError::Quarantined(free_in), .. },
            _,
        ) => Some(millis(*free_in)),
        (
            Refusal::Upstream(UpstreamError::Denied(denial))
            | Refusal::WaitUnanswered { error: UpstreamError::Denied(denial), .. }
            | Refusal::CheckpointFailed(Some(Failure::Denied(denial))),
            _,
        ) => match denial.rule {
            DenialRule::Quota(after) => Some(millis(after).max(1)),
            DenialRule::Unauthorized => Some(RETRY_AFTER_MS),
            DenialRule::Forbidden | DenialRule::Invalid => None,
        },
        (Refusal::Barred { left, .. }, _) => Some(millis(*left).max(1)),
        (_, Code::Stopping | Code::QuotaExceeded | Code::UpstreamUnavailable) => {
            Some(RETRY_AFTER_MS)
        }
        _ => None,
    }
}

fn detail(refusal: &Refusal) -> String {
    match refusal {
        Refusal::Stopping => "the agent is stopping; try again when it is back".to_owned(),
        Refusal::Unrecorded(cause) => format!(
            "{cause}, and what is granted now might not survive a restart of the agent; ask its \
             administrator to make space in runtime_dir"
        ),
        Refusal::Upstream(error) | Refusal::WaitUnanswered { error, .. } => upstream(error),
        Refusal::CheckpointFailed(Some(Failure::Denied(denial))) => {
            format!("{}; holds stay valid until their valid-until", denied(denial))
        }
        Refusal::CheckpointFailed(cause) => {
            let cause = cause.as_ref().map_or("a beat is unknown", Failure::cause);
            unavailable(&format!("{cause}; holds stay valid until their valid-until"))
        }
        Refusal::SessionUnknown { session, uid } => {
            format!("there is no session {session} of user {uid}; register first")
        }
        Refusal::SessionEnded { session, why } => {
            format!("session {session} has ended: {why}; register again")
        }
        Refusal::SessionEndedInWait(_) => {
            "the session ended while its caller waited; register again".to_owned()
        }
        Refusal::SessionEndedInCheckpoint(session) => {
            format!("session {session} ended meanwhile; register again")
        }
        Refusal::WrongSecret(session) => format!(
            "the secret is not that of session {session}; use the one its registration returned"
        ),
        Refusal::Unwatchable => {
            "tether is \"process\", but there is no handle on the process that \
             connected: it has ended, or this kernel gives none (before Linux 6.5 none \
             for a process of another container); connect from the process itself, or \
             use \"connection\" or \"keepalive\""
                .to_owned()
        }
        Refusal::Limit(limit) => full(limit),
        Refusal::RequestReused { request, resource } => format!(
            "request {request:?} was used for {resource} already; use a new id for another resource"
        ),
        Refusal::HoldForgotten(hold) => {
            format!("hold {hold} is gone; acquire again with a new request id")
        }
        Refusal::HoldEnded { hold, lost } => {
            let how = lost.map_or("released", LostReason::as_str);
            format!("hold {hold} is gone ({how}); acquire again with a new request id")
        }
        Refusal::TakenAway { resource, reason, .. } => {
            format!("{resource} was granted and taken away again ({reason}); acquire again")
        }
        Refusal::GrantedTooLate { resource, .. } => format!(
            "{resource} was granted, but its max_hold_ms was over before the answer of the upstream came; \
             ask for a longer one"
        ),
        Refusal::WaitLost { resource, reason, .. } => {
            format!("the wait for {resource} ended ({reason}); acquire again")
        }
        Refusal::WaitCancelled(_) => {
            "the wait was cancelled by a release; acquire again with a new request id".to_owned()
        }
        Refusal::WaitTimeout { resource, waited, holder, .. } => {
            let Resource { kind, name, .. } = resource;
            // A client sends the rest of its time-out: 5 s arrive as 4.99 s.
            let waited = brief(*waited + Duration::from_millis(50));
            let held = holder.as_ref().map(|holder| {
                let who = format!("{} on {}", escaped(&holder.name), escaped(&holder.host));
                if let Some(kept) = holder.kept_in_words(None, AT_LEAST) {
                    return format!(": {who} {kept}");
                }
                let since = brief(Duration::from_millis(holder.since_ms));
                format!(": held by {who} for {since}")
            });
            let held = held.unwrap_or_default();
            format!(
                "{resource} was not free within {waited}{held}; wait longer, or see `tenure standing \
                 {kind} {name}`"
            )
        }
        Refusal::Contended { resource, holder, .. } => contended(resource, holder.as_deref()),
        Refusal::Barred { resource, left, revocation } => {
            let Revocation { by, reason, .. } = revocation.as_ref();
            let why = reason.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
            format!(
                "{resource} was taken from this session by {by}{why}; it may have it again in {} s: ask \
                 then, or talk to them",
                left.as_millis().div_ceil(1000)
            )
        }
        Refusal::ContendedByItself { hold, resource, holder } => format!(
            "{resource} is held by this session itself, as hold {hold} with token {}: {} holds are not re-entrant; \
             release that hold first, ask from another session, or wait with behind_own where another task holds it",
            holder.token, resource.kind
        ),
    }
}

fn upstream(error: &UpstreamError) -> String {
    match error {
        UpstreamError::Unavailable(cause) => unavailable(cause),
        UpstreamError::Denied(denial) => denied(denial),
        UpstreamError::TimedOut => unavailable("it gave no answer in time"),
        UpstreamError::Quarantined(free_in) => format!(
            "earlier holds were lost, by the agent or by its upstream, and nothing is granted for another {} ms, in \
             which they may be valid; try again then; `tenure status` says which it is",
            millis(*free_in)
        ),
    }
}

fn unavailable(cause: &str) -> String {
    // An upstream that is not available may have answered: a standby does, and takes no changes.
    let refused = |store: &str| cause.strip_prefix(store)?.strip_prefix(" refused: ");
    let what = if let Some(words) = refused("Redis") {
        let what = format!("the upstream refuses (Redis: {words})");
        // An examination looks at no keys of resources; the words have the way out.
        if cause.starts_with(FOREIGN_KEY) {
            return what;
        }
        what
    } else if let Some(words) = refused("Postgres") {
        format!("the upstream refuses (Postgres: {words})")
    } else if cause.contains(" refuses the connection: ") {
        format!("the upstream refuses ({cause})")
    } else {
        format!("the upstream is not available ({cause})")
    };
    format!("{what}; `tenure doctor` tells more")
}

fn denied(denial: &Denial) -> String {
    let Denial { rule, detail } = denial;
    match rule {
        DenialRule::Unauthorized => {
            format!(
                "the upstream does not let this agent in ({detail}); `tenure doctor` tells more"
            )
        }
        DenialRule::Forbidden | DenialRule::Invalid | DenialRule::Quota(_) => {
            format!("the upstream refuses this agent: {detail}")
        }
    }
}

fn full(limit: &Limit) -> String {
    match limit {
        Limit::SessionsByRule { uid, has, max } => by_rule(*uid, *has, "sessions", *max),
        Limit::HoldsByRule { uid, has, max } => by_rule(*uid, *has, "holds", *max),
        Limit::Sessions(full) => {
            let (limit, max) = match full {
                Full::User(max) => ("sessions_per_uid", max),
                Full::All(max) => ("sessions", max),
            };
            format!(
                "there are {max} sessions already, the most that limits.{limit}_max allows; end some \
                 with POST /v1/release, or raise the limit"
            )
        }
        Limit::Holds { uid, full: Full::User(max) } => format!(
            "uid {uid} has {max} holds, the most that limits.holds_per_uid_max allows; release \
             some, or have the limit raised"
        ),
        Limit::Holds { full: Full::All(max), .. } => format!(
            "there are {max} holds, the most that limits.holds_max allows; try again later, or \
             have the limit raised"
        ),
        Limit::Slots { uid, asked, taken, full } => {
            let (has, limit, max) = match full {
                Full::User(max) => (format!("uid {uid} has"), "holds_per_uid_max", max),
                Full::All(max) => ("there are".to_owned(), "holds_max", max),
            };
            format!(
                "holds is {asked}, and {has} {taken} page slots beyond {SLOTS} a session, of {max} \
                 that limits.{limit} allows; ask for fewer, or end a session that has many"
            )
        }
        Limit::Page { session, slots } => format!(
            "session {session} has {slots} holds, as many as its page has slots; release one, or \
             register a session with more (holds, up to {SLOTS_MAX})"
        ),
        Limit::Streams(session) => format!(
            "session {session} has {STREAMS_PER_SESSION_MAX} event streams open, the most allowed; \
             close one first"
        ),
    }
}

fn by_rule(uid: u32, has: usize, of: &str, max: usize) -> String {
    format!(
        "uid {uid} has {has} {of}, and {of}_max = {max} is the most that the [[allow]] rules of \
         the agent's configuration let it have; end some with POST /v1/release, or ask the \
         administrator of this host for more"
    )
}

fn contended(resource: &Resource, holder: Option<&Holder>) -> String {
    if let Some(holder) = holder
        && let Some(kept) = holder.kept_in_words(None, AT_LEAST)
    {
        let (name, host) = (escaped(&holder.name), escaped(&holder.host));
        return format!(
            "{resource} is not held any more: {name} on {host} {kept}; wait with \"wait\":\"block\" or \"queue\", \
             or try again then"
        );
    }
    match holder {
        Some(holder) => format!(
            "{resource} is held by {:?} on {} for {} ms with token {}; wait with \"wait\":\"block\" or \
             \"queue\", or try again later",
            holder.name, holder.host, holder.since_ms, holder.token
        ),
        None => format!(
            "{resource} is taken; wait with \"wait\":\"block\" or \"queue\", or try again later"
        ),
    }
}

/// A name that another host may have given.
fn escaped(name: &str) -> String {
    tenure_wire::rules::escape(name.chars())
}

/// Whole ms, rounded down.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use tenure_core::model::{ClaimId, SessionId};
    use tenure_wire::Kind;
    use uuid::Uuid;

    use super::*;

    fn said(refusal: &Refusal) -> (String, Option<u64>) {
        let problem = of(refusal);
        (problem.detail, problem.retry_after_ms)
    }

    #[test]
    fn a_limit_is_named_with_its_way_out() {
        let (uid, second) = (1000, Some(1000));
        let session = SessionId(Uuid::nil());
        let slots = |full| Limit::Slots { uid, asked: 64, taken: 300, full };
        for (limit, detail) in [
            (
                Limit::SessionsByRule { uid, has: 2, max: 2 },
                "uid 1000 has 2 sessions, and sessions_max = 2 is the most that the [[allow]] rules of the \
                 agent's configuration let it have; end some with POST /v1/release, or ask the \
                 administrator of this host for more",
            ),
            (
                Limit::Sessions(Full::User(7)),
                "there are 7 sessions already, the most that limits.sessions_per_uid_max allows; end some \
                 with POST /v1/release, or raise the limit",
            ),
            (
                Limit::Holds { uid, full: Full::User(3) },
                "uid 1000 has 3 holds, the most that limits.holds_per_uid_max allows; release some, or have \
                 the limit raised",
            ),
            (
                Limit::Holds { uid, full: Full::All(4) },
                "there are 4 holds, the most that limits.holds_max allows; try again later, or have the limit \
                 raised",
            ),
            (
                slots(Full::User(300)),
                "holds is 64, and uid 1000 has 300 page slots beyond 63 a session, of 300 that \
                 limits.holds_per_uid_max allows; ask for fewer, or end a session that has many",
            ),
            (
                slots(Full::All(400)),
                "holds is 64, and there are 300 page slots beyond 63 a session, of 400 that limits.holds_max \
                 allows; ask for fewer, or end a session that has many",
            ),
            (
                Limit::Page { session, slots: 63 },
                "session 00000000-0000-0000-0000-000000000000 has 63 holds, as many as its page has slots; \
                 release one, or register a session with more (holds, up to 4095)",
            ),
        ] {
            assert_eq!(said(&Refusal::Limit(limit)), (detail.to_owned(), second));
        }
    }

    #[test]
    fn a_wait_that_nobody_decided_says_why() {
        let wait = |error| Refusal::WaitUnanswered {
            hold: ClaimId(Uuid::nil()),
            error,
            limit_changed: None,
        };
        let silent =
            "the upstream is not available (it gave no answer in time); `tenure doctor` tells more";
        assert_eq!(said(&wait(UpstreamError::TimedOut)), (silent.to_owned(), Some(1000)));
        let full = unavailable("Redis refused: OOM command not allowed");
        assert!(
            full.starts_with("the upstream refuses (Redis: OOM command not allowed); "),
            "{full}"
        );
        let foreign = unavailable(&format!("{FOREIGN_KEY}'leader:a' is a hash; rename it"));
        let expected = "the upstream refuses (Redis: the key 'leader:a' is a hash; rename it)";
        assert_eq!(foreign, expected, "it has the way out");
        assert_eq!(of(&wait(UpstreamError::TimedOut)).hold, Some(Uuid::nil()));
        let (detail, retry_after_ms) =
            said(&wait(UpstreamError::Quarantined(Duration::from_millis(1500))));
        assert!(detail.contains("nothing is granted for another 1500 ms"), "{detail}");
        assert_eq!(retry_after_ms, Some(1500));
    }

    #[test]
    fn what_was_lost_or_is_ones_own_is_named() {
        let hold = ClaimId(Uuid::nil());
        let resource =
            Resource { tenant: "default".into(), kind: Kind::Leader, name: "cleanup".into() };
        let ended = Refusal::HoldEnded { hold, lost: Some(LostReason::MaxHold) };
        let gone = format!("hold {hold} is gone (max_hold); acquire again with a new request id");
        assert_eq!(said(&ended), (gone, None));
        let holder = Box::new(Holder { token: 42, ..Holder::default() });
        let own = of(&Refusal::ContendedByItself { hold, resource: resource.clone(), holder });
        assert!(own.detail.contains("with token 42: leader holds are not re-entrant"), "{own}");
        assert_eq!((own.hold, own.holder.unwrap().token), (None, 42));
        let waited = Duration::from_millis(2500);
        let wait_timeout = |holder| {
            let resource = resource.clone();
            of(&Refusal::WaitTimeout { hold, resource, waited, holder, limit_changed: None })
        };
        let see = "wait longer, or see `tenure standing leader cleanup`";
        let late = wait_timeout(None);
        assert!(late.detail.ends_with(&format!("within 2.5s; {see}")), "{late}");
        let holder = Holder {
            name: "backup.sh".to_owned(),
            host: "hostb".to_owned(),
            since_ms: 22_320_000,
            ..Holder::default()
        };
        let named = wait_timeout(Some(Box::new(holder.clone())));
        let held = format!("within 2.5s: held by backup.sh on hostb for 6h12m; {see}");
        assert!(named.detail.ends_with(&held), "{named}");
        assert_eq!(named.holder, Some(holder.clone()));
        assert_eq!((late.code, late.retry_after_ms), (Code::WaitTimeout, None));
        let ended =
            Holder { since_ms: 3000, ended_ms: Some(2000), kept_ms: Some(597_000), ..holder };
        let kept =
            "backup.sh on hostb ended 2.0s ago, kept for another 9m57s (hold_at_least_ms 10m)";
        let named = wait_timeout(Some(Box::new(ended.clone())));
        assert!(named.detail.contains(&format!("within 2.5s: {kept}; ")), "{named}");
        let holder = Some(Box::new(ended));
        let taken = of(&Refusal::Contended { resource, holder, limit_changed: None });
        let expected = format!("leader/cleanup is not held any more: {kept}; wait with");
        assert!(taken.detail.starts_with(&expected), "{taken}");
    }
}
