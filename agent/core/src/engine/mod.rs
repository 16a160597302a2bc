//! PURE. What *held* means: sessions, resources, queues, tokens, expiry.
//!
//! Runs as the embedded upstream, and is the oracle that other upstreams are tested against.
//!
//! Invariant: nothing here reads a clock, a file, a socket or a source of randomness; the same
//! calls give the same answers and effects.

mod claiming;
mod claims;
mod ending;
mod history;
mod holders;
mod image;
pub mod journal;
mod listing;
mod occupation;
mod queue;
mod restore;
mod routes;
mod rows;
mod sessions;
mod settings;
mod standing;
#[cfg(test)]
mod tests;
mod timers;
mod tokens;
mod tombstones;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use claims::{Claims, State, Tracked};
use history::Histories;
pub use history::{CHANGES_MAX, SavedChange};
pub use image::{Image, OutOfRange};
use occupation::Occupations;
use routes::RouteTables;
use serde::{Deserialize, Serialize};
use sessions::Sessions;
pub use settings::EngineSettings;
use timers::{Timer, Timers};
pub use tokens::TokenRange;
use tokens::Tokens;
use tombstones::Tombstones;

use crate::model::{
    Answer, Beat, BeatAnswer, Change, ClaimId, GoneReason, Request, Resource, Revocation, Subject,
    spare,
};
use crate::time::Boottime;

/// Something that the engine's shell must do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Effect {
    /// Tell the agents.
    Change(Change),
    /// Write to the journal, before any answer or change of the same call is told.
    Persist(journal::Entry),
    /// Less than half of the tokens are left: make more of them durable and call
    /// [`Engine::extend_tokens`].
    ReserveTokens,
}

/// What a step has brought about.
#[derive(Debug, Default)]
struct Outbox {
    effects: VecDeque<Effect>,
    /// Masters that ended in this step; told only if nobody followed within it.
    orphaned: Vec<Tracked>,
}

/// The state machine.
///
/// The methods that change it are of four kinds:
///
/// - *Inputs*, each with the instant at which it happens: [`handle`](Engine::handle),
///   [`handle_timeout`](Engine::handle_timeout). An earlier instant than one given before counts as
///   that one.
/// - *The next deadline*: [`poll_timeout`](Engine::poll_timeout). Ask again after every input.
/// - *Effects*: [`poll_effect`](Engine::poll_effect). Drain it after every input, and use an answer
///   only afterwards: what takes a hold from somebody stands before what gives it to somebody else.
/// - *Provisions*: [`extend_tokens`](Engine::extend_tokens), [`quarantine`](Engine::quarantine).
///
/// [`inspect`](Engine::inspect), [`holders`](Engine::holders), [`routing_table`](Engine::routing_table) and
/// [`resources`](Engine::resources) change nothing. [`freeze`](Engine::freeze) and [`thaw`](Engine::thaw) make an exact copy.
///
/// `handle` is right even when deadlines have passed for which `handle_timeout` was not called: what a
/// request is about is looked at first. Of thousands that ran out at once one may be granted a few
/// steps later than it could be.
///
/// Tokens that may be granted must be durable before the engine learns of them; without any left it
/// answers [`ClaimAnswer::Quarantined`](crate::model::ClaimAnswer::Quarantined) to whoever does not queue, and keeps queues waiting.
///
/// How many claims and sessions there are is bounded by whoever calls; queues of one resource and
/// marks of what has ended are bounded by [`EngineSettings`].
#[derive(Debug)]
pub struct Engine {
    settings: EngineSettings,
    /// The latest instant of any input.
    latest: Boottime,
    tokens: Tokens,
    quarantined_until: Boottime,
    claims: Claims,
    resources: Occupations,
    sessions: Sessions,
    routes: RouteTables,
    tombstones: Tombstones<ClaimId>,
    histories: Histories,
    timers: Timers,
    out: Outbox,
}

impl Engine {
    /// An engine that has never granted anything.
    pub fn new(settings: EngineSettings, tokens: TokenRange) -> Engine {
        Engine {
            latest: Boottime::ZERO,
            tokens: Tokens::new(tokens),
            quarantined_until: Boottime::ZERO,
            claims: Claims::new(),
            resources: Occupations::default(),
            sessions: Sessions::new(&settings),
            routes: RouteTables::starting_with(tokens),
            tombstones: Tombstones::new(settings.tombstone, settings.tombstones_max),
            histories: Histories::default(),
            timers: Timers::default(),
            out: Outbox::default(),
            settings,
        }
    }

    /// Whether the times of a lease are those of its last beat or its grant. They are, but in a cluster that goes by the rules of the
    /// first programs.
    pub fn note_beats(&mut self, notes: bool) {
        self.claims.notes_beats = notes;
    }

