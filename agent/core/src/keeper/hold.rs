//! A session's claim on a resource.

use std::sync::Arc;
use std::time::Duration;

use tenure_wire::{
    Acquired, GrantedEvent, HoldEvent, HoldState, HoldView, Kind, LimitChanged, Wait, Waiting,
};

use super::journal::SavedHold;
use super::queue::Place;
use super::request::Ticket;
use super::timers::Alarm;
use crate::model::{CallId, Claim, ClaimId, SessionId, StandingEntry};
use crate::time::Boottime;

/// The stage of a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Its claim is to be sent, for the first time or again; nothing upstream, or not for sure.
    Queued,
    /// Its claim is on its way.
    Claiming(CallId),
    /// In the upstream's queue.
    Waiting,
    /// Granted.
    Held,
    /// Granted, but the last renewal is unknown.
    Jeopardy,
}

/// The caller of a hold, and what it asked for.
#[derive(Debug, Default)]
pub(super) struct Caller {
    pub(super) wait: Wait,
    /// Calls that wait for the hold.
    pub(super) tickets: Vec<Ticket>,
    /// Calls that were answered with the grant, but for those that have gone without reading it.
    pub(super) told: u32,
    /// The client's id for the hold.
    pub(super) request: Option<Arc<str>>,
    /// When the request came.
    pub(super) asked_at: Boottime,
    /// End of the client's patience.
    pub(super) patience: Alarm,
    /// When the patience was over, and the upstream was asked who has it.
    pub(super) out_of_patience: Option<Boottime>,
    /// How long it may be held in all. Counted here alone: the upstream would count from a grant of
    /// which this agent may hear late, and let go while the holder is told that it is valid.
    pub(super) max_hold: Option<Duration>,
    /// How long it is kept from others at least. The upstream is told so by the ttl of the claim, which no beat
    /// shortens: it needs no agent for that.
    pub(super) at_least: Option<Duration>,
    /// Place in the queue, as told to the client.
    pub(super) position: Option<u64>,
    /// Semaphore only: its claim changed the limit.
    pub(super) limit_changed: Option<LimitChanged>,
}

/// Renewals of a hold.
#[derive(Debug)]
pub(super) struct Beats {
    pub(super) every: Duration,
    /// How much earlier than the upstream its holder must stop.
    pub(super) margin: Duration,
    /// A renewal that is on its way.
    pub(super) beating: Option<CallId>,
    /// An earlier one that was when a hint granted the hold: it may know nothing of the grant, or of its end.
    pub(super) beaten_before: Option<CallId>,
    /// A hint came while a call was on its way: ask once more.
    pub(super) again: bool,
    /// Waiters only: until when the store keeps the place, by its latest answer.
    pub(super) kept_until: Boottime,
    /// Failed calls in a row.
    pub(super) failures: u32,
    /// The reason for the jeopardy of the hold.
    pub(super) doubt: Option<Box<Doubt>>,
    pub(super) next: Alarm,
}

/// The failed renewals of a hold.
#[derive(Debug)]
pub(super) struct Doubt {
    pub(super) since: Boottime,
    /// The cause of the latest failure.
    pub(super) cause: Arc<str>,
}

/// A session's claim on a resource, from the request to its end.
#[derive(Debug)]
pub(super) struct Hold {
    pub(super) claim: Claim,
    /// Its row in the journal.
    pub(super) row: u64,
    /// Its slot on the page.
    pub(super) slot: u32,
    pub(super) stage: Stage,
    pub(super) caller: Caller,
    pub(super) beats: Beats,
    /// The fencing token; 0 before the grant.
    pub(super) token: u64,
    /// Semaphore only: the limit in force.
    pub(super) limit: Option<u32>,
    /// The instant just before the granting request was sent.
    pub(super) granted_at: Boottime,
    /// When its holder must stop; [`Boottime::ZERO`] before the grant.
    pub(super) valid_until: Boottime,
    /// A claim was sent and never answered: it may be granted, or be granted later.
    pub(super) uncertain: bool,
    /// valid-until, or the end of its longest duration.
    pub(super) deadline: Alarm,
}

impl Hold {
    /// Its id.
    pub(super) fn id(&self) -> ClaimId {
        self.claim.id
    }

    /// Its session.
    pub(super) fn session(&self) -> SessionId {
        self.claim.owner.session
    }

    /// Its kind.
    pub(super) fn kind(&self) -> Kind {
        self.claim.resource.kind
    }

    /// Its place among who waits for the same.
    pub(super) fn place(&self) -> Place {
        (self.claim.rank(), self.row)
    }

    /// True if its client may act.
    pub(super) fn is_held(&self) -> bool {
        matches!(self.stage, Stage::Held | Stage::Jeopardy)
    }

    /// True if the upstream may know of it.
    pub(super) fn known_upstream(&self) -> bool {
        self.uncertain || self.stage != Stage::Queued
    }

    /// True if the journal knows of it.
    pub(super) fn known_to_journal(&self) -> bool {
        self.is_held() || self.caller.wait != Wait::None
    }

    /// The state on the wire.
    pub(super) fn state(&self) -> HoldState {
        match self.stage {
            Stage::Queued | Stage::Claiming(_) | Stage::Waiting => HoldState::Waiting,
            Stage::Held => HoldState::Held,
            Stage::Jeopardy => HoldState::Jeopardy,
        }
    }

