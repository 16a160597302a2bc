//! The state of one hold, shared by its guard, the event stream and the warden.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use tokio::sync::watch;
use uuid::Uuid;

use super::{Asker, Lost, Reason};
use crate::client::AcquireReply;
use crate::page::boottime_ns;
use crate::wire::{Acquired, GrantedEvent, HoldView, Kind, LimitChanged, LostReason};

/// The facts of a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) token: u64,
    pub(crate) ttl_ms: u64,
    pub(crate) slot: u32,
    pub(crate) valid_ms: u64,
    pub(crate) valid_until_ns: u64,
    pub(crate) limit: Option<u32>,
    pub(crate) limit_changed: Option<LimitChanged>,
}

impl From<&Acquired> for Grant {
    fn from(from: &Acquired) -> Grant {
        Grant {
            token: from.token,
            ttl_ms: from.ttl_ms,
            slot: from.slot,
            valid_ms: from.valid_ms,
            valid_until_ns: from.valid_until_boottime_ns,
            limit: from.limit,
            limit_changed: from.limit_changed,
        }
    }
}

impl From<&GrantedEvent> for Grant {
    fn from(from: &GrantedEvent) -> Grant {
        Grant {
            token: from.token,
            ttl_ms: from.ttl_ms,
            slot: from.slot,
            valid_ms: from.valid_ms,
            valid_until_ns: from.valid_until_boottime_ns,
            limit: from.limit,
            limit_changed: from.limit_changed,
        }
    }
}

impl Grant {
    /// The grant of a hold that a snapshot shows as held.
    pub(crate) fn of_view(view: &HoldView) -> Option<Grant> {
        Some(Grant {
            token: view.token?,
            ttl_ms: view.ttl_ms,
            slot: view.slot,
            valid_ms: view.valid_ms,
            valid_until_ns: view.valid_until_boottime_ns,
            limit: view.limit,
            limit_changed: None,
        })
    }
}

/// The stage of a hold in its life, as far as this process knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    Waiting {
        position: Option<u64>,
    },
    Held(Grant),
    /// `told` by the agent; else concluded here, so that the agent may still think it held.
    Lost {
        lost: Lost,
        told: bool,
    },
    /// `token` is of the grant; 0 of a wait.
    Released {
        token: u64,
    },
    /// A wait of which a restarted agent knows nothing: ask again.
    Forgotten,
}

impl Stage {
    pub(crate) fn is_over(&self) -> bool {
        !matches!(self, Stage::Waiting { .. } | Stage::Held(_))
    }

    /// Of the grant, before the end; 0 if there was none.
    fn token(&self) -> u64 {
        if let Stage::Held(grant) = self { grant.token } else { 0 }
    }
}

#[derive(Debug)]
pub(crate) struct Cell {
    pub(crate) id: Uuid,
    pub(crate) kind: Kind,
    /// For a master the project.
    pub(crate) name: Box<str>,
    /// The task or thread that asked for the hold.
    asker: Mutex<Asker>,
    /// The stream on which this hold's events come, counted: snapshots of earlier ones omit it.
    pub(crate) born_in: u64,
    stage: watch::Sender<Stage>,
    /// The slot, token and end of life again where reading them takes one load.
    slot: AtomicU32,
    over: AtomicBool,
    /// The latest valid-until seen, ns: when the page no longer says.
    seen_valid_until: AtomicU64,
    /// Since when the page says *not held* though nobody told why, ns; 0 when it does not.
    pub(crate) doubted_since: AtomicU64,
    /// Renewals get no answer.
    jeopardy: watch::Sender<bool>,
}

impl Cell {
    /// The cell of a hold that the running task asked for.
    pub(crate) fn new(reply: &AcquireReply, born_in: u64) -> Cell {
        let (id, kind, name, stage, grant) = match reply {
            AcquireReply::Acquired(acquired) => {
                let grant = Grant::from(acquired);
                (acquired.hold, acquired.kind, &acquired.name, Stage::Held(grant), Some(grant))
            }
            AcquireReply::Waiting(waiting) => {
                let stage = Stage::Waiting { position: waiting.position };
                (waiting.hold, waiting.kind, &waiting.name, stage, None)
            }
        };
        Cell {
            id,
            kind,
            name: name.as_str().into(),
            asker: Mutex::new(Asker::current()),
            born_in,
            stage: watch::Sender::new(stage),
            slot: AtomicU32::new(grant.map_or(u32::MAX, |grant| grant.slot)),
            over: AtomicBool::new(false),
            seen_valid_until: AtomicU64::new(grant.map_or(0, |grant| grant.valid_until_ns)),
            doubted_since: AtomicU64::new(0),
            jeopardy: watch::Sender::new(false),
        }
    }

    pub(crate) fn stage(&self) -> Stage {
        *self.stage.borrow()
    }

