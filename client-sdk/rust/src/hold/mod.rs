//! Holds, and how to come by them.

mod asker;
mod asking;
mod campaign;
mod cell;
mod claim;
mod error;
mod inquiry;
mod lost;
mod resource;
mod standby;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

pub(crate) use self::asker::Asker;
pub use self::campaign::Campaign;
pub(crate) use self::cell::{Cell, Grant, Stage};
use self::claim::Claim;
pub use self::error::{AcquireError, ReleaseError, RunError};
pub use self::lost::{Lost, Reason};
pub use self::resource::{Attempt, Resource};
use crate::page::check_clock;
use crate::session::SessionState;
use crate::wire::{Kind, LimitChanged};

/// How long work that has ended waits for an agent that hangs; giving back then goes on in the background.
const GIVE_BACK_MAX: Duration = Duration::from_secs(1);

/// How long the report of a loss waits for the agent's reason. It follows what the page says within milliseconds.
const REASON_MAX: Duration = Duration::from_secs(1);

/// Something held: leadership of a role, a project's master, a lease, a permit.
///
/// It is a lease with a fence. Do guarded work only while it [is held](Hold::is_held), stop when
/// it is [lost](Hold::lost), and hand its [token](Hold::token) to whatever the work writes to, so
/// that a late write can be refused. Once lost it stays lost.
///
/// Dropping it gives it back in the background; [`release`](Hold::release) waits for that.
///
/// ```no_run
/// # async fn example(session: tenure::Session) -> Result<(), Box<dyn std::error::Error>> {
/// # async fn work(token: u64) {}
/// let hold = session.leader("cleanup").acquire().await?;
/// match hold.guard(work(hold.token())).await {
///     Ok(()) => hold.release().await?,
///     Err(lost) => eprintln!("{lost}"),
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "a hold is given back when it is dropped"]
pub struct Hold {
    claim: Claim,
    kind: Kind,
    grant: Grant,
}

impl Hold {
    /// Its id.
    pub fn id(&self) -> Uuid {
        self.claim.cell.id
    }

    /// The kind.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The name; of a master the project.
    pub fn name(&self) -> &str {
        &self.claim.cell.name
    }

    /// The fencing token of the grant: greater than every token granted before on the upstream.
    pub fn token(&self) -> u64 {
        self.grant.token
    }

    /// How long the hold outlives its last beat.
    pub fn ttl(&self) -> Duration {
        Duration::from_millis(self.grant.ttl_ms)
    }

    /// Semaphore only: the permits in all, as of the grant.
    pub fn limit(&self) -> Option<u32> {
        self.grant.limit
    }

    /// Semaphore only: asking for this hold changed the limit, for everybody.
    pub fn limit_changed(&self) -> Option<LimitChanged> {
        self.grant.limit_changed
    }

    /// True if it is valid at this instant, by the session's page: one load and one clock read,
    /// some 40 ns, right even when the agent is stopped or this program was. False in a process that was forked off the
    /// one which acquired it.
    #[inline]
    pub fn is_held(&self) -> bool {
        let cell = &self.claim.cell;
        !cell.is_over() && self.claim.core.shared.with_page(|page| page.held(cell.slot(), cell.id))
    }