    /// Answers a request.
    ///
    /// No time passes by one that is a [read](Request::is_read): it is told of the engine as the last step left
    /// it, with ages as of `now`. A claim that ran out since is there until [`Engine::handle_timeout`].
    pub fn handle(&mut self, now: Boottime, request: Request) -> Answer {
        let now = if request.is_read() { self.latest.max(now) } else { self.advance(now) };
        self.catch_up(now, &request);
        let answer = match request {
            Request::Claim(claim) => Answer::Claim(self.claim(now, claim)),
            Request::Renew(beats) => {
                Answer::Renew(beats.iter().map(|beat| self.renew(now, beat)).collect())
            }
            Request::Release { claim, resource } => {
                Answer::Released(self.release(now, claim, &resource))
            }
            Request::Announce(record) => {
                self.announce(now, record);
                Answer::Announced
            }
            Request::EndSession { session, .. } => Answer::Ended(self.end_session(now, session)),
            Request::Inspect(resource) => Answer::Standing(self.inspect(now, &resource)),
            Request::Holders(resource) => Answer::Standing(self.holders(now, &resource)),
            Request::Members { within, listed, page } => {
                Answer::Members(self.members(now, &within, listed, page.as_ref()))
            }
            Request::Routes { tenant, name, page } => {
                Answer::Routes(self.routing_table(&tenant, name.as_deref(), &page))
            }
            Request::Resources { page } => self.resources(&page),
            Request::Revoke { resource, token, revocation } => {
                Answer::Revoked(self.revoke(now, &resource, token, revocation.as_ref()))
            }
            Request::Record(entries) => {
                self.record(now, entries);
                Answer::Recorded
            }
            Request::History(resource) => Answer::History(self.history(now, &resource)),
        };
        self.tell_orphaned();
        answer
    }

    /// The next instant at which something happens without a request. May be in the past.
    pub fn poll_timeout(&self) -> Option<Boottime> {
        let unblocked = if self.resources.blocked.is_empty() || self.tokens.is_exhausted() {
            None
        } else {
            Some(self.quarantined_until)
        };
        let marks = [self.tombstones.next(), self.sessions.ended.next()];
        marks.into_iter().chain([self.timers.next(), unblocked]).flatten().min()
    }

    /// Does what is due: expiry, the end of grace, purge of waiters that are not beaten, the end of
    /// marks. What does not fit into one step is due still.
    pub fn handle_timeout(&mut self, now: Boottime) {
        self.advance(now);
        self.tell_orphaned();
    }

    /// The next thing to do for the shell.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        let effect = self.out.effects.pop_front();
        spare::shrink_queue(&mut self.out.effects);
        effect
    }

    /// Tokens up to and including this one are durable. Ask [`Engine::poll_timeout`] again: waiters
    /// may have waited for it.
    pub fn extend_tokens(&mut self, upto: u64) {
        self.tokens.extend(upto);
    }

    /// How many grants can be made before [`Engine::extend_tokens`] is needed.
    pub fn tokens_left(&self) -> u64 {
        self.tokens.left()
    }

    /// How many claims are granted or wait.
    #[cfg(test)]
    pub(crate) fn count_claims(&self) -> usize {
        self.claims.len()
    }

    /// Uses up tokens as if that many grants had been made and had ended.
    pub fn skip_tokens(&mut self, count: u64) {
        self.tokens.skip(count);
    }

    /// Grants nothing until then; what is granted already can be renewed and released.
    pub fn quarantine(&mut self, until: Boottime) {
        self.quarantined_until = self.quarantined_until.max(until);
    }

    /// When the quarantine ends; `None` if there is none at this instant.
    pub fn quarantined_until(&self, now: Boottime) -> Option<Boottime> {
        (now < self.quarantined_until).then_some(self.quarantined_until)
    }

    /// Ends a quarantine. Ask [`Engine::poll_timeout`] again: waiters may have waited for it.
    pub fn end_quarantine(&mut self) {
        self.quarantined_until = self.latest;
    }

    /// While suspended it grants nothing, as if there were no tokens. Ask [`Engine::poll_timeout`] again
    /// when it goes on.
    pub fn suspend(&mut self, suspended: bool) {
        self.tokens.suspend(suspended);
    }

    /// The longest ttl of what is granted or waits; zero if there is nothing.
    pub fn longest_ttl(&self) -> Duration {
        self.claims.longest_ttl()
    }

    /// True if anything is granted. Takes time in proportion to the number of claims.
    pub fn has_grants(&self) -> bool {
        self.claims.values().any(|tracked| matches!(tracked.state, State::Granted(_)))
    }

    /// Why a claim ended, as long as that is remembered.
    pub fn why_gone(&self, claim: ClaimId) -> Option<GoneReason> {
        self.tombstones.get(self.latest, claim)
    }

    /// The words of whoever revoked a claim, as long as that is remembered.
    pub fn revocation(&self, claim: ClaimId) -> Option<Arc<Revocation>> {
        self.tombstones.explanation(claim)
    }

    /// How long nothing can be granted, whatever is free; `None` if something can.
    fn grants_in(&self, now: Boottime) -> Option<Duration> {
        if now < self.quarantined_until {
            return Some(self.quarantined_until - now);
        }
        self.tokens.is_exhausted().then_some(settings::TOKEN_WAIT)
    }

    fn renew(&mut self, now: Boottime, beat: &Beat) -> BeatAnswer {
        match &beat.subject {
            Subject::Claim { claim, resource } => self.renew_claim(now, *claim, resource, beat.ttl),
            Subject::Session { session, .. } => self.renew_session(now, *session, beat.ttl),
        }
    }

    fn persist(&mut self, entry: journal::Entry) {
        self.out.effects.push_back(Effect::Persist(entry));
    }

    fn tell(&mut self, change: Change) {
        self.out.effects.push_back(Effect::Change(change));
    }

    /// Says that the resource's holders, waiters or limit changed; once is enough for neighbouring
    /// changes.
    fn tell_changed(&mut self, resource: &Resource) {
        let told = self.out.effects.iter().rev().find_map(|effect| match effect {
            Effect::Change(Change::Resource(last)) => Some(last == resource),
            Effect::Persist(_) | Effect::ReserveTokens => None,
            Effect::Change(_) => Some(false),
        });
        if told != Some(true) {
            self.tell(Change::Resource(resource.clone()));
        }
    }
}
