//! Pure. A project as the status of a session plane shows it.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use serde::Deserialize;
use tenure_core::model::{
    ClaimId, Owner, STANDING_LISTED_MAX, SessionId, StandingEntry, UpstreamStanding, defaults,
};
use uuid::Uuid;

/// The answer to `GET /api/v1/controller/status`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Deserialize)]
pub(super) struct Project {
    master: Option<Session>,
    sessions: Vec<Session>,
}

/// A session, as it was registered.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Deserialize)]
pub(super) struct Session {
    /// The backend's name for it.
    pub(super) session_id: Arc<str>,
    #[serde(default)]
    agent_identity: Option<Arc<str>>,
    #[serde(default)]
    agent_surface: Option<Arc<str>>,
    #[serde(default)]
    machine_id: Option<Arc<str>>,
    #[serde(default)]
    registered_at: Option<Arc<str>>,
}

/// A session as an agent registers it. The backend makes its id; by the machine's an agent finds it again,
/// after an answer that was lost and after a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Own {
    /// It was announced.
    Session(SessionId),
    /// It ran for master.
    Claim(SessionId, ClaimId),
}

impl Own {
    /// The host, and what was registered: `HOST/SESSION` or `HOST/SESSION/CLAIM`.
    pub(super) fn machine_id(self, host: &str) -> String {
        match self {
            Own::Session(session) => format!("{host}/{}", session.0.simple()),
            Own::Claim(session, claim) => {
                format!("{host}/{}/{}", session.0.simple(), claim.0.simple())
            }
        }
    }

    /// Reads an agent's machine id: its host, and what it registered; `None` if it is another program's.
    fn read(machine_id: &str) -> Option<(&str, Own)> {
        let (rest, last) = machine_id.rsplit_once('/')?;
        let last = last.parse::<Uuid>().ok()?;
        let before = rest.rsplit_once('/');
        let session = before.and_then(|(host, id)| Some((host, id.parse::<Uuid>().ok()?)));
        Some(match session {
            Some((host, session)) => (host, Own::Claim(SessionId(session), ClaimId(last))),
            None => (rest, Own::Session(SessionId(last))),
        })
    }
}

impl Session {
    pub(super) fn own(&self) -> Option<Own> {
        Own::read(self.machine_id.as_deref()?).map(|(_, own)| own)
    }

    pub(super) fn is_of(&self, session: SessionId) -> bool {
        matches!(self.own(), Some(Own::Session(it) | Own::Claim(it, _)) if it == session)
    }

    /// True if it makes way for nobody, and others make way for it.
    pub(super) fn is_preferred(&self) -> bool {
        self.agent_surface.as_deref() == Some(defaults::PREFERRED_SURFACE)
    }

    /// The fencing token of what it is master by: the µs at which it was registered, by the backend's clock.
    pub(super) fn token(&self) -> Option<u64> {
        let at = self.registered_at.as_deref()?;
        let at = at.strip_suffix("+00:00").unwrap_or(at);
        let at = humantime::parse_rfc3339_weak(at).ok()?;
        u64::try_from(at.duration_since(UNIX_EPOCH).ok()?.as_micros()).ok()
    }

    /// How others see it as master.
    pub(super) fn entry(&self) -> StandingEntry {
        let nobody = Uuid::nil();
        let machine = self.machine_id.as_deref().unwrap_or_default();
        let (host, session, claim) = match Own::read(machine) {
            Some((host, Own::Claim(session, claim))) => (host, session.0, claim.0),
            Some((host, Own::Session(session))) => (host, session.0, nobody),
            None => (machine, self.session_id.parse().unwrap_or(nobody), nobody),
        };
        let name = self.agent_identity.clone().unwrap_or_default();
        let owner = Owner { session: SessionId(session), host: host.into(), name };
        let (token, since) = (self.token().unwrap_or(0), Duration::ZERO);
        StandingEntry { claim: ClaimId(claim), owner, token, since, unbeaten: None }
    }
}

