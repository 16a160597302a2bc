//! For threads, without a runtime of the program's own.
//!
//! [`open`] starts a runtime with one thread, which keeps the session's event stream open. Resources are
//! described as with the asynchronous [`Session`](crate::Session), to which this one dereferences.
//!
//! ```no_run
//! # fn clean_up(token: u64) {}
//! let session = tenure::blocking::open(None, |agent| agent.session().name("nightly"))?;
//! session.run(&session.leader("cleanup"), |hold| clean_up(hold.token()))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A thread cannot be stopped from outside: work goes on after a loss. Call [`Hold::check`](crate::Hold::check)
//! between its steps. Like Tokio's own, these functions panic when they are called from asynchronous code.

use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};

use crate::client::CallError;
use crate::wire::Holder;
use crate::{
    AcquireError, Agent, Attempt, Lost, ReleaseError, Resource, RunError, SessionBuilder,
    SessionError,
};

/// How long a drop waits for the agent; the end of the session's stream tells it what it has not heard.
const END_PATIENCE: Duration = Duration::from_secs(1);

/// Opens a session of the agent at `socket`, else of the one that
/// [`Agent::connect`](crate::Agent::connect) finds.
///
/// # Errors
///
/// [`SessionError`].
pub fn open(
    socket: Option<&Path>,
    describe: impl FnOnce(&Agent) -> SessionBuilder,
) -> Result<Session, SessionError> {
    let mut builder = Builder::new_multi_thread();
    let runtime = builder.worker_threads(1).thread_name("tenure").enable_all().build();
    let runtime = runtime.map_err(|source| SessionError::NoThread { source })?;
    let session = runtime.block_on(async {
        let agent = match socket {
            Some(socket) => Agent::connect_to(socket).await?,
            None => Agent::connect().await?,
        };
        describe(&agent).open().await
    })?;
    Ok(Session { inner: Arc::new(Inner { session: Some(session), runtime: Some(runtime) }) })
}

/// A session and the runtime in which it lives; both are there until it is dropped.
struct Inner {
    session: Option<crate::Session>,
    runtime: Option<Runtime>,
}

