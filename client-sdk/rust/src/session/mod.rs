//! A program's registration with the agent.

mod builder;
mod driver;
mod events;
mod pages;
mod shared;
mod state;
mod warden;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::runtime::Handle;
use uuid::Uuid;

use crate::backoff::Backoff;
use crate::client::{CallError, Client};
use crate::hold::Resource;
use crate::page::Page;
use crate::wire::{Checkpointed, Kind, Register, Registered};

pub use self::builder::SessionBuilder;
pub use self::events::{Events, Missed};
pub(crate) use self::shared::Shared;
pub use self::state::{SessionError, SessionGone, SessionState};

/// How long the agent is asked to end a session that nobody uses any more.
const END_PATIENCE: Duration = Duration::from_secs(30);

/// A program's registration with the agent. Cheap to clone.
///
/// It opens its event stream again when that breaks, and takes itself up again when the agent was
/// restarted; holds stay valid meanwhile, as their page says. Once the agent no longer knows it,
/// it is gone for good: all its holds are lost, and [`state`](Session::state) says so.
///
/// It ends when the last clone and the last hold are dropped, when the program ends, or with
/// [`close`](Session::close).
///
/// It is not of a process that was forked off the one which opened it: there it is gone, its holds are not held, and
/// dropping or closing it does nothing. Such a process opens a session of its own, in a runtime of its own.
///
/// ```no_run
/// # async fn example(agent: tenure::Agent) -> Result<(), Box<dyn std::error::Error>> {
/// let session = agent.session().name("nightly").open().await?;
/// let hold = session.leader("cleanup").acquire().await?;
/// println!("leader with token {}", hold.token());
/// hold.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Session {
    core: Arc<Core>,
}

/// Ends the session when its last user is dropped.
pub(crate) struct Core {
    pub(crate) shared: Arc<Shared>,
}

impl Session {
    async fn open(client: Client, register: Register) -> Result<Session, SessionError> {
        let runtime = Handle::try_current()
            .map_err(|_| SessionError::NoRuntime { path: client.path().to_owned() })?;
        let registered = client.register(&register).await?;
        let id = registered.session;
        let page = Page::open(registered.page.as_ref(), id, registered.boot_id);
        let page = match page {
            Ok(page) => page,
            Err(error) => {
                // The page is the cause to report; the tether frees what this leaves behind.
                let _ = client.release(id, None).await;
                return Err(error.into());
            }
        };
        let shared = Arc::new(Shared::new(client, register, registered, page, runtime));
        // From here on dropping ends the session, also when this future is cancelled.
        let core = Arc::new(Core { shared: Arc::clone(&shared) });
        let stream = shared.client.events(id, None).await?;
        shared.spawn(driver::drive(Arc::clone(&shared), stream));
        shared.spawn(warden::watch(Arc::clone(&shared)));
        Ok(Session { core })
    }

    /// Its id.
    pub fn id(&self) -> Uuid {
        self.core.shared.session()
    }

    /// The agent's answer to the registration.
    pub fn registered(&self) -> &Registered {
        &self.core.shared.registered
    }

    /// The agent's calls one by one.
    pub fn client(&self) -> &Client {
        &self.core.shared.client
    }

    /// How it does at this moment.
    pub fn state(&self) -> SessionState {
        let shared = &self.core.shared;
        shared.gone().map_or_else(|| shared.state.borrow().clone(), SessionState::Gone)
    }

    /// Waits until the session is gone. The future does not keep the session open.
    ///
    /// ```no_run
    /// # async fn example(session: tenure::Session) {
    /// eprintln!("{}", session.gone().await);
    /// # }
    /// ```
    pub fn gone(&self) -> impl Future<Output = SessionGone> + Send + use<> {
        let forked = self.core.shared.forked();
        let mut state = self.core.shared.state.subscribe();
        async move {
            if let Err(gone) = forked {
                return gone;
            }
            match state.wait_for(|state| matches!(state, SessionState::Gone(_))).await.as_deref() {
                Ok(SessionState::Gone(gone)) => gone.clone(),
                _ => SessionGone { why: "it was dropped".into() },
            }
        }
    }

