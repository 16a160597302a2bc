//! The requests of clients, each with the type of its answer.

use std::sync::Arc;

use tenure_core::keeper::{Reply, Request, SessionFacts, StatusPage, StatusView};
use tenure_core::model::{AgentSeen, HistoryEntry, Page, Program, Resource, Revocation, SessionId};
use tenure_host::marks::{Stage, mark};
use tenure_host::peer::Caller;
use tenure_wire::{
    Acquire, Acquired, Beaten, Checkpointed, Leftovers, Register, Release, Released, Revoked,
    Routes, Standing, Waiting,
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
    pub async fn register(
        &self,
        caller: Caller,
        ask: Register,
        program: Program,
    ) -> Result<Registration> {
        self.ask(caller, Request::Register(ask, program), |reply| match reply {
            Reply::Registered { session, secret, ttl_ms, beat_ms, resumed } => {
                Some(Registration { session, secret, ttl_ms, beat_ms, resumed })
            }
            _ => None,
        })
        .await
    }

    pub async fn acquire(&self, caller: Caller, ask: Acquire) -> Result<Acquisition> {
        self.ask(caller, Request::Acquire(ask), |reply| match reply {
            Reply::Acquired(acquired) => Some(Acquisition::Granted(acquired)),
            Reply::Waiting(waiting) => Some(Acquisition::Waiting(waiting)),
            _ => None,
        })
        .await
    }

    /// Says whether there was something to release.
    pub async fn release(&self, caller: Caller, ask: Release) -> Result<Released> {
        let read =
            |reply| if let Reply::Released(released) = reply { Some(released) } else { None };
        self.ask(caller, Request::Release(ask), read).await
    }

    pub async fn checkpoint(&self, caller: Caller, session: Uuid) -> Result<Checkpointed> {
        let read = |reply| if let Reply::Checkpointed(told) = reply { Some(told) } else { None };
        self.ask(caller, Request::Checkpoint(session), read).await
    }

    /// Says what was lost since the last beat, if anything was.
    pub async fn beat(&self, caller: Caller, session: Uuid) -> Result<Option<Beaten>> {
        let read = |reply| match reply {
            Reply::Beaten => Some(None),
            Reply::HoldBeaten(beaten) => Some(Some(beaten)),
            _ => None,
        };
        self.ask(caller, Request::Beat(session), read).await
    }

    pub async fn beat_hold(&self, caller: Caller, session: Uuid, hold: Uuid) -> Result<Beaten> {
        let read = |reply| if let Reply::HoldBeaten(beaten) = reply { Some(beaten) } else { None };
        self.ask(caller, Request::BeatHold { session, hold }, read).await
    }

    pub async fn leftovers(&self, caller: Caller, leftovers: Leftovers) -> Result<()> {
        let read = |reply| matches!(reply, Reply::LeftoversNoted).then_some(());
        self.ask(caller, Request::Leftovers(leftovers), read).await
    }

    /// With a token, only the grant that has it.
    pub async fn revoke(
        &self,
        caller: Caller,
        resource: Resource,
        token: Option<u64>,
        revocation: Revocation,
    ) -> Result<Revoked> {
        let read = |reply| if let Reply::Revoked(revoked) = reply { Some(revoked) } else { None };
        let revocation = Some(Arc::new(revocation));
        self.ask(caller, Request::Revoke { resource, token, revocation }, read).await
    }

    pub async fn standing(&self, caller: Caller, resource: Resource) -> Result<Standing> {
        let read =
            |reply| if let Reply::Standing(standing) = reply { Some(standing) } else { None };
        self.ask(caller, Request::Standing(resource), read).await
    }

    /// Newest first.
    pub async fn history(&self, caller: Caller, resource: Resource) -> Result<Vec<HistoryEntry>> {
        let read = |reply| if let Reply::History(changes) = reply { Some(changes) } else { None };
        self.ask(caller, Request::History(resource), read).await
    }

    /// Names of all that is held, waited for or announced, and the cursor of the next page.
    pub async fn resources(
        &self,
        caller: Caller,
        page: Page,
    ) -> Result<(Vec<Resource>, Option<Arc<str>>)> {
        let read = |reply| match reply {
            Reply::Resources { resources, next } => Some((resources, next)),
            _ => None,
        };
        self.ask(caller, Request::Resources(page), read).await
    }

    /// A page of the agents of this store, and the cursor of the next one.
    pub async fn agents(
        &self,
        caller: Caller,
        page: Page,
    ) -> Result<(Vec<AgentSeen>, Option<Arc<str>>)> {
        let read = |reply| match reply {
            Reply::Agents { agents, next } => Some((agents, next)),
            _ => None,
        };
        self.ask(caller, Request::Agents(page), read).await
    }

    /// A page of a tenant's leases; with a name, only that one.
    pub async fn routes(
        &self,
        caller: Caller,
        tenant: Arc<str>,
        name: Option<Arc<str>>,
        page: Page,
    ) -> Result<Routes> {
        let read = |reply| if let Reply::Routes(routes) = reply { Some(routes) } else { None };
        self.ask(caller, Request::Routes { tenant, name, page }, read).await
    }

    pub async fn status(&self, caller: Caller, page: StatusPage) -> Result<StatusView> {
        let read = |reply| if let Reply::Status(view) = reply { Some(view) } else { None };
        self.ask(caller, Request::Status(page), read).await
    }

    /// The facts by which the policy judges a session.
    pub async fn lookup(&self, caller: Caller, session: Uuid) -> Result<SessionFacts> {
        let read = |reply| if let Reply::Facts(facts) = reply { Some(facts) } else { None };
        self.ask(caller, Request::Lookup(session), read).await
    }

    /// `read` takes the answer out of the reply that belongs to the request.
    async fn ask<A>(
        &self,
        caller: Caller,
        request: Request,
        read: fn(Reply) -> Option<A>,
    ) -> Result<A> {
        mark(Stage::Asked);
        let reply = self.call(caller, request).await;
        mark(Stage::Answered);
        read(reply?).ok_or_else(|| {
            // A fault of the agent.
            let wanted = std::any::type_name::<A>();
            tracing::error!(wanted, "the keeper answered another request");
            CallError::Gone
        })
    }
}
