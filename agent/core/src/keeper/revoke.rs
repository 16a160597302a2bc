//! An administrator takes a resource away.

use std::sync::Arc;
use std::time::Duration;

use tenure_wire::{Holder, Kind, LostReason, Revoked};

use super::Keeper;
use super::calls::Call;
use super::hold::{Hold, millis};
use super::journal::{Bar, Entry};
use super::refusal::Refusal;
use super::request::{Reply, Ticket};
use crate::model::{
    self, Answer, ClaimId, Failure, Resource, Revocation, STANDING_LISTED_MAX, SessionId,
    StandingEntry,
};
use crate::time::Boottime;

/// A holder that goes while it is taken from is followed by another: so often that one is asked for.
const TRIES_MAX: u8 = 3;

/// A revocation that is under way.
#[derive(Debug)]
pub(super) struct Revoking {
    ticket: Ticket,
    resource: Resource,
    /// Only the grant with this token.
    token: Option<u64>,
    revocation: Option<Arc<Revocation>>,
    /// Those of this host that have lost it.
    taken: Vec<ClaimId>,
    answer: Revoked,
    /// Those who lose it by the call that is on its way.
    losers: Vec<Holder>,
    tries: u8,
}

impl Keeper {
    /// `POST /v1/revoke`. Holders are told at once. Where guarded work still runs on this host its hold
    /// is kept from others until that has ended; elsewhere the next one is granted at once.
    pub(super) fn revoke(
        &mut self,
        now: Boottime,
        ticket: Ticket,
        resource: Resource,
        token: Option<u64>,
        revocation: Option<Arc<Revocation>>,
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
        let mut from = Vec::new();
        for id in &taken {
            let Some(hold) = self.holds.get(id) else { continue };
            last = last.max(Some(hold.valid_until));
            if from.len() < STANDING_LISTED_MAX {
                from.push(self.holder(&hold.standing(now), |_| true));
            }
            self.revoked(now, *id, revocation.as_ref(), true);
        }
        let kept_ms = last.map(|last| millis(last.since(now)));
        let answer = Revoked { revoked: taken.len() as u64, kept_ms, from };
        if !taken.is_empty() && (token.is_some() || resource.kind != Kind::Semaphore) {
            return self.out.answer(ticket, Reply::Revoked(answer));
        }
        let losers = Vec::new();
        self.find_losers(Revoking {
            ticket,
            resource,
            token,
            revocation,
            taken,
            answer,
            losers,
            tries: 0,
        });
    }

    /// True if the work that a hold guards goes on until its session's tether ends.
    pub(super) fn works_on(&self, hold: &Hold) -> bool {
        self.sessions.get(&hold.session()).is_some_and(|session| session.saved.guarded)
    }

    fn find_losers(&mut self, revoking: Revoking) {
        let request = model::Request::Holders(revoking.resource.clone());
        self.ask(request, Call::Losers(Box::new(revoking)));
    }

    /// An exclusive resource is taken from whoever is known to hold it, by its token. Of a semaphore all permits
    /// go at once, unless some are kept here: then the others go by their tokens.
    pub(super) fn losers_answered(
        &mut self,
        mut revoking: Revoking,
        result: Result<Answer, Failure>,
    ) {
        let standing = match result {
            Ok(Answer::Standing(standing)) => standing,
            other => return self.refuse_unanswered(revoking.ticket, other),
        };
        let others: Vec<StandingEntry> = standing
            .holders
            .into_iter()
            .filter(|entry| !revoking.taken.contains(&entry.claim))
            .filter(|entry| revoking.token.is_none_or(|token| token == entry.token))
            .collect();
        let room = STANDING_LISTED_MAX - revoking.answer.from.len().min(STANDING_LISTED_MAX);
        revoking.losers =
            others.iter().take(room).map(|entry| self.holder(entry, |_| true)).collect();
        let mut tokens: Vec<u64> = others.iter().map(|entry| entry.token).collect();
        let is_one_call = revoking.token.is_some()
            || revoking.resource.kind == Kind::Semaphore && revoking.taken.is_empty();
        if is_one_call {
            tokens.clear();
        }
        let last = match tokens.pop() {
            None if !revoking.taken.is_empty() => {
                return self.out.answer(revoking.ticket, Reply::Revoked(revoking.answer));
            }
            None => revoking.token,
            last => last,
        };
        let of = revoking.resource.clone();
        let words = revoking.revocation.clone();
        let request = |token| model::Request::Revoke {
            resource: of.clone(),
            token,
            revocation: words.clone(),
        };
        revoking.answer.revoked += tokens.len() as u64;
        for token in tokens {
            self.ask(request(Some(token)), Call::RevokeOne);
        }
        self.ask(request(last), Call::Revoke(Box::new(revoking)));
    }

