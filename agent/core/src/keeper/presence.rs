//! The agent makes itself known upstream, so that any other agent of the store can tell of it.

use std::sync::Arc;
use std::time::Duration;

use super::calls::Call;
use super::request::{Reply, Ticket};
use super::timers::{Alarm, Timer};
use super::{Keeper, Phase};
use crate::model::{
    self, AGENTS_PROJECT, AGENTS_TENANT, AgentFacts, AgentSeen, Answer, Failure, Page, SHOWN_EVERY,
    SHOWN_FOR, SessionId, all_agents,
};
use crate::time::Boottime;

/// The agent as it makes itself known.
#[derive(Debug, Clone)]
pub struct Presence {
    /// The same after a restart, and another after a stop, which ends this one.
    pub agent: SessionId,
    pub version: Arc<str>,
    pub started: Boottime,
    /// False where nobody else can ask for it, as in a store of the agent's own.
    pub is_shown: bool,
}

/// How far that is.
#[derive(Debug, Default)]
pub(super) struct Showing {
    alarm: Alarm,
    failures: u32,
    /// True while the store is asked to forget the agent.
    is_ending: bool,
    /// True if the store may know the agent.
    is_known: bool,
}

impl Keeper {
    /// The agent as it makes itself known, if it does.
    fn shown(&self) -> Option<&Presence> {
        self.settings.presence.as_ref().filter(|presence| presence.is_shown)
    }

    /// Makes the agent known from now on.
    pub(super) fn show_itself(&mut self, now: Boottime) {
        if self.shown().is_some() {
            self.timers.set(&mut self.agent.showing.alarm, Timer::Show, Some(now));
        }
    }

    pub(super) fn show_fired(&mut self, now: Boottime) {
        let fired = self.timers.fired(&mut self.agent.showing.alarm, Timer::Show, now);
        if !fired || self.agent.phase != Phase::Running {
            return;
        }
        let Some(agent) = self.shown().map(|shown| shown.agent) else { return };
        let record = self.facts(now).record(agent, Arc::clone(&self.settings.host));
        self.agent.showing.is_known = true;
        self.ask(model::Request::Announce(record), Call::Show);
    }

    pub(super) fn show_answered(&mut self, now: Boottime, result: &Result<Answer, Failure>) {
        let wait = match result {
            Ok(_) => {
                self.agent.showing.failures = 0;
                SHOWN_EVERY
            }
            // By an older gateway, which may be replaced one day.
            Err(Failure::Denied(_)) => {
                self.agent.showing.is_known = false;
                SHOWN_FOR
            }
            Err(Failure::Unavailable(_) | Failure::Unknown(_)) => {
                self.agent.showing.failures += 1;
                let doubled = self
                    .settings
                    .retry_min
                    .saturating_mul(1 << self.agent.showing.failures.min(16));
                doubled.min(SHOWN_EVERY)
            }
        };
        self.timers.set(&mut self.agent.showing.alarm, Timer::Show, Some(now + wait));
    }

    /// The agent stops, and is known no more; whoever cannot be told finds out by itself.
    pub(super) fn hide_itself(&mut self) {
        let shown = self.shown().filter(|_| self.agent.showing.is_known);
        let Some(session) = shown.map(|shown| shown.agent) else { return };
        self.timers.set(&mut self.agent.showing.alarm, Timer::Show, None);
        self.agent.showing.is_ending = true;
        let (tenant, project) = (AGENTS_TENANT.into(), AGENTS_PROJECT.into());
        self.ask(model::Request::EndSession { session, tenant, project }, Call::Hide);
    }

    pub(super) fn hide_answered(&mut self) {
        self.agent.showing.is_ending = false;
    }

    /// True if nothing more has to be said of the agent itself.
    pub(super) fn is_hidden(&self) -> bool {
        !self.agent.showing.is_ending
    }

    fn facts(&self, now: Boottime) -> AgentFacts {
        let presence = self.settings.presence.as_ref();
        let up = presence.map_or(Duration::ZERO, |presence| now.since(presence.started));
        let mut facts = AgentFacts {
            version: presence.map_or_else(|| "".into(), |it| Arc::clone(&it.version)),
            up_ms: millis(up),
            shown_for_ms: millis(SHOWN_FOR),
            sessions: self.count_sessions(),
            ..AgentFacts::default()
        };
        for [held, in_jeopardy, waiting] in self.count_holds() {
            facts.held += held + in_jeopardy;
            facts.waiting += waiting;
        }
        facts
    }

    /// Tells of all agents, of this one first and by what it knows itself.
    pub(super) fn agents(&mut self, now: Boottime, ticket: Ticket, page: Page) {
        if self.shown().is_none() {
            let own = page.after.is_none().then(|| self.itself(now)).flatten();
            let agents = own.into_iter().collect();
            return self.out.answer(ticket, Reply::Agents { agents, next: None });
        }
        let is_first = page.after.is_none();
        let request =
            model::Request::Members { within: all_agents(), listed: true, page: Some(page) };
        self.ask(request, Call::Agents { ticket, is_first });
    }

    pub(super) fn agents_answered(
        &mut self,
        now: Boottime,
        (ticket, is_first): (Ticket, bool),
        result: Result<Answer, Failure>,
    ) {
        let Ok(Answer::Members(members)) = result else {
            return self.refuse_unanswered(ticket, result);
        };
        let own = self.itself(now);
        let mut agents: Vec<_> = own.clone().into_iter().filter(|_| is_first).collect();
        let (members, next) = members.map_or_else(Default::default, |it| (it.sessions, it.next));
        let others = members.iter().filter_map(AgentSeen::of);
        agents.extend(others.filter(|it| own.as_ref().is_none_or(|own| own.agent != it.agent)));
        self.out.answer(ticket, Reply::Agents { agents, next });
    }

    fn itself(&self, now: Boottime) -> Option<AgentSeen> {
        let agent = self.settings.presence.as_ref()?.agent;
        Some(AgentSeen {
            agent: agent.to_string().into(),
            host: Arc::clone(&self.settings.host),
            ago: Duration::ZERO,
            facts: self.facts(now),
        })
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
