//! The way to the upstream and back: calls that leave, and reports as the keeper hears them.

use std::time::Duration;

use tenure_core::model::{
    self, Answer, BeatAnswer, CallId, Change, ClaimAnswer, ClaimId, GrantHint,
};
use tenure_core::time::Boottime;

use super::super::agent::Agent;
use super::super::core::Report;
use super::super::planted::Planted;
use super::Around;

/// How long the engine keeps for a waiter what it was granted.
const CONFIRM_WITHIN: Duration = Duration::from_secs(5);

impl Around<'_> {
    pub(super) fn call(&mut self, call: CallId, request: model::Request) {
        let now = self.clock();
        if let model::Request::Claim(claim) = &request {
            self.core.checks.fifo.claimed(claim);
        }
        let agent = &mut *self.agent;
        self.core.line(|| format!("agent {}: {call:?} {request:?}", agent.host));
        agent.link.asked.insert(call, Agent::claims_of(&request));
        if let Some(store) = &mut agent.store {
            return store.submit(now, call, request);
        }
        let sender = (agent.host, agent.life.incarnation, self.upstream.life);
        agent.link.submit(self.core, now, sender, call, request);
    }

    /// The next thing that the keeper is to hear.
    pub(super) fn hear_next(&mut self) -> Option<model::Report> {
        loop {
            if let Some(report) = self.agent.inbox.heard.pop_front() {
                return Some(report);
            }
            let now = self.clock();
            if let Some(store) = &mut self.agent.store {
                let report = store.next_report(now);
                if let Some(report) = &report {
                    self.core.line(|| format!("agent {}: hears {report:?}", self.agent.host));
                    if let model::Report::Lost { claim, .. } = report {
                        self.core.checks.truth.taken(*claim);
                    }
                }
                return report;
            }
            let report = self.agent.inbox.reports.pop_front()?;
            self.hear(report);
        }
    }

    /// Turns what came over the link into what the keeper hears.
    fn hear(&mut self, report: Report) {
        let agent = &mut *self.agent;
        self.core.line(|| format!("agent {}: hears {report:?}", agent.host));
        let epoch = match &report {
            Report::Answer { epoch, .. }
            | Report::Change { epoch, .. }
            | Report::Connected(epoch) => Some(*epoch),
            Report::Failed(..) => None,
        };
        if let Some(epoch) = epoch {
            let last = *agent.link.epoch.get_or_insert(epoch);
            if epoch < last {
                // From a connection to a life of the upstream that is over.
                return;
            }
            agent.link.epoch = Some(epoch);
        }
        match report {
            Report::Answer { call, answer, at, .. } => {
                let Some(asked) = agent.link.in_flight.remove(&call) else { return };
                agent.link.upstream.answered(asked.sent_at, at.since(Boottime::ZERO));
                if let (Some(claim), Answer::Released(_)) = (asked.releases, &answer) {
                    self.core.checks.left.released(claim);
                }
                let answer = self.distort(answer);
                self.note_gone(call, &answer);
                let late = self.core.has(Planted::FromArrival);
                let sent_at = if late { self.clock() } else { asked.sent_at };
                let result = Ok(answer);
                self.agent.inbox.heard.push_back(model::Report::Answer { call, sent_at, result });
            }
            Report::Failed(call, failure) => {
                let Some(asked) = agent.link.in_flight.remove(&call) else { return };
                let (sent_at, result) = (asked.sent_at, Err(failure));
                agent.inbox.heard.push_back(model::Report::Answer { call, sent_at, result });
            }
            Report::Change { change, .. } => {
                let change = self.by_own_clock(change);
                self.agent.inbox.heard.push_back(model::Report::Change(change));
            }
            Report::Connected(_) => agent.inbox.heard.push_back(model::Report::FeedLost),
        }
    }

    /// A hint with instants of the agent's clock instead of the upstream's. Half of the grants say nothing, as
    /// those of stores that cannot.
    fn by_own_clock(&mut self, mut change: Change) -> Change {
        if let Change::Granted { claim, grant, .. } = &mut change {
            let link = &self.agent.link;
            let told = grant.take().filter(|_| claim.0.as_u64_pair().1 % 2 == 0);
            *grant = told.and_then(|hint| {
                let now = self.agent.boottime(self.core);
                let confirm_by = match self.core.has(Planted::HintFromArrival) {
                    true => now + CONFIRM_WITHIN,
                    false => {
                        let until = hint.confirm_by.since(Boottime::ZERO);
                        link.upstream.not_after(now, until, CONFIRM_WITHIN)?
                    }
                };
                Some(GrantHint { confirm_by, ..hint })
            });
            if grant.is_some() {
                self.core.seen("grant that a hint told");
            }
        }
        change
    }

    /// Planted: what was taken away seems to have been renewed.
    fn distort(&self, answer: Answer) -> Answer {
        match answer {
            Answer::Renew(_) if !self.core.has(Planted::DeafToLoss) => answer,
            Answer::Renew(answers) => {
                let taken = |answer: &BeatAnswer| {
                    use model::GoneReason::{Preempted, Revoked};
                    matches!(answer.gone(), Some(Preempted | Revoked))
                };
                // As if it had not been asked at all.
                let any = answers.iter().any(taken);
                if any { Answer::Announced } else { Answer::Renew(answers) }
            }
            other => other,
        }
    }

    /// A hold that the upstream calls gone must be off the page when the turn ends.
    fn note_gone(&mut self, call: CallId, answer: &Answer) {
        let Some(claims) = self.agent.link.asked.remove(&call) else { return };
        self.core.checks.truth.heard(self.core.now, claims.iter().copied().flatten());
        let gone: Vec<ClaimId> = match answer {
            Answer::Renew(answers) => claims
                .iter()
                .zip(answers)
                .filter(|(_, answer)| answer.gone().is_some())
                .filter_map(|(claim, _)| *claim)
                .collect(),
            Answer::Claim(ClaimAnswer::Gone(_)) => claims.into_iter().flatten().collect(),
            _ => Vec::new(),
        };
        for claim in gone {
            self.core.checks.exclusion.heard(self.agent.host, claim);
        }
    }
}