impl Inner {
    fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        // The runtime's thread is the parent's.
        if self.is_forked()
            && let Ok(own) = Builder::new_current_thread().enable_all().build()
        {
            return own.block_on(work);
        }
        #[expect(clippy::expect_used, reason = "only the drop takes it")]
        self.runtime.as_ref().expect("a runtime until it is dropped").block_on(work)
    }

    /// True in a process that was forked off the one which opened the session.
    fn is_forked(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.core().shared.is_forked())
    }

    /// The same at a drop: no longer than [`END_PATIENCE`], and not at all where a thread must not wait.
    fn finish<T>(&self, work: impl Future<Output = T>) {
        if Handle::try_current().is_err() && !self.is_forked() {
            let _ = self.block_on(async { tokio::time::timeout(END_PATIENCE, work).await });
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.is_forked() {
            // An end of the runtime would take the parent's connections out of the poll that both have.
            return std::mem::forget((self.session.take(), self.runtime.take()));
        }
        if let Some(session) = self.session.take() {
            self.finish(session.close());
        }
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// A session for threads. Cheap to clone. It ends when the last clone and the last hold are dropped.
#[derive(Clone)]
pub struct Session {
    inner: Arc<Inner>,
}

impl Session {
    /// Waits until it is granted; see [`Resource::acquire`].
    ///
    /// # Errors
    ///
    /// [`AcquireError`].
    pub fn acquire(&self, resource: &Resource) -> Result<Hold, AcquireError> {
        self.inner.block_on(resource.acquire()).map(|hold| self.hold(hold))
    }

    /// Waits at most that long; see [`Resource::acquire_timeout`].
    ///
    /// # Errors
    ///
    /// [`AcquireError::TimedOut`] and others.
    pub fn acquire_timeout(
        &self,
        resource: &Resource,
        patience: Duration,
    ) -> Result<Hold, AcquireError> {
        self.inner.block_on(resource.acquire_timeout(patience)).map(|hold| self.hold(hold))
    }

    /// Tries once; see [`Resource::try_acquire`].
    ///
    /// # Errors
    ///
    /// [`AcquireError`].
    pub fn try_acquire(&self, resource: &Resource) -> Result<Option<Hold>, AcquireError> {
        let hold = self.inner.block_on(resource.try_acquire())?;
        Ok(hold.map(|hold| self.hold(hold)))
    }

    /// Tries once, and says who has it otherwise; see [`Resource::attempt`].
    ///
    /// # Errors
    ///
    /// [`AcquireError`].
    pub fn attempt(
        &self,
        resource: &Resource,
    ) -> Result<Result<Hold, Option<Holder>>, AcquireError> {
        Ok(match self.inner.block_on(resource.attempt())? {
            Attempt::Held(hold) => Ok(self.hold(hold)),
            Attempt::Contended(holder) => Err(holder),
        })
    }

    /// Waits until it is granted, does the work on this thread, and gives it back.
    ///
    /// # Errors
    ///
    /// [`RunError`]; [`Lost`] only after the work has ended.
    pub fn run<T>(
        &self,
        resource: &Resource,
        work: impl FnOnce(&Hold) -> T,
    ) -> Result<T, RunError> {
        let hold = self.acquire(resource)?;
        let done = work(&hold);
        hold.check()?;
        Ok(done)
    }

    /// Says that the program gets on; see [`Session::beat`](crate::Session::beat).
    ///
    /// # Errors
    ///
    /// [`CallError`].
    pub fn beat(&self) -> Result<(), CallError> {
        self.inner.block_on(crate::Session::beat(self))
    }

    /// Waits on this thread for anything of the asynchronous API, such as [`Resource::standing`] or
    /// [`Events::next`](crate::Events::next).
    ///
    /// ```no_run
    /// # fn example(session: tenure::blocking::Session) {
    /// let mut events = session.events();
    /// while let Some(event) = session.block_on(events.next()) {
    ///     println!("{event:?}");
    /// }
    /// # }
    /// ```
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.inner.block_on(future)
    }

    /// Ends the session and releases all its holds; see [`Session::close`](crate::Session::close).
    ///
    /// # Errors
    ///
    /// [`CallError`].
    pub fn close(self) -> Result<(), CallError> {
        self.inner.block_on(crate::Session::clone(&self).close())
    }

    fn hold(&self, hold: crate::Hold) -> Hold {
        Hold { hold: Some(hold), inner: Arc::clone(&self.inner) }
    }
}

impl Deref for Session {
    type Target = crate::Session;

    fn deref(&self) -> &crate::Session {
        #[expect(clippy::expect_used, reason = "only the drop takes it")]
        self.inner.session.as_ref().expect("a session until it is dropped")
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::Session::fmt(self, f)
    }
}

/// A hold for threads. Dropping it gives it back, and waits for that.
#[must_use = "a hold is given back when it is dropped"]
pub struct Hold {
    hold: Option<crate::Hold>,
    inner: Arc<Inner>,
}

impl Hold {
    /// Fails unless it is valid at this instant; for loops. See [`Hold::check`](crate::Hold::check).
    ///
    /// # Errors
    ///
    /// [`Lost`], with the agent's reason: up to a second is waited for that, during which this thread does no work.
    #[inline]
    pub fn check(&self) -> Result<(), Lost> {
        if self.is_held() || self.is_shown() { Ok(()) } else { Err(self.loss_explained()) }
    }

    #[cold]
    fn loss_explained(&self) -> Lost {
        match Handle::try_current() {
            Err(_) if self.forked().is_none() => self.inner.block_on(self.explained()),
            // A thread of a runtime must not wait, and a child of the process need not.
            _ => crate::Hold::loss(self),
        }
    }

    /// Waits until it is lost; see [`Hold::lost`](crate::Hold::lost).
    pub fn wait_until_lost(&self) -> Lost {
        self.inner.block_on(self.lost())
    }

    /// Gives it back; see [`Hold::release`](crate::Hold::release).
    ///
    /// # Errors
    ///
    /// [`ReleaseError`].
    pub fn release(mut self) -> Result<(), ReleaseError> {
        match self.hold.take() {
            Some(hold) => self.inner.block_on(hold.release()),
            None => Ok(()),
        }
    }
}

impl Deref for Hold {
    type Target = crate::Hold;

    fn deref(&self) -> &crate::Hold {
        #[expect(clippy::expect_used, reason = "only `release` and the drop take it")]
        self.hold.as_ref().expect("a hold until it is released")
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(hold) = self.hold.take() {
            self.inner.finish(hold.release());
        }
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::Hold::fmt(self, f)
    }
}
