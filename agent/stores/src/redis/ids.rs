//! Pure. Ids of agents, claims and sessions as keys, channels and values have them.

use tenure_core::model::{ClaimId, SessionId};
use uuid::Uuid;

/// No agent's own name begins with this.
pub(super) const AGENTS_OF: &str = "of:";

/// What all agents of a principal are called together, as an agent.
pub fn agents_of(principal: &str) -> String {
    format!("{AGENTS_OF}{principal}")
}

/// The principal that an id belongs to, as gateways make ids: the last group of its text.
pub fn principal_of(id: &str) -> &str {
    id.rsplit('-').next().unwrap_or(id)
}

/// A claim as the sets of a semaphore have it: 32 hex digits, as the Python package writes its own.
pub fn member(claim: ClaimId) -> String {
    claim.0.simple().to_string()
}

/// A session or claim as everything else has it.
pub fn hyphenated(id: Uuid) -> String {
    id.hyphenated().to_string()
}

/// The id of a session as keys, channels and values have it.
pub fn session_text(session: SessionId) -> String {
    hyphenated(session.0)
}

/// The claim of such a member, unless another program wrote it.
pub(super) fn claim_of_member(member: &str) -> Option<ClaimId> {
    let id = (member.len() == 32).then(|| Uuid::try_parse(member).ok()).flatten()?;
    Some(ClaimId(id))
}