    /// The session's events from now on, in order, until it ends.
    pub fn events(&self) -> Events {
        Events::of(&self.core.shared)
    }

    /// Says that the program lives and gets on; see [`SessionBuilder::progress`]. Local only.
    ///
    /// # Errors
    ///
    /// [`CallError`]; `session_unknown`, `session_lost`.
    pub async fn beat(&self) -> Result<(), CallError> {
        self.core.shared.forked()?;
        self.client().beat(self.id()).await
    }

    /// Renews everything upstream now.
    ///
    /// # Errors
    ///
    /// [`CallError`]; `session_lost`, `upstream_unavailable` (holds stay valid until valid-until).
    pub async fn checkpoint(&self) -> Result<Checkpointed, CallError> {
        self.core.shared.forked()?;
        self.client().checkpoint(self.id()).await
    }

    /// Ends the session and releases all its holds. Holds not dropped yet are lost with
    /// [`Reason::SessionGone`](crate::Reason::SessionGone) before the agent is asked.
    ///
    /// # Errors
    ///
    /// [`CallError`], when the agent could not be asked; that is then tried again in the background.
    pub async fn close(self) -> Result<(), CallError> {
        if self.core.shared.is_forked() {
            return Ok(());
        }
        self.core.shared.end("it was closed");
        match self.client().release(self.id(), None).await {
            Err(error) if !error.is_session_gone() => Err(error),
            _ => {
                self.core.shared.agent_knows.store(true, Ordering::Release);
                Ok(())
            }
        }
    }

    /// The leader of a role: one holder.
    pub fn leader(&self, name: impl Into<String>) -> Resource {
        Resource::new(self.clone(), Kind::Leader, Some(name.into()))
    }

    /// The master of the session's project: one holder, preempted by a higher priority.
    pub fn master(&self) -> Resource {
        Resource::new(self.clone(), Kind::Master, None)
    }

    /// A semaphore with `permits` permits, first come first served. The number is stored upstream
    /// and is everybody's from the next acquire on; see [`Hold::limit_changed`](crate::Hold::limit_changed).
    pub fn semaphore(&self, name: impl Into<String>, permits: u32) -> Resource {
        Resource::new(self.clone(), Kind::Semaphore, Some(name.into())).limit(permits)
    }

    /// A semaphore with as many permits as its other users have said; one if there are none.
    pub fn semaphore_in_force(&self, name: impl Into<String>) -> Resource {
        Resource::new(self.clone(), Kind::Semaphore, Some(name.into()))
    }

    /// A lease: one holder, listed in the routing table with its address, with a time of grace in
    /// which only the former holder may have it back.
    pub fn lease(&self, name: impl Into<String>) -> Resource {
        Resource::new(self.clone(), Kind::Lease, Some(name.into()))
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("id", &self.id()).finish_non_exhaustive()
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        let shared = Arc::clone(&self.shared);
        if shared.is_forked() {
            // Kept for good: what it has to do with the agent is the parent's.
            return std::mem::forget(shared);
        }
        shared.closed.cancel();
        if shared.agent_knows.load(Ordering::Acquire) {
            return;
        }
        shared.end("it was dropped");
        let runtime = shared.runtime.clone();
        runtime.spawn(async move {
            let release = async {
                let mut backoff = Backoff::new();
                while let Err(error) = shared.client.release(shared.session(), None).await {
                    if !error.is_transient() {
                        break;
                    }
                    backoff.wait().await;
                }
            };
            // The tether ends what the agent could not be told.
            let _ = tokio::time::timeout(END_PATIENCE, release).await;
        });
    }
}

/// Whole ms, as the agent counts.
pub(crate) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
