//! An administrator takes a resource away.

use tenure::wire::{Kind, LostReason};

use super::request::{Reply, Ticket};
use super::{Call, Hold, Keeper};
use crate::host::clock::Boottime;
use crate::model::{self, Answer, ClaimId, Failure, Resource};

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
            .map(Hold::id)
            .collect();
        for id in &taken {
            self.lose_as(now, *id, LostReason::Revoked, true);
        }
        if taken.is_empty() {
            self.ask(model::Request::Revoke { resource, token }, Call::Revoke(ticket, 0));
        } else if token.is_some() || resource.kind != Kind::Semaphore {
            self.answer(ticket, Reply::Revoked(taken.len() as u64));
        } else {
            let request = model::Request::Holders(resource.clone());
            self.ask(request, Call::Others(ticket, resource, taken));
        }
    }

    /// Whether the work that a hold guards goes on until its session's tether ends.
    pub(super) fn works_on(&self, hold: &Hold) -> bool {
        self.sessions.get(&hold.session()).is_some_and(|session| session.saved.guarded)
    }

    /// The other holders lose theirs by their tokens, so that what is kept here stays.
    pub(super) fn others_answered(
        &mut self,
        ticket: Ticket,
        resource: &Resource,
        taken: &[ClaimId],
        result: Result<Answer, Failure>,
    ) {
        let standing = match result {
            Ok(Answer::Standing(standing)) => standing,
            other => return self.refuse_unanswered(ticket, other),
        };
        let already = taken.len() as u64;
        let mut tokens: Vec<u64> = standing
            .holders
            .iter()
            .filter(|entry| !taken.contains(&entry.claim))
            .map(|entry| entry.token)
            .collect();
        let Some(last) = tokens.pop() else {
            return self.answer(ticket, Reply::Revoked(already));
        };
        let revoke =
            |token| model::Request::Revoke { resource: resource.clone(), token: Some(token) };
        let already = already + tokens.len() as u64;
        for token in tokens {
            self.ask(revoke(token), Call::RevokeOne);
        }
        self.ask(revoke(last), Call::Revoke(ticket, already));
    }

    pub(super) fn revoke_answered(
        &mut self,
        ticket: Ticket,
        already: u64,
        result: Result<Answer, Failure>,
    ) {
        match result {
            Ok(Answer::Revoked(revoked)) => self.answer(ticket, Reply::Revoked(already + revoked)),
            other => self.refuse_unanswered(ticket, other),
        }
    }
}
