//! Pure. Notifications, as hints.

use tenure_core::model::{ClaimId, Resource, SessionId};
use tenure_wire::Kind;

use crate::remote::Hint;

/// The channel of all notifications.
pub(super) const CHANNEL: &str = "tenure";

/// The hint of a notification. One that is not understood says that something has changed.
pub(super) fn hint(payload: &str) -> Hint {
    match serde_json::from_str::<Told>(payload).ok() {
        Some(Told::Changed(Word::Changed, tenant, kind, name)) => {
            Hint::Resource(Resource { tenant: tenant.into(), kind, name: name.into() })
        }
        Some(Told::OfClaim(Word::Granted, claim)) => Hint::Granted(claim, None),
        Some(Told::OfClaim(Word::Lost, claim)) => Hint::Lost(claim),
        Some(Told::Message(Word::Message, tenant, project, session, payload)) => {
            let payload = payload.to_string().into_bytes();
            match session {
                Some(session) => Hint::ToSession { session, payload },
                None => Hint::ToProject { tenant: tenant.into(), project: project.into(), payload },
            }
        }
        _ => Hint::Everything,
    }
}

/// A notification, told apart by its length.
#[derive(serde::Deserialize)]
#[serde(untagged)]
enum Told {
    OfClaim(Word, ClaimId),
    Changed(Word, String, Kind, String),
    Message(Word, String, String, Option<SessionId>, serde_json::Value),
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "lowercase")]
enum Word {
    Changed,
    Granted,
    Lost,
    Message,
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn each_notification_is_a_hint() {
        let id = Uuid::from_u128(7);
        let changed = Resource { tenant: "t".into(), kind: Kind::Lease, name: "\"a\"".into() };
        let payload = b"{\"type\":\"x\"}".to_vec();
        for (told, expected) in [
            (r#"["changed", "t", "lease", "\"a\""]"#.to_owned(), Hint::Resource(changed)),
            (format!(r#"["granted", "{id}"]"#), Hint::Granted(ClaimId(id), None)),
            (format!(r#"["lost", "{id}"]"#), Hint::Lost(ClaimId(id))),
            (
                format!(r#"["message", "t", "p", "{id}", {{"type": "x"}}]"#),
                Hint::ToSession { session: SessionId(id), payload: payload.clone() },
            ),
            (
                r#"["message", "t", "p", null, {"type": "x"}]"#.to_owned(),
                Hint::ToProject { tenant: "t".into(), project: "p".into(), payload },
            ),
            (r#"["everything"]"#.to_owned(), Hint::Everything),
            ("of a later version".to_owned(), Hint::Everything),
        ] {
            assert_eq!(hint(&told), expected, "{told}");
        }
    }
}
