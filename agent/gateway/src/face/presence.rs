//! Agents that make themselves known in the store, and who is told of which.
//!
//! The store is the one source: an agent is told of alike by every gateway over it. What a gateway adds is whose key the
//! agent has, and for which tenants.

use std::sync::Arc;

use tenure_bounds::Globs;
use tenure_core::model::{
    AGENTS_TENANT, AgentFacts, AgentSeen, Answer, Page, Request, SHOWN_TEXT_MAX, SessionRecord,
    Within, all_agents, short,
};
use tenure_wire::Code;

use super::Face;
use super::refused::Refused;
use crate::access::{Caller, Right};

/// Agents of a page, for a gateway's own questions.
const PAGE: usize = 1024;
/// Most agents that people are told of.
const TOLD_MAX: usize = 10_000;
/// Longest list of a key's tenants that its agents are told with, bytes. With a longer one they are told of only to
/// their own principal, and to keys without bounds.
const TENANTS_BYTES_MAX: usize = SHOWN_TEXT_MAX;

/// A question of an agent about agents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    Show,
    Hide,
    List,
}

/// The question of a request about agents; `None` if it is about something else.
pub(super) fn of(request: &Request) -> Option<Asked> {
    match request {
        Request::Announce(record) if record.is_agent() => Some(Asked::Show),
        Request::EndSession { tenant, .. } if **tenant == *AGENTS_TENANT => Some(Asked::Hide),
        Request::Members { within: within @ Within::Project { .. }, .. }
            if *within == all_agents() =>
        {
            Some(Asked::List)
        }
        _ => None,
    }
}

/// The refusal of an agent that a gateway does not tell of.
pub(super) fn too_many() -> Refused {
    let detail = "the agents of this principal are more than a gateway tells of; give some of them another \
                  principal's key";
    Refused::new(Code::QuotaExceeded, detail)
}

impl Face {
    /// Carries out what an agent asks about agents: it takes no room of its key's, which bounds what programs have.
    ///
    /// # Errors
    ///
    /// 403 without the right to a list, 404 for ids of others, 422 for what no agent writes, 503 as the store fails.
    pub(super) async fn carry_presence(
        &self,
        caller: &Caller,
        request: Request,
        asked: Asked,
    ) -> Result<Answer, Refused> {
        let mark = caller.principal.mark;
        let request = mark.admit(request).ok_or_else(|| {
            Refused::new(Code::SessionUnknown, "there is no such agent of this caller")
        })?;
        if asked == Asked::List {
            caller.needs(Right::Agents, || "the list of agents".to_owned())?;
        }
        let request = match request {
            Request::Announce(record) => Request::Announce(self.shown(caller, &record)?),
            request => request,
        };
        let mut answer = self.ask_counted(caller, request, None).await?;
        if let (Asked::List, Answer::Members(Some(members))) = (asked, &mut answer) {
            members.sessions.retain(|member| {
                AgentSeen::of(member).is_some_and(|agent| may_see(caller, &agent.facts))
            });
        }
        Ok(answer)
    }

    /// The agent as it is told of, with whose it is by this gateway's word.
    fn shown(&self, caller: &Caller, record: &SessionRecord) -> Result<SessionRecord, Refused> {
        let Some(facts) = AgentFacts::read(&record.owner.name) else {
            return Err(Refused::field("name", "must be what an agent tells of itself, as JSON"));
        };
        let tenants = caller.bounds.scope.tenants.as_ref().map(Globs::texts);
        let tenants = tenants
            .filter(|globs| globs.iter().map(String::len).sum::<usize>() <= TENANTS_BYTES_MAX);
        let facts = AgentFacts {
            principal: Some(short(&caller.principal.name)),
            tenants: tenants.map(|globs| globs.iter().map(|it| it.as_str().into()).collect()),
            ..facts
        };
        Ok(facts.record(record.owner.session, short(&record.owner.host)))
    }

    /// All agents that a caller may see, as far as they are told of.
    ///
    /// # Errors
    ///
    /// As the store fails.
    pub(super) async fn agents(&self, caller: &Caller) -> Result<Vec<AgentSeen>, Refused> {
        let mut seen = Vec::new();
        let mut after: Option<Arc<str>> = None;
        loop {
            let page = Some(Page { after, limit: PAGE });
            let request = Request::Members { within: all_agents(), listed: true, page };
            let Answer::Members(Some(members)) = self.store.look(request).await? else { break };
            let agents = members.sessions.iter().filter_map(AgentSeen::of);
            seen.extend(agents.filter(|agent| may_see(caller, &agent.facts)));
            after = members.next.filter(|_| seen.len() < TOLD_MAX);
            if after.is_none() {
                break;
            }
        }
        Ok(seen)
    }
}

/// True if a caller may be told of an agent: of its own principal's, and with the right to it of those that are for no
/// other tenants than its own are; with a key without bounds of all.
fn may_see(caller: &Caller, agent: &AgentFacts) -> bool {
    if agent.principal.as_ref() == Some(&short(&caller.principal.name)) {
        return true;
    }
    let scope = &caller.bounds.scope;
    let is_own =
        |tenant: &Arc<str>| scope.tenants.as_ref().is_none_or(|globs| globs.is_match(tenant));
    let is_within = scope.names_all()
        || agent.tenants.as_ref().is_some_and(|it| !it.is_empty() && it.iter().all(is_own));
    is_within && caller.has(Right::Agents)
}
