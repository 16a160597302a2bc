//! Agents of one store, as they make themselves known to each other.
//!
//! An agent is a session of its own in a project in which no program has a part: so it needs no operation of a store
//! that programs do not need, and ends there by its own lifetime. What is told of it is JSON in the session's name.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{AGENTS_TENANT, Member, Owner, SessionId, SessionRecord, Within};

/// The project whose sessions are the agents.
pub const AGENTS_PROJECT: &str = "agents";
/// What their surface says.
const SURFACE: &str = "tenured";
/// An agent makes itself known this often: one call, which is all that an idle agent costs its store.
pub const SHOWN_EVERY: Duration = Duration::from_secs(30);
/// One that has not been seen for longer than this has missed two times, and is not seen.
pub const UNSEEN_AFTER: Duration = Duration::from_secs(75);
/// One that has not been seen for so long is forgotten.
pub const SHOWN_FOR: Duration = Duration::from_secs(600);
/// Longest text of an agent about itself that is told, characters.
pub const SHOWN_TEXT_MAX: usize = 128;
/// Longest list of tenants that is told.
const TENANTS_MAX: usize = 64;
/// Most that is believed of an agent's sessions, holds and waiters.
const COUNT_MAX: u64 = 10_000_000;
/// Longest time that is believed, ms: a hundred years.
const UP_MAX_MS: u64 = 100 * 365 * 24 * 3600 * 1000;
/// Longest JSON that is read, bytes.
pub(super) const FACTS_BYTES_MAX: usize = 16 * 1024;

/// Facts that an agent tells of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentFacts {
    pub version: Arc<str>,
    /// How long it had been up then.
    pub up_ms: u64,
    /// How long it may be unseen before it is forgotten.
    pub shown_for_ms: u64,
    pub sessions: u64,
    pub held: u64,
    pub waiting: u64,
    /// Whose key it shows to a gateway, by that gateway's word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<Arc<str>>,
    /// The tenants that this key is for, as globs; `None` for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenants: Option<Vec<Arc<str>>>,
}

/// An agent, as it was seen last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentSeen {
    /// Its id. Others than uuids are of nobody that keeps to this.
    pub agent: Arc<str>,
    pub host: Arc<str>,
    /// How long ago, by the store's clock.
    pub ago: Duration,
    pub facts: AgentFacts,
}

/// The agents as a project.
pub fn all_agents() -> Within {
    Within::Project { tenant: AGENTS_TENANT.into(), project: AGENTS_PROJECT.into() }
}

impl AgentFacts {
    /// The session as which an agent makes itself known.
    pub fn record(&self, agent: SessionId, host: Arc<str>) -> SessionRecord {
        SessionRecord {
            owner: Owner { session: agent, host, name: self.text() },
            tenant: AGENTS_TENANT.into(),
            project: AGENTS_PROJECT.into(),
            surface: SURFACE.into(),
            ttl: SHOWN_FOR,
            registered_at: None,
        }
    }

    /// Reads what an agent tells; `None` of what no agent wrote.
    pub fn read(text: &str) -> Option<AgentFacts> {
        let text = Some(text).filter(|text| text.len() <= FACTS_BYTES_MAX)?;
        let mut facts: AgentFacts = serde_json::from_str(text).ok()?;
        facts.version = short(&facts.version);
        facts.up_ms = facts.up_ms.min(UP_MAX_MS);
        facts.shown_for_ms = facts.shown_for_ms.min(SHOWN_FOR.as_millis() as u64);
        for count in [&mut facts.sessions, &mut facts.held, &mut facts.waiting] {
            *count = (*count).min(COUNT_MAX);
        }
        facts.principal = facts.principal.as_deref().map(short);
        if let Some(tenants) = &mut facts.tenants {
            tenants.truncate(TENANTS_MAX);
            tenants.iter_mut().for_each(|tenant| *tenant = short(tenant));
        }
        Some(facts)
    }