    pub(super) fn revoke_answered(
        &mut self,
        mut revoking: Revoking,
        result: Result<Answer, Failure>,
    ) {
        let count = match result {
            Ok(Answer::Revoked(count)) => count,
            other => return self.refuse_unanswered(revoking.ticket, other),
        };
        let is_exclusive = revoking.resource.kind != Kind::Semaphore;
        let has_changed = count == 0 && !revoking.losers.is_empty() && revoking.token.is_none();
        if has_changed && is_exclusive && revoking.tries < TRIES_MAX {
            revoking.tries += 1;
            return self.find_losers(revoking);
        }
        revoking.answer.revoked += count;
        if count > 0 {
            revoking.answer.from.append(&mut revoking.losers);
        }
        self.out.answer(revoking.ticket, Reply::Revoked(revoking.answer));
    }

    /// A hold was taken away by an administrator; `released_here` if the upstream does not know that yet.
    pub(super) fn revoked(
        &mut self,
        now: Boottime,
        id: ClaimId,
        revocation: Option<&Arc<Revocation>>,
        released_here: bool,
    ) {
        if let Some(revocation) = revocation
            && let Some(hold) = self.holds.get(&id)
        {
            let (session, resource) = (hold.session(), hold.claim.resource.clone());
            self.bar(now, session, resource, revocation);
        }
        self.lose_with(now, id, LostReason::Revoked, released_here, revocation);
    }

    /// Keeps a resource from the session that lost it. A session has as many bars as holds, at most: beyond that
    /// the one that ends first gives way.
    fn bar(
        &mut self,
        now: Boottime,
        session: SessionId,
        resource: Resource,
        revocation: &Arc<Revocation>,
    ) {
        let Some(session) = self.sessions.get_mut(&session) else { return };
        if revocation.for_ms == 0 {
            return;
        }
        let barred = &mut session.saved.barred;
        barred.retain(|bar| bar.until > now && bar.resource != resource);
        if barred.len() >= session.saved.holds as usize
            && let Some(first) = (0..barred.len()).min_by_key(|at| barred[*at].until)
        {
            barred.remove(first);
        }
        let until = now + Duration::from_millis(revocation.for_ms);
        barred.push(Bar { resource, until, revocation: Arc::clone(revocation) });
        self.out.persist(Entry::Session(Box::new(session.saved.clone())));
    }

    /// The bar that keeps a resource from a session.
    pub(super) fn bar_of(
        &self,
        now: Boottime,
        session: SessionId,
        resource: &Resource,
    ) -> Option<&Bar> {
        let bars = &self.sessions.get(&session)?.saved.barred;
        bars.iter().find(|bar| bar.until > now && bar.resource == *resource)
    }

    /// The refusal of a session that lost a resource and asks for it too early.
    pub(super) fn barred(
        &self,
        now: Boottime,
        session: SessionId,
        resource: &Resource,
    ) -> Option<Refusal> {
        let bar = self.bar_of(now, session, resource)?;
        let (resource, left) = (resource.clone(), bar.until.since(now));
        Some(Refusal::Barred { resource, left, revocation: Arc::clone(&bar.revocation) })
    }

    /// Sends the claim of a hold, or does so when its session may have the resource again.
    pub(super) fn claim_unless_barred(&mut self, now: Boottime, id: ClaimId) {
        let Some(hold) = self.holds.get(&id) else { return };
        let until = self.bar_of(now, hold.session(), &hold.claim.resource).map(|bar| bar.until);
        let Some(until) = until else { return self.claim(id) };
        self.holds.change(id, super::hold::Stage::Queued);
        self.claim_later(now, id, until.since(now));
        self.answer_queued(now, id);
    }
}
