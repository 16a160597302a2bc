//! An administrator takes a resource away.

use tenure_wire::{Kind, LostReason, Revoked};

use super::Keeper;
use super::calls::Call;
use super::hold::Hold;
use super::hold::millis;
use super::request::{Reply, Ticket};
use crate::model::{self, Answer, ClaimId, Failure, Resource};
use crate::time::Boottime;

impl Keeper {
    /// `POST /v1/revoke`. Holders are told at once. Where guarded work still runs on this host its hold
    /// is kept from others until that has ended; elsewhere the next one is granted at once.
    pub(super) fn revoke(
        &mut self,
        now: Boottime,
        ticket: Ticket,
        resource: Resource,
        token: Option<u64>,
    ) {
        let taken: Vec<ClaimId> = self
            .holds
            .values()
            .filter(|hold| hold.is_held() && hold.claim.resource == resource)
            .filter(|hold| token.is_none_or(|token| token == hold.token))
            .filter(|hold| self.works_on(hold))
            .map(|hold| hold.id())
            .collect();
        let mut last: Option<Boottime> = None;
        for id in &taken {
            last = last.max(self.holds.get(id).map(|hold| hold.valid_until));
            self.lose_as(now, *id, LostReason::Revoked, true);
        }
        let kept_ms = last.map(|last| millis(last.since(now)));
        let revoked = taken.len() as u64;
        if taken.is_empty() {
            let already = Revoked { revoked: 0, kept_ms: None };
            self.ask(model::Request::Revoke { resource, token }, Call::Revoke(ticket, already));
        } else if token.is_some() || resource.kind != Kind::Semaphore {
            self.out.answer(ticket, Reply::Revoked(Revoked { revoked, kept_ms }));
        } else {
            let request = model::Request::Holders(resource.clone());
            self.ask(request, Call::Others(ticket, resource, taken, kept_ms));
        }
    }

    /// True if the work that a hold guards goes on until its session's tether ends.
    pub(super) fn works_on(&self, hold: &Hold) -> bool {
        self.sessions.get(&hold.session()).is_some_and(|session| session.saved.guarded)
    }

    /// The other holders lose theirs by their tokens, so that what is kept here stays.
    pub(super) fn others_answered(
        &mut self,
        ticket: Ticket,
        resource: &Resource,
        taken: &[ClaimId],
        kept_ms: Option<u64>,
        result: Result<Answer, Failure>,
    ) {
        let standing = match result {
            Ok(Answer::Standing(standing)) => standing,
            other => return self.refuse_unanswered(ticket, other),
        };
        let mut tokens: Vec<u64> = standing
            .holders
            .iter()
            .filter(|entry| !taken.contains(&entry.claim))
            .map(|entry| entry.token)
            .collect();
        let Some(last) = tokens.pop() else {
            let revoked = taken.len() as u64;
            return self.out.answer(ticket, Reply::Revoked(Revoked { revoked, kept_ms }));
        };
        let revoke =
            |token| model::Request::Revoke { resource: resource.clone(), token: Some(token) };
        let revoked = (taken.len() + tokens.len()) as u64;
        let already = Revoked { revoked, kept_ms };
        for token in tokens {
            self.ask(revoke(token), Call::RevokeOne);
        }
        self.ask(revoke(last), Call::Revoke(ticket, already));
    }

    pub(super) fn revoke_answered(
        &mut self,
        ticket: Ticket,
        already: Revoked,
        result: Result<Answer, Failure>,
    ) {
        match result {
            Ok(Answer::Revoked(revoked)) => {
                let revoked = already.revoked + revoked;
                self.out.answer(ticket, Reply::Revoked(Revoked { revoked, ..already }));
            }
            other => self.refuse_unanswered(ticket, other),
        }
    }
}