    /// The last instant at which it may be valid however often it is renewed. Earlier than the
    /// upstream's end of it, as clocks run at different speeds.
    pub(super) fn last_instant(&self) -> Option<Boottime> {
        let max_hold = self.caller.max_hold?;
        Some(self.granted_at + (max_hold - self.beats.margin.min(max_hold / 2)))
    }

    /// The ttl that the upstream is told: until it is granted at least as long as it is to be kept.
    pub(super) fn ttl_upstream(&self) -> Duration {
        let at_least = self.caller.at_least.filter(|_| !self.is_held());
        self.claim.ttl.max(at_least.unwrap_or_default())
    }

    /// Until when it is kept from others, whatever becomes of its holder.
    pub(super) fn kept_until(&self, now: Boottime) -> Option<Boottime> {
        let until = self.granted_at + self.caller.at_least.filter(|_| self.is_held())?;
        (until > now).then_some(until)
    }

    /// When its holder must stop if a request sent at `sent_at` granted or renewed it.
    pub(super) fn valid_until_if_sent_at(&self, sent_at: Boottime) -> Boottime {
        let renewed = (sent_at + self.claim.ttl).before(self.beats.margin);
        self.last_instant().map_or(renewed, |last| renewed.min(last))
    }

    /// The hold as events name it.
    pub(super) fn event(&self) -> HoldEvent {
        HoldEvent {
            hold: self.id().0,
            kind: self.kind(),
            name: self.claim.resource.name.to_string(),
        }
    }

    /// The body of `granted` and `safe`.
    pub(super) fn granted_event(&self, now: Boottime) -> GrantedEvent {
        GrantedEvent {
            of: self.event(),
            token: self.token,
            ttl_ms: millis(self.claim.ttl),
            valid_ms: millis(self.valid_until.since(now)),
            valid_until_boottime_ns: self.valid_until.as_nanos(),
            slot: self.slot,
            limit: self.limit,
            limit_changed: self.caller.limit_changed,
        }
    }

    /// The reply to whoever asked for it, once granted.
    pub(super) fn acquired(&self, now: Boottime) -> Acquired {
        Acquired {
            hold: self.id().0,
            kind: self.kind(),
            name: self.claim.resource.name.to_string(),
            state: self.state(),
            token: self.token,
            ttl_ms: millis(self.claim.ttl),
            valid_ms: millis(self.valid_until.since(now)),
            valid_until_boottime_ns: self.valid_until.as_nanos(),
            slot: self.slot,
            limit: self.limit,
            limit_changed: self.caller.limit_changed,
        }
    }

    /// The reply to whoever asked to be queued.
    pub(super) fn waiting(&self) -> Waiting {
        Waiting {
            hold: self.id().0,
            kind: self.kind(),
            name: self.claim.resource.name.to_string(),
            state: HoldState::Waiting,
            position: self.caller.position,
            limit_changed: self.caller.limit_changed,
        }
    }

    /// The hold as the upstream lists it.
    pub(super) fn standing(&self, now: Boottime) -> StandingEntry {
        StandingEntry {
            claim: self.id(),
            owner: self.claim.owner.clone(),
            token: self.token,
            since: now.since(self.granted_at),
            unbeaten: None,
        }
    }

    /// The hold as its owner sees it.
    pub(super) fn view(&self, now: Boottime) -> HoldView {
        HoldView {
            hold: self.id().0,
            kind: self.kind(),
            name: self.claim.resource.name.to_string(),
            state: self.state(),
            token: self.is_held().then_some(self.token),
            since_ms: self.is_held().then(|| millis(now.since(self.granted_at))),
            ttl_ms: millis(self.claim.ttl),
            valid_ms: millis(self.valid_until.since(now)),
            valid_until_boottime_ns: self.valid_until.as_nanos(),
            slot: self.slot,
            position: if self.is_held() { None } else { self.caller.position },
            limit: self.limit,
            request: self.caller.request.as_deref().map(str::to_owned),
        }
    }

    /// Its row in the journal.
    pub(super) fn saved(&self) -> SavedHold {
        SavedHold {
            row: self.row,
            claim: self.claim.clone(),
            wait: self.caller.wait,
            wait_until: self.caller.patience.due(),
            request: self.caller.request.as_deref().map(str::to_owned),
            max_hold: self.caller.max_hold,
            at_least: self.caller.at_least,
            slot: self.slot,
            token: self.is_held().then_some(self.token),
            granted_at: self.is_held().then_some(self.granted_at),
            valid_until: self.valid_until,
            departing: false,
        }
    }
}

/// How many holds there are by kind, in the order of [`Kind::ALL`]: held, in jeopardy, waiting.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct HoldCounts(pub(super) [[u64; 3]; 4]);

impl HoldCounts {
    fn of(&mut self, hold: &Hold) -> &mut u64 {
        let kind = Kind::ALL.iter().position(|kind| *kind == hold.kind()).unwrap_or(0);
        let state = match hold.stage {
            Stage::Held => 0,
            Stage::Jeopardy => 1,
            Stage::Queued | Stage::Claiming(_) | Stage::Waiting => 2,
        };
        &mut self.0[kind][state]
    }

    /// A hold is there now.
    pub(super) fn add(&mut self, hold: &Hold) {
        *self.of(hold) += 1;
    }

    /// A hold is no longer there.
    pub(super) fn remove(&mut self, hold: &Hold) {
        *self.of(hold) -= 1;
    }

    /// A hold comes to another stage.
    pub(super) fn change(&mut self, hold: &mut Hold, stage: Stage) {
        self.remove(hold);
        hold.stage = stage;
        self.add(hold);
    }
}

/// Whole ms, rounded down: never promises more than there is.
pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
