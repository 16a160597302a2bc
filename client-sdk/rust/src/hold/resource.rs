//! A resource as a session would like to have it.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::{AcquireError, Campaign, Hold, RunError};
use crate::backoff::Backoff;
use crate::client::{AcquireReply, CallError};
use crate::session::{Session, milliseconds};
use crate::wire::{Acquire, Attributes, Code, DEFAULT_PROJECT, Holder, Kind, Standing, Wait};

/// How long a single try outlasts a restart of the agent.
const RESTART_PATIENCE: Duration = Duration::from_secs(2);
/// How much later than asked for a wait ends when the agent does not say what came of it.
const VERDICT_MAX: Duration = Duration::from_secs(1);

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
    pub(super) session: Session,
    pub(super) want: Acquire,
}

impl Resource {
    pub(crate) fn new(session: Session, kind: Kind, name: Option<String>) -> Resource {
        let want = Acquire {
            session: session.id(),
            kind,
            name,
            wait: Wait::None,
            behind_own: false,
            fleet: false,
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

    /// It has to exclude all hosts: refused (`forbidden`) where the agent's store is this host's alone. Default: the
    /// agent's setting `require`.
    pub fn fleet(mut self) -> Resource {
        self.want.fleet = true;
        self
    }

    /// How long the hold is kept after its grant whatever becomes of the program, in whole ms: no other host runs
    /// the same job again whose clock is a little late. Default: no longer than the program wants it.
    ///
    /// ```no_run
    /// # async fn example(session: tenure::Session) -> Result<(), tenure::AcquireError> {
    /// # async fn report() {}
    /// use std::time::Duration;
    ///
    /// let nightly = session.leader("report").hold_at_least(Duration::from_secs(60));
    /// if let Some(_hold) = nightly.try_acquire().await? {
    ///     report().await;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn hold_at_least(mut self, least: Duration) -> Resource {
        self.want.hold_at_least_ms = Some(milliseconds(least));
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
    /// [`AcquireError`]; [`HeldBySelf`](AcquireError::HeldBySelf) at once when the kind is exclusive, and this task or
    /// thread has it. Other tasks and threads of the program wait in the order in which they ask, as other programs do.
    ///
    /// ```no_run
    /// # async fn example(session: tenure::Session) -> Result<(), tenure::AcquireError> {
    /// let hold = session.leader("cleanup").acquire().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn acquire(&self) -> Result<Hold, AcquireError> {
        self.wait(None).await
    }

    /// Waits at most that long, and up to a second more for the agent to say what came of it. A wait that is not
    /// granted in time leaves nothing behind.
    ///
    /// # Errors
    ///
    /// [`AcquireError::TimedOut`] when others had it all the time; [`AcquireError::Call`] when the agent or its
    /// upstream gave no answer; and those of [`acquire`](Resource::acquire).
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
        let after = patience.saturating_add(VERDICT_MAX);
        match tokio::time::timeout(after, self.wait(Some(patience))).await {
            Ok(result) => result,
            Err(_) => {
                let path = self.session.client().path().to_owned();
                Err(CallError::TimedOut { path, after }.into())
            }
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

    pub(super) fn session(&self) -> &Session {
        &self.session
    }
}

impl fmt::Debug for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Resource").field(&self.what()).finish()
    }
}