    pub(crate) fn asker(&self) -> Asker {
        *self.asker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another task or thread has asked for the hold than this process knew.
    pub(crate) fn asked_by(&self, asker: Asker) {
        *self.asker.lock().unwrap_or_else(PoisonError::into_inner) = asker;
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<Stage> {
        self.stage.subscribe()
    }

    pub(crate) fn slot(&self) -> u32 {
        self.slot.load(Ordering::Relaxed)
    }

    /// It was found in another slot than `was`, unless the agent has told of one since.
    pub(crate) fn found_in(&self, was: u32, slot: u32) {
        let _ = self.slot.compare_exchange(was, slot, Ordering::Relaxed, Ordering::Relaxed);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    pub(crate) fn seen_valid_until(&self) -> u64 {
        self.seen_valid_until.load(Ordering::Relaxed)
    }

    pub(crate) fn see_valid_until(&self, ns: u64) {
        self.seen_valid_until.store(ns, Ordering::Relaxed);
    }

    pub(crate) fn moved_to(&self, position: u64) {
        let moved = Stage::Waiting { position: Some(position) };
        self.advance(|stage| matches!(stage, Stage::Waiting { .. }).then_some(moved));
    }

    pub(crate) fn jeopardy(&self) -> watch::Receiver<bool> {
        self.jeopardy.subscribe()
    }

    pub(crate) fn set_jeopardy(&self, is: bool) {
        self.jeopardy.send_if_modified(|was| std::mem::replace(was, is) != is);
    }

    /// Granted, or granted still: a restarted agent may have given it another slot.
    pub(crate) fn granted(&self, grant: Grant) {
        self.advance(|stage| {
            self.slot.store(grant.slot, Ordering::Relaxed);
            self.see_valid_until(grant.valid_until_ns);
            matches!(stage, Stage::Waiting { .. }).then_some(Stage::Held(grant))
        });
    }

    /// Ends a hold as lost, whether it had been granted or not. Returns whether it was not over.
    pub(crate) fn lose(&self, reason: Reason, told: bool) -> bool {
        self.advance(|stage| {
            Some(Stage::Lost { lost: Lost { token: stage.token(), reason }, told })
        })
    }

    /// The agent says that it is lost. Its reason is better than what was concluded here before it came; and it was lost
    /// before it was given back, if that was already asked for.
    pub(crate) fn told_lost(&self, reason: Reason) {
        let explained = self.stage.send_if_modified(|stage| match *stage {
            Stage::Lost { lost: Lost { token, .. }, told: false } | Stage::Released { token } => {
                *stage = Stage::Lost { lost: Lost { token, reason }, told: true };
                true
            }
            _ => false,
        });
        if !explained {
            self.lose(reason, true);
        }
    }

    /// Ends a hold as lost whose valid-until has passed: that needs no word of the agent. `shown` is
    /// valid-until on the page, 0 if the page has none. Returns whether it was not over.
    pub(crate) fn lapse(&self, shown: u64) -> bool {
        let valid_until = if shown == 0 { self.seen_valid_until() } else { shown };
        let has_passed = valid_until <= boottime_ns();
        self.advance(|stage| {
            let Stage::Held(Grant { token, .. }) = *stage else { return None };
            let lost = Lost { token, reason: LostReason::Expired.into() };
            has_passed.then_some(Stage::Lost { lost, told: false })
        })
    }

    /// Ends a hold as given back. Returns whether it was not over.
    pub(crate) fn release(&self) -> bool {
        self.advance(|stage| Some(Stage::Released { token: stage.token() }))
    }

    /// The agent says that it was given back, but not by its guard, which would have said so
    /// before.
    pub(crate) fn released_elsewhere(&self) {
        self.advance(|stage| {
            Some(match stage {
                Stage::Held(grant) => {
                    let lost = Lost { token: grant.token, reason: Reason::Released };
                    Stage::Lost { lost, told: true }
                }
                _ => Stage::Released { token: 0 },
            })
        });
    }

    /// The agent has no such hold: a wait is to be asked for again, a hold is lost.
    pub(crate) fn forget(&self) {
        self.advance(|stage| {
            Some(match stage {
                Stage::Held(grant) => Stage::Lost {
                    lost: Lost { token: grant.token, reason: Reason::Forgotten },
                    told: true,
                },
                _ => Stage::Forgotten,
            })
        });
    }

    /// A hold that is over stays over.
    fn advance(&self, to: impl FnOnce(&Stage) -> Option<Stage>) -> bool {
        self.stage.send_if_modified(|stage| {
            let next = if stage.is_over() { None } else { to(stage) };
            if next.is_some_and(|next| next.is_over()) {
                self.over.store(true, Ordering::Release);
            }
            next.map(|next| *stage = next).is_some()
        })
    }
}