impl Project {
    pub(super) fn master(&self) -> Option<&Session> {
        self.master.as_ref()
    }

    pub(super) fn is_master(&self, session: &Session) -> bool {
        self.master.as_ref().is_some_and(|master| master.session_id == session.session_id)
    }

    /// Those that are listed. Of one that ran for master and was announced, first the former.
    pub(super) fn sessions(&self) -> impl Iterator<Item = &Session> {
        let (ran, other): (Vec<_>, Vec<_>) =
            self.sessions.iter().partition(|it| matches!(it.own(), Some(Own::Claim(..))));
        ran.into_iter().chain(other)
    }

    pub(super) fn of_session(&self, session: SessionId) -> Option<&Session> {
        self.sessions().find(|it| it.is_of(session))
    }

    pub(super) fn of_claim(&self, claim: ClaimId) -> Option<&Session> {
        self.sessions.iter().find(|it| matches!(it.own(), Some(Own::Claim(_, id)) if id == claim))
    }

    /// True if who registers now becomes master.
    pub(super) fn is_open_to(&self, surface: &str) -> bool {
        let is_preferred = surface == defaults::PREFERRED_SURFACE;
        self.master.as_ref().is_none_or(|master| is_preferred && !master.is_preferred())
    }

    pub(super) fn standing(&self) -> UpstreamStanding {
        let names = self.sessions.iter().filter_map(|it| it.agent_identity.clone());
        UpstreamStanding {
            holders: self.master.iter().map(Session::entry).collect(),
            holding: u64::from(self.master.is_some()),
            sessions: names.take(STANDING_LISTED_MAX).collect(),
            members: self.sessions.len() as u64,
            ..UpstreamStanding::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SESSION: SessionId = SessionId(Uuid::from_u128(1));
    const CLAIM: ClaimId = ClaimId(Uuid::from_u128(2));

    fn registered(machine_id: &str, registered_at: &str) -> Session {
        Session {
            session_id: "s".into(),
            agent_identity: Some("p".into()),
            agent_surface: None,
            machine_id: Some(machine_id.into()),
            registered_at: Some(registered_at.into()),
        }
    }

    #[test]
    fn an_agent_finds_what_it_registered() {
        for own in [Own::Session(SESSION), Own::Claim(SESSION, CLAIM)] {
            for host in ["h", "a/b"] {
                let session = registered(&own.machine_id(host), "");
                assert_eq!(session.own(), Some(own));
                assert_eq!(&*session.entry().owner.host, host);
            }
        }
        for other in ["", "m-1", "a/b", "a/b/c"] {
            let session = registered(other, "");
            assert_eq!(session.own(), None);
            assert_eq!(&*session.entry().owner.host, other);
        }
    }

    #[test]
    fn a_token_is_the_instant_of_registration() {
        for (at, token) in [
            ("2026-04-23T16:19:00.000002+00:00", Some(1_776_961_140_000_002)),
            ("2026-04-23T16:19:00.000002Z", Some(1_776_961_140_000_002)),
            ("2026-04-23T16:19:00+00:00", Some(1_776_961_140_000_000)),
            ("2026-04-23T16:19:00+02:00", None),
            ("yesterday", None),
        ] {
            assert_eq!(registered("m", at).token(), token, "{at}");
        }
    }

    #[test]
    fn a_project_is_open_to_whom_the_backend_would_elect() {
        let master =
            |surface: &str| Session { agent_surface: Some(surface.into()), ..registered("m", "") };
        let open_to = |master: Option<Session>, surface| {
            Project { master, sessions: Vec::new() }.is_open_to(surface)
        };
        assert!(open_to(None, "cli"));
        assert!(!open_to(Some(master("cli")), "cli"));
        assert!(open_to(Some(master("cli")), "claude_desktop"));
        assert!(!open_to(Some(master("claude_desktop")), "claude_desktop"));
    }
}