    /// Fails unless it is valid at this instant; for loops. As fast as [`is_held`](Hold::is_held).
    ///
    /// # Errors
    ///
    /// [`Lost`], at once: with [`Reason::Untold`] where the agent's reason is still on its way.
    ///
    /// ```no_run
    /// # async fn example(hold: tenure::Hold) -> Result<(), tenure::Lost> {
    /// for batch in 0..100 {
    ///     hold.check()?;
    ///     println!("batch {batch}, fence {}", hold.token());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn check(&self) -> Result<(), Lost> {
        if self.is_held() || self.is_shown() { Ok(()) } else { Err(self.loss()) }
    }

    /// Looks again whether it is valid: on a new page of a restarted agent, or in another slot, it may be.
    #[cold]
    pub(crate) fn is_shown(&self) -> bool {
        let cell = &self.claim.cell;
        !cell.is_over() && self.claim.core.shared.shows(cell)
    }

    /// How long it is valid from now on unless renewed; zero when it is not held.
    pub fn valid_for(&self) -> Duration {
        let cell = &self.claim.cell;
        if cell.is_over() {
            return Duration::ZERO;
        }
        self.claim.core.shared.with_page(|page| page.valid_for(cell.slot(), cell.id))
    }

    /// Waits until it is lost: the agent says so, or valid-until passes without a word from it.
    /// At most a timer's granularity late; after a sleep of the machine at most a second.
    ///
    /// The future borrows nothing, and never completes when the hold is released, or dropped while it is
    /// held.
    ///
    /// ```no_run
    /// # async fn example(hold: tenure::Hold) {
    /// tokio::spawn(async move {
    ///     let lost = hold.lost().await;
    ///     eprintln!("{}: {lost}", hold.name());
    /// });
    /// # }
    /// ```
    pub fn lost(&self) -> impl Future<Output = Lost> + Send + use<> {
        let forked = self.forked();
        let mut stage = self.claim.cell.subscribe();
        async move {
            if let Some(lost) = forked {
                return lost;
            }
            if let Ok(stage) = stage.wait_for(|stage| matches!(stage, Stage::Lost { .. })).await
                && let Stage::Lost { lost, .. } = *stage
            {
                return lost;
            }
            std::future::pending().await
        }
    }

    /// Waits until it is over: lost, released or dropped. The future borrows nothing.
    ///
    /// ```no_run
    /// # async fn example(hold: tenure::Hold) {
    /// let over = hold.over();
    /// tokio::spawn(async move {
    ///     tokio::select! {
    ///         () = over => {}
    ///         () = async { /* guarded work */ } => {}
    ///     }
    /// });
    /// # }
    /// ```
    pub fn over(&self) -> impl Future<Output = ()> + Send + use<> {
        let forked = self.forked();
        let mut stage = self.claim.cell.subscribe();
        async move {
            if forked.is_some() {
                return;
            }
            // An error means that nobody has it any more.
            let _ = stage.wait_for(Stage::is_over).await;
        }
    }

    /// Waits until the agent says that renewals get no answer, and returns how long the hold is valid
    /// unless they do again. Completes at once while that is so. The future borrows nothing, and never
    /// completes once the hold is over.
    ///
    /// ```no_run
    /// # async fn example(hold: tenure::Hold) {
    /// let left = hold.jeopardy().await;
    /// eprintln!("{}: no renewal; {left:?} left, so nothing long is begun now", hold.name());
    /// # }
    /// ```
    pub fn jeopardy(&self) -> impl Future<Output = Duration> + Send + use<> {
        let mut jeopardy = self.claim.cell.jeopardy();
        let (shared, cell) = (Arc::clone(&self.claim.core.shared), Arc::clone(&self.claim.cell));
        async move {
            let told = jeopardy.wait_for(|is| *is).await.is_ok();
            if told && !cell.is_over() {
                return shared.with_page(|page| page.valid_for(cell.slot(), cell.id));
            }
            std::future::pending().await
        }
    }

    /// Runs `work`, and drops it where it stands when the hold is lost.
    ///
    /// # Errors
    ///
    /// [`Lost`], also when the work ended by itself but only after valid-until: what it did last
    /// was not protected.
    ///
    /// ```no_run
    /// # async fn example(hold: tenure::Hold) -> Result<(), tenure::Lost> {
    /// let rows = hold.guard(async { 42 }).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn guard<F: Future>(&self, work: F) -> Result<F::Output, Lost> {
        let done = tokio::select! {
            biased;
            _ = self.lost() => None,
            done = work => Some(done),
        };
        match done {
            Some(done) if self.is_held() || self.is_shown() => Ok(done),
            // The work has been dropped.
            _ => Err(self.explained().await),
        }
    }

    /// Gives it back, so that the next waiter anywhere has it at once. Stop the guarded work
    /// before.
    ///
    /// # Errors
    ///
    /// [`ReleaseError::Lost`] when it had been lost before, by its page or by the agent's answer;
    /// [`ReleaseError::Call`] when the agent could not be asked, which is then tried again in the background.
    ///
    /// ```no_run
    /// # async fn example(hold: tenure::Hold) -> Result<(), tenure::ReleaseError> {
    /// hold.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn release(self) -> Result<(), ReleaseError> {
        let cell = &self.claim.cell;
        if self.forked().is_none() && matches!(cell.stage(), Stage::Released { .. }) {
            return Ok(());
        }
        if !self.is_held() && !self.is_shown() {
            let lost = self.explained().await;
            // Without a connection a restarted agent may have it still, and show it in another slot.
            if cell.is_over() || self.forked().is_some() || self.claim.core.shared.is_connected() {
                return Err(lost.into());
            }
        }
        let reason = match self.claim.release().await? {
            None => match cell.stage() {
                // Between the look at the page and the call.
                Stage::Lost { lost, .. } => lost.reason,
                _ => return Ok(()),
            },
            Some(Reason::Untold) => {
                self.told(|stage| matches!(stage, Stage::Lost { told: true, .. })).await;
                if let Stage::Lost { lost, .. } = cell.stage() {
                    lost.reason
                } else {
                    Reason::Untold
                }
            }
            Some(reason) => reason,
        };
        Err(Lost { token: self.token(), reason }.into())
    }

    /// Why it is not held: what the agent or this crate has said, else its valid-until, by which it is lost for good.
    #[cold]
    pub(crate) fn loss(&self) -> Lost {
        if let Some(lost) = self.forked() {
            return lost;
        }
        let cell = &self.claim.cell;
        self.claim.core.shared.lapse(cell);
        let reason = match cell.stage() {
            Stage::Lost { lost, .. } => return lost,
            Stage::Released { .. } => Reason::Released,
            _ => Reason::Untold,
        };
        Lost { token: self.token(), reason }
    }

    /// The loss of a child of the process that acquired it.
    pub(crate) fn forked(&self) -> Option<Lost> {
        let lost = Lost { token: self.token(), reason: Reason::Forked };
        self.claim.core.shared.is_forked().then_some(lost)
    }

    /// The same with the agent's reason, where that comes in time: at valid-until a hold is over at once, and the
    /// agent's reason, which may be another than the clock, follows.
    pub(crate) async fn explained(&self) -> Lost {
        if self.forked().is_none() {
            let told = |stage: &Stage| {
                matches!(stage, Stage::Lost { told: true, .. } | Stage::Released { .. })
            };
            self.told(told).await;
        }
        self.loss()
    }

    /// Waits for such a stage as long as the agent could tell of it.
    async fn told(&self, such: impl FnMut(&Stage) -> bool) {
        let mut stage = self.claim.cell.subscribe();
        let mut state = self.claim.core.shared.state();
        let _ = tokio::time::timeout(REASON_MAX, async {
            tokio::select! {
                _ = stage.wait_for(such) => {}
                // Nobody is there who could tell.
                _ = state.wait_for(|state| *state != SessionState::Connected) => {}
            }
        })
        .await;
    }

    /// Gives it back, whoever else has this guard.
    async fn give_back(&self) {
        // A call that fails, or is not answered in time, goes on in the background.
        let _ = tokio::time::timeout(GIVE_BACK_MAX, self.claim.release()).await;
    }

    /// Makes a guard of a granted claim.
    fn new(claim: Claim, kind: Kind, grant: Grant) -> Result<Hold, AcquireError> {
        // When this was asked is not known here. A clock that is ahead shows no hold as valid.
        check_clock(0, grant.valid_ms, grant.valid_until_ns)?;
        claim.core.shared.expect_on_page(&claim.cell);
        Ok(Hold { claim, kind, grant })
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold")
            .field("id", &self.id())
            .field("kind", &self.kind)
            .field("name", &self.name())
            .field("token", &self.token())
            .finish_non_exhaustive()
    }
}
