//! A resource as a session would like to have it.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::inquiry::Inquiry;
use super::{AcquireError, Campaign, Cell, Claim, Grant, Hold, Reason, RunError, Stage};
use crate::backoff::Backoff;
use crate::client::{AcquireReply, CallError};
use crate::session::{Session, milliseconds};
use crate::wire::{
    Acquire, Acquired, Attributes, Code, DEFAULT_PROJECT, Holder, Kind, Problem, Standing, Wait,
};

/// How long a single try outlasts a restart of the agent.
const RESTART_PATIENCE: Duration = Duration::from_secs(2);
/// The longest that an agent's advice to wait is followed.
const ADVICE_MAX: Duration = Duration::from_secs(5);

/// The outcome of a single try.
#[derive(Debug)]
pub enum Attempt {
    /// Granted.
    Held(Hold),
    /// Somebody has it; who, if the upstream says.
    Contended(Option<Holder>),
}

/// A resource as a session would like to have it. Made by [`Session`]; cheap to clone.
///
/// ```no_run
/// # async fn example(session: tenure::Session) -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
///
/// let gpu = session.semaphore("gpu", 2).ttl(Duration::from_secs(20));
/// if let Some(hold) = gpu.try_acquire().await? {
///     println!("a permit with token {}", hold.token());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "nothing is asked for before `try_acquire`, `acquire` or `campaign`"]
pub struct Resource {
    session: Session,
    want: Acquire,
}

impl Resource {
    pub(crate) fn new(session: Session, kind: Kind, name: Option<String>) -> Resource {
        let want = Acquire {
            session: session.id(),
            kind,
            name,
            wait: Wait::None,
            timeout_ms: None,
            request: None,
            ttl_ms: None,
            max_hold_ms: None,
            hold_at_least_ms: None,
            limit: None,
            priority: None,
            grace_ms: None,
            attributes: None,
        };
        Resource { session, want }
    }

    /// How long the hold outlives its last beat, in whole ms. Default by kind, unless the agent's
    /// configuration says otherwise: leader and semaphore 30 s, master 90 s, lease 300 s.
    pub fn ttl(mut self, ttl: Duration) -> Resource {
        self.want.ttl_ms = Some(milliseconds(ttl));
        self
    }

    /// How long the hold may last in all, in whole ms. Default: no limit.
    pub fn max_hold(mut self, max_hold: Duration) -> Resource {
        self.want.max_hold_ms = Some(milliseconds(max_hold));
        self
    }

    /// Master only, else refused as `invalid`: preempts a lower one. Default 0, and 100 for a session of
    /// the surface `claude_desktop`.
    pub fn priority(mut self, priority: i32) -> Resource {
        self.want.priority = Some(priority);
        self
    }

    /// Lease only, else refused as `invalid`: how long after expiry only the former holder may
    /// have it back, in whole ms. Default 60 s.
    pub fn grace(mut self, grace: Duration) -> Resource {
        self.want.grace_ms = Some(milliseconds(grace));
        self
    }

    /// Lease only, else refused as `invalid`: what the routing table says.
    pub fn attributes(mut self, attributes: Attributes) -> Resource {
        self.want.attributes = Some(attributes);
        self
    }

    pub(crate) fn limit(mut self, permits: u32) -> Resource {
        self.want.limit = Some(permits);
        self
    }

