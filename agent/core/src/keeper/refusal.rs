//! Refusals, without words: the API says them to people.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use tenure_wire::{Code, Holder, LimitChanged, LostReason};
use uuid::Uuid;

use crate::model::{ClaimId, Denial, DenialRule, Failure, Full, Resource, Revocation, SessionId};

/// The reason why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// The agent stops or restarts.
    Stopping,
    /// The journal takes nothing new.
    Unrecorded(Arc<str>),
    Upstream(UpstreamError),
    /// Another user's session is as unknown as one that never was.
    SessionUnknown {
        session: Uuid,
        uid: u32,
    },
    SessionEnded {
        session: Uuid,
        why: Cow<'static, str>,
    },
    /// The session ended while its caller waited for a hold.
    SessionEndedInWait(ClaimId),
    /// The session ended while its caller waited for a checkpoint.
    SessionEndedInCheckpoint(SessionId),
    /// Resuming takes the secret of the session.
    WrongSecret(SessionId),
    /// A process tether needs a handle on the process.
    Unwatchable,
    Limit(Limit),
    /// The request id names a hold of another resource.
    RequestReused {
        request: String,
        resource: Resource,
    },
    /// The request id names a hold that nothing is known of any more.
    HoldForgotten(ClaimId),
    /// Lost for a reason, or released.
    HoldEnded {
        hold: ClaimId,
        lost: Option<LostReason>,
    },
    TakenAway {
        hold: ClaimId,
        resource: Resource,
        reason: LostReason,
    },
    /// Its longest duration was over before the grant was heard of.
    GrantedTooLate {
        hold: ClaimId,
        resource: Resource,
    },
    WaitLost {
        hold: ClaimId,
        resource: Resource,
        reason: LostReason,
    },
    WaitCancelled(ClaimId),
    /// Others had the resource all the time.
    WaitTimeout {
        hold: ClaimId,
        resource: Resource,
        waited: Duration,
        holder: Option<Box<Holder>>,
        limit_changed: Option<LimitChanged>,
    },
    /// Nobody could say in time whether the resource was free.
    WaitUnanswered {
        hold: ClaimId,
        error: UpstreamError,
        limit_changed: Option<LimitChanged>,
    },
    Contended {
        resource: Resource,
        holder: Option<Box<Holder>>,
        limit_changed: Option<LimitChanged>,
    },
    /// It was taken from this session, which may not have it for so much longer.
    Barred {
        resource: Resource,
        left: Duration,
        revocation: Arc<Revocation>,
    },
    /// Exclusive kinds are not re-entrant.
    ContendedByItself {
        hold: ClaimId,
        resource: Resource,
        holder: Box<Holder>,
    },
    /// A renewal failed; without a cause one before it did.
    CheckpointFailed(Option<Failure>),
}

/// The reason why the upstream gave no decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UpstreamError {
    Unavailable(String),
    /// It answers, and lets this agent not do that.
    Denied(Denial),
    /// No answer came while the caller waited.
    TimedOut,
    /// The record of earlier holds was lost: they may be valid for so long.
    Quarantined(Duration),
}

/// The limit that leaves no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// The policy lets the user have so many sessions.
    SessionsByRule {
        uid: u32,
        has: usize,
        max: usize,
    },
    /// The policy lets the user have so many holds.
    HoldsByRule {
        uid: u32,
        has: usize,
        max: usize,
    },
    Sessions(Full),
    Holds {
        uid: u32,
        full: Full,
    },
    /// `taken` counts the slots beyond the usual number of each page.
    Slots {
        uid: u32,
        asked: u32,
        taken: usize,
        full: Full,
    },
    /// The page of the session has no free slot.
    Page {
        session: SessionId,
        slots: usize,
    },
    Streams(SessionId),
}

impl Refusal {
    /// The class of the refusal, which programs branch on.
    pub fn code(&self) -> Code {
        match self {
            Refusal::Stopping => Code::Stopping,
            Refusal::Unrecorded(_) => Code::UpstreamUnavailable,
            Refusal::Upstream(error) | Refusal::WaitUnanswered { error, .. } => match error {
                UpstreamError::Denied(denial) => denied(denial),
                _ => Code::UpstreamUnavailable,
            },
            Refusal::CheckpointFailed(Some(Failure::Denied(denial))) => denied(denial),
            Refusal::CheckpointFailed(_) => Code::UpstreamUnavailable,
            Refusal::SessionUnknown { .. } => Code::SessionUnknown,
            Refusal::SessionEnded { .. }
            | Refusal::SessionEndedInWait(_)
            | Refusal::SessionEndedInCheckpoint(_) => Code::SessionLost,
            Refusal::WrongSecret(_) => Code::Unauthorized,
            Refusal::Unwatchable | Refusal::RequestReused { .. } => Code::Invalid,
            Refusal::Limit(_) => Code::QuotaExceeded,
            Refusal::HoldForgotten(_)
            | Refusal::HoldEnded { .. }
            | Refusal::TakenAway { .. }
            | Refusal::GrantedTooLate { .. }
            | Refusal::WaitLost { .. }
            | Refusal::WaitCancelled(_) => Code::HoldLost,
            Refusal::WaitTimeout { .. } => Code::WaitTimeout,
            Refusal::Contended { .. }
            | Refusal::ContendedByItself { .. }
            | Refusal::Barred { .. } => Code::Contended,
        }
    }

    /// The hold of the request, which its caller has not or no longer.
    pub fn hold(&self) -> Option<ClaimId> {
        match self {
            Refusal::SessionEndedInWait(hold)
            | Refusal::HoldEnded { hold, .. }
            | Refusal::TakenAway { hold, .. }
            | Refusal::GrantedTooLate { hold, .. }
            | Refusal::WaitLost { hold, .. }
            | Refusal::WaitCancelled(hold)
            | Refusal::WaitTimeout { hold, .. }
            | Refusal::WaitUnanswered { hold, .. } => Some(*hold),
            _ => None,
        }
    }

    /// The holder of the resource.
    pub fn holder(&self) -> Option<&Holder> {
        match self {
            Refusal::Contended { holder, .. } | Refusal::WaitTimeout { holder, .. } => {
                holder.as_deref()
            }
            Refusal::ContendedByItself { holder, .. } => Some(holder),
            _ => None,
        }
    }

    /// The request changed the limit of its semaphore all the same.
    pub fn limit_changed(&self) -> Option<LimitChanged> {
        match self {
            Refusal::Contended { limit_changed, .. }
            | Refusal::WaitTimeout { limit_changed, .. }
            | Refusal::WaitUnanswered { limit_changed, .. } => *limit_changed,
            _ => None,
        }
    }

    /// The refusal of a request whose call failed.
    pub(super) fn of_failure(failure: Failure) -> Refusal {
        Refusal::Upstream(UpstreamError::from(failure))
    }
}

impl From<Failure> for UpstreamError {
    fn from(failure: Failure) -> UpstreamError {
        match failure {
            Failure::Unavailable(cause) | Failure::Unknown(cause) => {
                UpstreamError::Unavailable(cause)
            }
            Failure::Denied(denial) => UpstreamError::Denied(denial),
        }
    }
}

fn denied(denial: &Denial) -> Code {
    match denial.rule {
        DenialRule::Unauthorized => Code::Unauthorized,
        DenialRule::Forbidden => Code::Forbidden,
        DenialRule::Invalid => Code::Invalid,
        DenialRule::Quota(_) => Code::QuotaExceeded,
    }
}
