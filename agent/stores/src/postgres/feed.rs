//! Pure. Notifications, as hints.

use std::time::Duration;

use tenure_core::model::{ClaimId, GrantHint, Resource, SessionId};
use tenure_core::time::Boottime;
use tenure_wire::Kind;

use crate::gateway::scope::Mark;
use crate::relay::{self, Carried, What};
use crate::remote::{Hint, StoreClock};

/// The channel of all notifications.
pub(super) const CHANNEL: &str = "tenure";

/// The hints of a notification: what this agent or gateway is told, and what a gateway passes on to a principal. One
/// that is not understood says that something has changed.
pub(super) fn hints(
    now: Boottime,
    payload: &str,
    clock: &StoreClock,
) -> (Option<Hint>, Option<relay::Told>) {
    let of = |claim: ClaimId, what| {
        Some(relay::Told { principal: Mark::at_end_of(claim.0).to_string().into(), what })
    };
    match serde_json::from_str::<Told>(payload).ok() {
        Some(Told::Changed(Word::Changed, tenant, kind, name)) => {
            let resource = Resource { tenant: tenant.into(), kind, name: name.into() };
            (Some(Hint::Resource(resource)), None)
        }
        Some(Told::Granted(Word::Granted, claim, token, limit, at, kept)) => {
            let [at, kept] = [at, kept].map(Duration::from_micros);
            let confirm_by = clock.not_after(now, at.saturating_add(kept), kept);
            let grant = confirm_by.map(|confirm_by| GrantHint { token, limit, confirm_by });
            // The agent behind a gateway knows another clock.
            let carried = Carried { token, limit, kept };
            let told = of(claim, What::Granted(claim, Some(carried)));
            (Some(Hint::Granted(claim, grant)), told)
        }
        Some(Told::Lost(Word::Lost, claim)) => {
            (Some(Hint::Lost(claim)), of(claim, What::Lost(claim)))
        }
        Some(Told::Message(Word::Message, tenant, project, session, payload)) => {
            let payload = payload.to_string().into_bytes();
            let hint = match session {
                Some(session) => Hint::ToSession { session, payload },
                None => Hint::ToProject { tenant: tenant.into(), project: project.into(), payload },
            };
            (Some(hint), None)
        }
        Some(Told::Relayed(Word::Relayed, principal, news)) => {
            let what = What::Relayed(news.into_bytes());
            (None, Some(relay::Told { principal: principal.into(), what }))
        }
        _ => (Some(Hint::Everything), None),
    }
}

/// A notification, told apart by its length and the sorts of its parts.
#[derive(serde::Deserialize)]
#[serde(untagged)]
enum Told {
    Lost(Word, ClaimId),
    Relayed(Word, String, String),
    Changed(Word, String, Kind, String),
    /// With the token, a semaphore's limit, the instant by the server's clock, and for how long it is kept; µs.
    Granted(Word, ClaimId, u64, Option<u32>, u64, u64),
    Message(Word, String, String, Option<SessionId>, serde_json::Value),
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "lowercase")]
enum Word {
    Changed,
    Granted,
    Lost,
    Message,
    Relayed,
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn each_notification_is_a_hint_and_some_are_for_a_principal() {
        let id = Uuid::from_u128(0xabc0_0000_0000_0007);
        let claim = ClaimId(id);
        let changed = Resource { tenant: "t".into(), kind: Kind::Lease, name: "\"a\"".into() };
        let payload = b"{\"type\":\"x\"}".to_vec();
        let (now, s) = (Boottime::from_nanos(100_000_000_000), Duration::from_secs);
        let mut clock = StoreClock::default();
        clock.answered(now, s(1000));
        let grant = GrantHint { token: 7, limit: Some(3), confirm_by: now + (s(5) - s(5) / 200) };
        let carried = What::Granted(claim, Some(Carried { token: 7, limit: Some(3), kept: s(5) }));
        let granted = format!(r#"["granted", "{id}", 7, 3, 1000000000, 5000000]"#);
        let told = |what| Some(relay::Told { principal: "000000000007".into(), what });
        for (text, hint, passed_on) in [
            (
                r#"["changed", "t", "lease", "\"a\""]"#.to_owned(),
                Some(Hint::Resource(changed)),
                None,
            ),
            (granted.clone(), Some(Hint::Granted(claim, Some(grant))), told(carried.clone())),
            (format!(r#"["lost", "{id}"]"#), Some(Hint::Lost(claim)), told(What::Lost(claim))),
            (
                format!(r#"["message", "t", "p", "{id}", {{"type": "x"}}]"#),
                Some(Hint::ToSession { session: SessionId(id), payload: payload.clone() }),
                None,
            ),
            (
                r#"["message", "t", "p", null, {"type": "x"}]"#.to_owned(),
                Some(Hint::ToProject { tenant: "t".into(), project: "p".into(), payload }),
                None,
            ),
            (
                r#"["relayed", "000000000007", "news"]"#.to_owned(),
                None,
                told(What::Relayed(b"news".to_vec())),
            ),
            (r#"["everything"]"#.to_owned(), Some(Hint::Everything), None),
            ("of a later version".to_owned(), Some(Hint::Everything), None),
        ] {
            assert_eq!(hints(now, &text, &clock), (hint, passed_on), "{text}");
        }
        let untimed = hints(now, &granted, &StoreClock::default());
        let expected = (Some(Hint::Granted(claim, None)), told(carried));
        assert_eq!(untimed, expected, "nothing is known of the clock");
    }
}