    /// Tries once; `None` when somebody has it. [`attempt`](Resource::attempt) says who.
    ///
    /// # Errors
    ///
    /// [`AcquireError`]. A restart of the agent is outlasted for 2 s. An attempt whose fate is
    /// unknown is found out in the background and given back.
    ///
    /// ```no_run
    /// # async fn example(session: tenure::Session) -> Result<(), tenure::AcquireError> {
    /// match session.leader("cleanup").try_acquire().await? {
    ///     Some(hold) => println!("leader with token {}", hold.token()),
    ///     None => println!("somebody else leads"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn try_acquire(&self) -> Result<Option<Hold>, AcquireError> {
        match self.attempt().await? {
            Attempt::Held(hold) => Ok(Some(hold)),
            Attempt::Contended(_) => Ok(None),
        }
    }

    /// Tries once, and says who has it otherwise: also when that is this session.
    ///
    /// # Errors
    ///
    /// Those of [`try_acquire`](Resource::try_acquire).
    ///
    /// ```no_run
    /// # async fn example(session: tenure::Session) -> Result<(), tenure::AcquireError> {
    /// if let tenure::Attempt::Contended(Some(holder)) = session.master().attempt().await? {
    ///     println!("{} on {} is master", holder.name, holder.host);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn attempt(&self) -> Result<Attempt, AcquireError> {
        let mut inquiry = self.inquiry(Wait::None);
        let mut backoff = Backoff::new();
        let mut waited = Duration::ZERO;
        loop {
            self.alive()?;
            let error = match inquiry.ask().await {
                Ok(AcquireReply::Acquired(acquired)) => {
                    return self.granted(acquired, None).map(Attempt::Held);
                }
                Ok(reply @ AcquireReply::Waiting(_)) => {
                    // Dropped, and thereby given back.
                    self.claim(self.adopt(&reply));
                    let path = self.session.client().path();
                    return Err(
                        CallError::protocol(path, "it makes wait who does not want to").into()
                    );
                }
                Err(error) => error,
            };
            match error {
                CallError::Refused(problem) if problem.code == Code::Contended => {
                    return Ok(Attempt::Contended(problem.holder));
                }
                CallError::Unreachable { .. } if waited < RESTART_PATIENCE => {
                    let step = backoff.step();
                    waited += step;
                    #[expect(clippy::disallowed_methods, reason = "a pause before a repetition")]
                    tokio::time::sleep(step).await;
                }
                error => return Err(self.refused(error)),
            }
        }
    }

    /// Waits until it is granted, however long that takes: restarts of the agent and times
    /// without an upstream are outlasted.
    ///
    /// Dropping the future cancels the wait and leaves nothing behind.
    ///
    /// # Errors
    ///
    /// [`AcquireError`]; [`HeldBySelf`](AcquireError::HeldBySelf) at once when the kind is
    /// exclusive and this session has it.
    ///
    /// ```no_run
    /// # async fn example(session: tenure::Session) -> Result<(), tenure::AcquireError> {
    /// let hold = session.leader("cleanup").acquire().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn acquire(&self) -> Result<Hold, AcquireError> {
        let mut inquiry = self.inquiry(Wait::Queue);
        let mut place: Option<Claim> = None;
        let mut backoff = Backoff::new();
        loop {
            self.alive()?;
            let error = match inquiry.ask().await {
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
                            Stage::Released => return Err(self.ended(Reason::Released)),
                            // The same request again, not to be granted twice.
                            Stage::Forgotten | Stage::Waiting { .. } => {}
                        },
                    }
                    continue;
                }
                Err(error) => error,
            };
            match &error {
                // The request was granted, and lost before this heard of it.
                CallError::Refused(problem) if problem.code == Code::HoldLost => {
                    inquiry = self.inquiry(Wait::Queue);
                    place = None;
                }
                CallError::Refused(problem)
                    if problem.code == Code::Contended && self.is_on_its_way_back(problem) => {}
                error if error.is_transient() => {}
                _ => return Err(self.refused(error)),
            }
            #[expect(
                clippy::disallowed_methods,
                reason = "a pause before a repetition, 5 s at most"
            )]
            tokio::time::sleep(advice(&error).max(backoff.step())).await;
        }
    }

    /// Waits at most that long. A wait that is not granted in time leaves nothing behind.
    ///
    /// # Errors
    ///
    /// [`AcquireError::TimedOut`], and those of [`acquire`](Resource::acquire).
    ///
    /// ```no_run
    /// # async fn example(session: tenure::Session) -> Result<(), tenure::AcquireError> {
    /// use std::time::Duration;
    ///
    /// let hold = session.leader("cleanup").acquire_timeout(Duration::from_secs(5)).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn acquire_timeout(&self, patience: Duration) -> Result<Hold, AcquireError> {
        match tokio::time::timeout(patience, self.acquire()).await {
            Ok(result) => result,
            Err(_) => Err(AcquireError::TimedOut { what: self.what(), after: patience }),
        }
    }

    /// Waits until it is granted, does the work, and gives it back. The work is dropped where it stands
    /// when the hold is lost. The future borrows nothing; dropping it drops the work, and gives back in the
    /// background.
    ///
    /// # Errors
    ///
    /// [`RunError`]. What becomes of the work itself is the value.
    ///
    /// ```no_run
    /// # async fn example(session: tenure::Session) -> Result<(), tenure::RunError> {
    /// # async fn clean_up(token: u64) -> u64 { token }
    /// let rows = session.leader("cleanup").run(|hold| async move {
    ///     clean_up(hold.token()).await
    /// });
    /// println!("{} rows", rows.await?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn run<F, W>(
        &self,
        work: F,
    ) -> impl Future<Output = Result<W::Output, RunError>> + use<F, W>
    where
        F: FnOnce(Arc<Hold>) -> W,
        W: Future,
    {
        let resource = self.clone();
        async move {
            let hold = Arc::new(resource.acquire().await?);
            let done = hold.guard(work(Arc::clone(&hold))).await;
            hold.give_back().await;
            Ok(done?)
        }
    }

    /// Stands for it for good: a stream of terms, each a [`Hold`] of its own with a token of its
    /// own. After a term is over the campaign waits for the next one.
    ///
    /// ```no_run
    /// # async fn example(session: tenure::Session) -> Result<(), tenure::AcquireError> {
    /// # async fn lead(token: u64) {}
    /// let mut campaign = session.leader("cleanup").campaign();
    /// while let Some(term) = campaign.next().await {
    ///     let hold = term?;
    ///     if let Err(lost) = hold.guard(lead(hold.token())).await {
    ///         eprintln!("{lost}");
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn campaign(&self) -> Campaign {
        Campaign::new(self.clone())
    }

    /// Its holders and waiters, across the fleet.
    ///
    /// # Errors
    ///
    /// [`CallError`]; `upstream_unavailable`.
    ///
    /// ```no_run
    /// # async fn example(session: tenure::Session) -> Result<(), tenure::client::CallError> {
    /// for holder in session.semaphore("gpu", 2).standing().await?.holders {
    ///     println!("{} on {}", holder.name, holder.host);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn standing(&self) -> Result<Standing, CallError> {
        let register = &self.session.core().shared.register;
        let name = self.want.name.as_deref().or(register.project.as_deref());
        let tenant = register.tenant.as_deref();
        self.session
            .client()
            .standing(self.want.kind, name.unwrap_or(DEFAULT_PROJECT), tenant)
            .await
    }

    /// A place in the queue that has become the grant stays the one claim on it: a second one
    /// would give it back when the first is dropped.
    fn granted(&self, acquired: Acquired, place: Option<Claim>) -> Result<Hold, AcquireError> {
        let grant = Grant::from(&acquired);
        let cell = self.adopt(&AcquireReply::Acquired(acquired));
        let claim = match place {
            Some(place) if place.cell.id == cell.id => place,
            _ => self.claim(cell),
        };
        Hold::new(claim, self.want.kind, grant)
    }

    fn adopt(&self, reply: &AcquireReply) -> Arc<Cell> {
        self.session.core().shared.adopt(reply)
    }

    fn claim(&self, cell: Arc<Cell>) -> Claim {
        Claim::new(self.session.core(), cell)
    }

    /// True if a hold of this session that is being given back stands in the way.
    fn is_on_its_way_back(&self, problem: &Problem) -> bool {
        let holder = problem.holder.as_ref().and_then(|holder| holder.hold);
        let cell = |hold: Uuid| self.session.core().shared.cell(hold);
        holder.is_some_and(|hold| cell(hold).is_none_or(|cell| cell.is_over()))
    }

    fn inquiry(&self, wait: Wait) -> Inquiry {
        let request = Some(Uuid::new_v4().to_string());
        let acquire = Acquire { wait, request, ..self.want.clone() };
        Inquiry::new(self.session.core().clone(), acquire)
    }

    fn alive(&self) -> Result<(), AcquireError> {
        self.session.core().shared.gone().map_or(Ok(()), |gone| Err(gone.into()))
    }

    fn ended(&self, reason: Reason) -> AcquireError {
        match self.session.core().shared.gone() {
            Some(gone) => gone.into(),
            None => AcquireError::WaitEnded { what: self.what(), reason },
        }
    }

    fn refused(&self, error: CallError) -> AcquireError {
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

    fn what(&self) -> String {
        match &self.want.name {
            Some(name) => format!("{}/{name}", self.want.kind),
            None => self.want.kind.to_string(),
        }
    }

    pub(super) fn session(&self) -> &Session {
        &self.session
    }
}

/// How long the agent says one should wait.
fn advice(error: &CallError) -> Duration {
    let ms = error.problem().and_then(|problem| problem.retry_after_ms).unwrap_or(0);
    Duration::from_millis(ms).min(ADVICE_MAX)
}

impl fmt::Debug for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Resource").field(&self.what()).finish()
    }
}
