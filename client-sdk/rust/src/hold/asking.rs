//! How a resource is asked for, over and over.

use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::inquiry::Inquiry;
use super::{AcquireError, Asker, Cell, Claim, Grant, Hold, Reason, Resource, Stage};
use crate::backoff::Backoff;
use crate::client::{AcquireReply, CallError};
use crate::page::boottime_ns;
use crate::wire::{Acquire, Acquired, Code, Kind, Problem, Wait};

/// The longest that an agent's advice to wait is followed.
const ADVICE_MAX: Duration = Duration::from_secs(5);

impl Resource {
    /// The agent ends a wait that has a patience, since it knows whether the resource was taken.
    pub(super) async fn wait(&self, patience: Option<Duration>) -> Result<Hold, AcquireError> {
        let deadline = Deadline::of(patience);
        // A task waits in turn for the hold of another task, and is refused if it holds the resource itself now. A hold
        // that it is granted later, by a concurrent call, may still be released.
        let asker = Asker::current();
        let own = self.own();
        let mine = own.iter().find(|cell| cell.asker() == asker).map(|cell| cell.id);
        let mut behind_own = mine.is_none() && !own.is_empty();
        // Agents of earlier versions let nothing wait behind a hold of the same session.
        let mut may_be_behind = true;
        let mut inquiry = self.waiting(behind_own);
        let mut place: Option<Claim> = None;
        let mut backoff = Backoff::new();
        loop {
            self.alive()?;
            let error = match inquiry.ask_within(deadline.left()).await {
                Ok(AcquireReply::Acquired(acquired)) => return self.granted(acquired, place),
                Ok(reply @ AcquireReply::Waiting(_)) => {
                    let cell = self.adopt(&reply);
                    match place.take().filter(|place| place.cell.id == cell.id) {
                        // The grant may have been told before anybody here listened for it: ask
                        // once more.
                        None => place = Some(self.claim(cell)),
                        Some(claim) => match claim.settled().await {
                            Stage::Held(grant) => return Hold::new(claim, self.want.kind, grant),
                            Stage::Lost { lost, .. } => return Err(self.ended(lost.reason)),
                            Stage::Released { .. } => match patience.filter(|_| deadline.is_over())
                            {
                                Some(patience) => return Err(self.timed_out(patience)),
                                None => return Err(self.ended(Reason::Released)),
                            },
                            // The same request again, not to be granted twice.
                            Stage::Forgotten | Stage::Waiting { .. } => {}
                        },
                    }
                    continue;
                }
                Err(error) => error,
            };
            match (&error, patience) {
                (CallError::Refused(problem), Some(patience))
                    if problem.code == Code::WaitTimeout =>
                {
                    return Err(self.timed_out(patience));
                }
                // The request was granted, and lost before this heard of it.
                (CallError::Refused(problem), _) if problem.code == Code::HoldLost => {
                    inquiry = self.waiting(behind_own);
                    place = None;
                }
                (CallError::Refused(problem), _)
                    if problem.field.as_deref() == Some("behind_own") && behind_own =>
                {
                    (behind_own, may_be_behind) = (false, false);
                    inquiry = self.waiting(behind_own);
                }
                // Another task of this program holds the resource.
                (CallError::Refused(problem), _)
                    if problem.code == Code::Contended
                        && may_be_behind
                        && !behind_own
                        && holder(problem) != mine =>
                {
                    behind_own = true;
                    inquiry = self.waiting(behind_own);
                    continue;
                }
                (CallError::Refused(problem), _)
                    if problem.code == Code::Contended
                        && self.is_on_its_way_back(problem)
                        && !deadline.is_over() => {}
                (error, _) if error.is_transient() && !deadline.is_over() => {}
                _ => return Err(self.refused(error)),
            }
            let pause = advice(&error).max(backoff.step());
            #[expect(
                clippy::disallowed_methods,
                reason = "a pause before a repetition, 5 s at most"
            )]
            tokio::time::sleep(deadline.left().map_or(pause, |left| pause.min(left))).await;
        }
    }

    /// A place in the queue that has become the grant stays the one claim on it: a second one
    /// would give it back when the first is dropped.
    pub(super) fn granted(
        &self,
        acquired: Acquired,
        place: Option<Claim>,
    ) -> Result<Hold, AcquireError> {
        let grant = Grant::from(&acquired);
        let cell = self.adopt(&AcquireReply::Acquired(acquired));
        let claim = match place {
            Some(place) if place.cell.id == cell.id => place,
            _ => self.claim(cell),
        };
        Hold::new(claim, self.want.kind, grant)
    }

    pub(super) fn adopt(&self, reply: &AcquireReply) -> Arc<Cell> {
        self.session.core().shared.adopt(reply)
    }

    pub(super) fn claim(&self, cell: Arc<Cell>) -> Claim {
        Claim::new(self.session.core(), cell)
    }

    /// True if a hold of this session that is being given back stands in the way.
    fn is_on_its_way_back(&self, problem: &Problem) -> bool {
        let cell = |hold: Uuid| self.session.core().shared.cell(hold);
        holder(problem).is_some_and(|hold| cell(hold).is_none_or(|cell| cell.is_over()))
    }

    pub(super) fn inquiry(&self, wait: Wait) -> Inquiry {
        self.inquire(Acquire { wait, ..self.want.clone() })
    }

    /// A request for a place in the queue. Agents of earlier versions refuse unknown fields, so that `behind_own` is
    /// sent only where it is needed.
    fn waiting(&self, behind_own: bool) -> Inquiry {
        self.inquire(Acquire { wait: Wait::Queue, behind_own, ..self.want.clone() })
    }

    fn inquire(&self, acquire: Acquire) -> Inquiry {
        let request = Some(Uuid::new_v4().to_string());
        Inquiry::new(self.session.core().clone(), Acquire { request, ..acquire })
    }

    /// This session's holds of an exclusive resource: two for a moment, when the former one was lost.
    fn own(&self) -> Vec<Arc<Cell>> {
        match self.want.kind {
            Kind::Semaphore => Vec::new(),
            kind => self.session.core().shared.held(kind, self.want.name.as_deref()),
        }
    }

    pub(super) fn alive(&self) -> Result<(), AcquireError> {
        self.session.core().shared.gone().map_or(Ok(()), |gone| Err(gone.into()))
    }

    fn ended(&self, reason: Reason) -> AcquireError {
        match self.session.core().shared.gone() {
            Some(gone) => gone.into(),
            None => AcquireError::WaitEnded { what: self.what(), reason },
        }
    }

    fn timed_out(&self, after: Duration) -> AcquireError {
        AcquireError::TimedOut { what: self.what(), after }
    }

    pub(super) fn refused(&self, error: CallError) -> AcquireError {
        match error {
            CallError::Refused(problem) if problem.code == Code::Contended => {
                AcquireError::HeldBySelf(problem)
            }
            error if error.is_session_gone() => {
                self.session.core().shared.gone().map_or_else(|| error.into(), Into::into)
            }
            error => error.into(),
        }
    }

    pub(super) fn what(&self) -> String {
        match &self.want.name {
            Some(name) => format!("{}/{name}", self.want.kind),
            None => self.want.kind.to_string(),
        }
    }
}

/// The end of a patience.
struct Deadline {
    at_ns: Option<u64>,
}

impl Deadline {
    fn of(patience: Option<Duration>) -> Deadline {
        let ns = |patience: Duration| u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX);
        Deadline { at_ns: patience.map(|patience| boottime_ns().saturating_add(ns(patience))) }
    }

    /// `None` without a patience.
    fn left(&self) -> Option<Duration> {
        Some(Duration::from_nanos(self.at_ns?.saturating_sub(boottime_ns())))
    }

    fn is_over(&self) -> bool {
        self.left().is_some_and(|left| left.is_zero())
    }
}

/// The hold in the way, if its holder is the same user.
fn holder(problem: &Problem) -> Option<Uuid> {
    problem.holder.as_ref().and_then(|holder| holder.hold)
}

/// How long the agent says one should wait.
fn advice(error: &CallError) -> Duration {
    let ms = error.problem().and_then(|problem| problem.retry_after_ms).unwrap_or(0);
    Duration::from_millis(ms).min(ADVICE_MAX)
}
