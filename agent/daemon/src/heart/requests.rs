//! The requests of clients, each with the type of its answer.

use std::sync::Arc;

use tenure_core::keeper::{Reply, Request, SessionFacts, StatusPage, StatusView};
use tenure_core::model::{Page, Resource, SessionId};
use tenure_host::peer::Caller;
use tenure_wire::{
    Acquire, Acquired, Checkpointed, Register, Release, Revoked, Routes, Standing, Waiting,
};
use uuid::Uuid;

use super::handle::{CallError, Handle};

/// An answer of the keeper, or why there is none.
type Result<T> = std::result::Result<T, CallError>;

/// A new session, or one that was resumed.
#[derive(Debug)]
pub struct Registration {
    pub session: SessionId,
    /// Hex.
    pub secret: String,
    pub ttl_ms: u64,
    pub beat_ms: u64,
    pub resumed: bool,
}

#[derive(Debug)]
pub enum Acquisition {
    Granted(Acquired),
    Waiting(Waiting),
}

/// Errors of all: the keeper's refusal, or the end of the heart.
impl Handle {
    pub async fn register(&self, caller: Caller, ask: Register) -> Result<Registration> {
        match self.call(caller, Request::Register(ask)).await? {
            Reply::Registered { session, secret, ttl_ms, beat_ms, resumed } => {
                Ok(Registration { session, secret, ttl_ms, beat_ms, resumed })
            }
            _ => Err(mismatch("register")),
        }
    }

    pub async fn acquire(&self, caller: Caller, ask: Acquire) -> Result<Acquisition> {
        match self.call(caller, Request::Acquire(ask)).await? {
            Reply::Acquired(acquired) => Ok(Acquisition::Granted(acquired)),
            Reply::Waiting(waiting) => Ok(Acquisition::Waiting(waiting)),
            _ => Err(mismatch("acquire")),
        }
    }

    /// True if there was something to release.
    pub async fn release(&self, caller: Caller, ask: Release) -> Result<bool> {
        match self.call(caller, Request::Release(ask)).await? {
            Reply::Released(released) => Ok(released),
            _ => Err(mismatch("release")),
        }
    }

    pub async fn checkpoint(&self, caller: Caller, session: Uuid) -> Result<Checkpointed> {
        match self.call(caller, Request::Checkpoint(session)).await? {
            Reply::Checkpointed(checkpointed) => Ok(checkpointed),
            _ => Err(mismatch("checkpoint")),
        }
    }

    pub async fn beat(&self, caller: Caller, session: Uuid) -> Result<()> {
        match self.call(caller, Request::Beat(session)).await? {
            Reply::Beaten => Ok(()),
            _ => Err(mismatch("beat")),
        }
    }

    /// With a token, only the grant that has it.
    pub async fn revoke(
        &self,
        caller: Caller,
        resource: Resource,
        token: Option<u64>,
    ) -> Result<Revoked> {
        match self.call(caller, Request::Revoke { resource, token }).await? {
            Reply::Revoked(revoked) => Ok(revoked),
            _ => Err(mismatch("revoke")),
        }
    }

    pub async fn standing(&self, caller: Caller, resource: Resource) -> Result<Standing> {
        match self.call(caller, Request::Standing(resource)).await? {
            Reply::Standing(standing) => Ok(standing),
            _ => Err(mismatch("standing")),
        }
    }

    /// A page of a tenant's leases; with a name, only that one.
    pub async fn routes(
        &self,
        caller: Caller,
        tenant: Arc<str>,
        name: Option<Arc<str>>,
        page: Page,
    ) -> Result<Routes> {
        match self.call(caller, Request::Routes { tenant, name, page }).await? {
            Reply::Routes(routes) => Ok(routes),
            _ => Err(mismatch("routes")),
        }
    }

    pub async fn status(&self, caller: Caller, page: StatusPage) -> Result<StatusView> {
        match self.call(caller, Request::Status(page)).await? {
            Reply::Status(view) => Ok(view),
            _ => Err(mismatch("status")),
        }
    }

    /// The facts by which the policy judges a session.
    pub async fn lookup(&self, caller: Caller, session: Uuid) -> Result<SessionFacts> {
        match self.call(caller, Request::Lookup(session)).await? {
            Reply::Facts(facts) => Ok(facts),
            _ => Err(mismatch("lookup")),
        }
    }
}

/// The keeper answered another request: a fault of the agent.
fn mismatch(asked: &'static str) -> CallError {
    tracing::error!(asked, "the keeper answered another request");
    CallError::Gone
}