    /// The JSON of it.
    pub fn text(&self) -> Arc<str> {
        serde_json::to_string(self).unwrap_or_default().into()
    }
}

impl AgentSeen {
    /// The agent that a session is; `None` if it is none.
    pub fn of(member: &Member) -> Option<AgentSeen> {
        let facts = AgentFacts::read(&member.name)?;
        let lifetime = Duration::from_millis(facts.shown_for_ms);
        let left = member.runs_out.unwrap_or(lifetime);
        Some(AgentSeen {
            agent: short(&member.session),
            host: short(&member.host),
            ago: lifetime.saturating_sub(left),
            facts,
        })
    }
}

impl SessionRecord {
    /// True if it is an agent that makes itself known.
    pub fn is_agent(&self) -> bool {
        *self.tenant == *AGENTS_TENANT
    }
}

/// As much of a text as is told, without what moves a terminal's cursor.
pub fn short(text: &str) -> Arc<str> {
    text.chars()
        .filter(|&c| !tenure_wire::steers_terminal(c))
        .take(SHOWN_TEXT_MAX)
        .collect::<String>()
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str, runs_out_ms: Option<u64>) -> Member {
        Member {
            session: "\u{1b}[2Jid".into(),
            name: name.into(),
            surface: SURFACE.into(),
            host: "h\n\u{202e}".repeat(SHOWN_TEXT_MAX + 1).into(),
            registered_at: None,
            runs_out: runs_out_ms.map(Duration::from_millis),
        }
    }

    #[test]
    fn an_agent_was_seen_as_long_ago_as_its_lifetime_is_used_up() {
        let facts =
            AgentFacts { shown_for_ms: 600_000, up_ms: 7, held: 3, ..AgentFacts::default() };
        let ago = |runs_out_ms| AgentSeen::of(&member(&facts.text(), runs_out_ms)).unwrap().ago;
        assert_eq!(ago(Some(590_000)), Duration::from_secs(10));
        assert_eq!(ago(Some(700_000)), Duration::ZERO, "somebody else made it last");
        assert_eq!(ago(None), Duration::ZERO);
        let seen = AgentSeen::of(&member(&facts.text(), None)).unwrap();
        assert_eq!(seen.facts, facts);
    }

    #[test]
    fn what_others_wrote_is_no_agent_or_harmless() {
        let long = format!("{{\"version\":\"{}\"", "x".repeat(FACTS_BYTES_MAX));
        for name in ["", "backup", "{}", "[1]", "{\"version\":7}", &long, "{\"up_ms\":-1}"] {
            assert_eq!(AgentSeen::of(&member(name, None)), None, "{name}");
        }
        let tenants = vec!["t\u{7}".into(); TENANTS_MAX + 1];
        let version = "\u{1b}[31m".repeat(SHOWN_TEXT_MAX).into();
        let principal = Some("p\r".into());
        let most = u64::MAX;
        let facts = AgentFacts {
            version,
            principal,
            tenants: Some(tenants),
            up_ms: most,
            shown_for_ms: most,
            sessions: most,
            held: most,
            waiting: most,
        };
        let seen = AgentSeen::of(&member(&facts.text(), None)).unwrap();
        assert_eq!((&*seen.agent, seen.host.len()), ("[2Jid", SHOWN_TEXT_MAX));
        assert_eq!(seen.facts.version.len(), SHOWN_TEXT_MAX);
        assert!(seen.ago <= SHOWN_FOR, "{:?}", seen.ago);
        let AgentFacts { up_ms, sessions, held, waiting, .. } = seen.facts;
        assert_eq!((up_ms, sessions), (UP_MAX_MS, COUNT_MAX));
        assert_eq!((held, waiting), (COUNT_MAX, COUNT_MAX));
        assert_eq!(seen.facts.principal.as_deref(), Some("p"));
        assert_eq!(seen.facts.tenants, Some(vec!["t".into(); TENANTS_MAX]));
    }
}
