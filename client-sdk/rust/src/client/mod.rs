//! The agent's API, call by call.
//!
//! [`Client`] is the thin layer: one method per endpoint, the wire types in and out, no state but
//! pooled connections.

mod call;
mod error;
mod fleet;
mod patience;
mod socket;
mod sse;
mod stream;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use form_urlencoded::Serializer;
use hyper::Method;
use hyper::StatusCode;
use hyper::http::uri::PathAndQuery;
use uuid::Uuid;

use self::call::{Repeat, Transport};
use crate::wire;

pub use self::error::CallError;
pub use self::patience::{CONNECT_PATIENCE, RESTART_PATIENCE};
pub use self::socket::{SERVICE_SOCKET, SOCKET_VARIABLE};
pub use self::stream::{EventStream, Received};

/// How long a call waits for its answer; a blocking acquire has its own timeout on top.
pub const CALL_DEADLINE: Duration = Duration::from_secs(30);
/// How much is asked for at once of what comes in pages: the most that the agent gives.
const PAGE_LIMIT: &str = "1000";
/// How long opening an event stream may take.
pub const STREAM_OPEN_DEADLINE: Duration = Duration::from_secs(10);

/// The answer to an acquire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AcquireReply {
    /// Granted.
    Acquired(wire::Acquired),
    /// In the queue: `granted` comes as an event. Only with [`wire::Wait::Queue`].
    Waiting(wire::Waiting),
}

/// A way to the agent. Cheap to clone; clones share their connections.
///
/// Connections are kept for a few seconds and made anew when the agent closed them; calls of which
/// twice does the same as once are then repeated. Must be used inside a Tokio runtime.
///
/// Every call waits for an agent that does not take its connection: up to [`CONNECT_PATIENCE`] while too
/// many others wait, up to [`RESTART_PATIENCE`] while the agent is restarted; never longer than the call's
/// own deadline. Without a socket it fails at once.
///
/// ```no_run
/// # async fn example() -> Result<(), tenure::client::CallError> {
/// use tenure::client::Client;
///
/// let client = Client::connect(None)?;
/// println!("agent {}", client.status().await?.agent.version);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    transport: Arc<Transport>,
}

impl Client {
    /// A client of the agent at `socket`, a path or a `unix:` URI; with `None` at `TENURE_SOCKET`,
    /// else of this user's own agent (`$XDG_RUNTIME_DIR/tenured/api.sock`,
    /// `/run/user/UID/tenured/api.sock`, `/tmp/tenured-UID/api.sock`) if there is one, else of the
    /// service (`/run/tenured/api.sock`). For root the service comes before `/run/user/0`.
    ///
    /// Opens no connection yet: the first call does.
    ///
    /// # Errors
    ///
    /// [`CallError::BadSocket`] when the name is no path.
    pub fn connect(socket: Option<&Path>) -> Result<Client, CallError> {
        let transport = Transport::new(socket::find(socket)?, CONNECT_PATIENCE)?;
        Ok(Client { transport: Arc::new(transport) })
    }

    /// A client of the same agent that waits no longer than this for one that does not take
    /// connections, with connections of its own. [`Duration::ZERO`] is not to wait.
    ///
    /// # Errors
    ///
    /// None that [`Client::connect`] has not had.
    pub fn with_patience(&self, patience: Duration) -> Result<Client, CallError> {
        let transport = Transport::new(self.path().to_owned(), patience)?;
        Ok(Client { transport: Arc::new(transport) })
    }

    /// The socket's path.
    pub fn path(&self) -> &Path {
        &self.transport.path
    }

    /// Registers a program, or resumes an earlier registration.
    ///
    /// # Errors
    ///
    /// [`CallError`]; `invalid`, `session_unknown` and `session_lost` (resume), `quota_exceeded`.
    /// Never repeated by itself unless it resumes: each registration is a session of its own.
    pub async fn register(&self, register: &wire::Register) -> Result<wire::Registered, CallError> {
        let repeat = if register.resume.is_some() { Repeat::Harmless } else { Repeat::Never };
        self.transport.post("/v1/register", register, repeat, Some(CALL_DEADLINE)).await
    }

    /// Asks for a hold. A request without an id is given one, so that it can be repeated.
    ///
    /// Dropping the future while it blocks cancels the wait.
    ///
    /// # Errors
    ///
    /// [`CallError`]; `contended` (the problem names the holder), `wait_timeout`, `quota_exceeded`,
    /// `upstream_unavailable`, `session_lost`, `hold_lost` (a repeated request whose hold is gone).
    pub async fn acquire(&self, acquire: &wire::Acquire) -> Result<AcquireReply, CallError> {
        let acquire = match acquire.request {
            Some(_) => Cow::Borrowed(acquire),
            None => Cow::Owned(wire::Acquire {
                request: Some(Uuid::new_v4().to_string()),
                ..acquire.clone()
            }),
        };
        let deadline = match (acquire.wait, acquire.timeout_ms) {
            (wire::Wait::Block, None) => None,
            (wire::Wait::Block, Some(ms)) => {
                Some(CALL_DEADLINE.saturating_add(Duration::from_millis(ms)))
            }
            (wire::Wait::None | wire::Wait::Queue, _) => Some(CALL_DEADLINE),
        };
        let (status, reply) =
            self.transport.post_raw("/v1/acquire", &*acquire, Repeat::Harmless, deadline).await?;
        if status == StatusCode::ACCEPTED {
            self.transport.parse(&reply).map(AcquireReply::Waiting)
        } else {
            self.transport.parse(&reply).map(AcquireReply::Acquired)
        }
    }

    /// Gives back a hold, or cancels its wait; without a hold the session ends. Returns whether
    /// there was something to give back.
    ///
    /// # Errors
    ///
    /// [`CallError`]; `session_unknown`, `session_lost`.
    pub async fn release(&self, session: Uuid, hold: Option<Uuid>) -> Result<bool, CallError> {
        let release = wire::Release { session, hold, exit_status: None, stopped: None };
        self.give_back(&release).await
    }

    /// Gives back a hold, and does not ask again when the answer is lost.
    pub(crate) async fn release_once(&self, session: Uuid, hold: Uuid) -> Result<bool, CallError> {
        let release = wire::Release { session, hold: Some(hold), exit_status: None, stopped: None };
        self.post_release(&release, Repeat::Never).await
    }

    /// Gives back, and says for the history how it came to that; false if there was nothing to give back.
    ///
    /// # Errors
    ///
    /// [`CallError`]; `session_unknown`, `session_lost`.
    pub async fn give_back(&self, release: &wire::Release) -> Result<bool, CallError> {
        self.post_release(release, Repeat::Harmless).await
    }

    async fn post_release(
        &self,
        release: &wire::Release,
        repeat: Repeat,
    ) -> Result<bool, CallError> {
        let reply = self.transport.post("/v1/release", release, repeat, Some(CALL_DEADLINE));
        reply.await.map(|reply: wire::Released| reply.released)
    }

    /// Renews everything of the session upstream now.
    ///
    /// # Errors
    ///
    /// [`CallError`]; `session_lost`, `upstream_unavailable` (holds stay valid until valid-until).
    pub async fn checkpoint(&self, session: Uuid) -> Result<wire::Checkpointed, CallError> {
        let body = wire::Checkpoint { session };
        self.transport.post("/v1/checkpoint", &body, Repeat::Harmless, Some(CALL_DEADLINE)).await
    }

    /// Says that the program lives and gets on: feeds a keepalive tether and a progress promise.
    ///
    /// # Errors
    ///
    /// [`CallError`]; `session_unknown`, `session_lost`.
    pub async fn beat(&self, session: Uuid) -> Result<(), CallError> {
        let body = wire::Beat { session, hold: None };
        self.transport
            .post_raw("/v1/beat", &body, Repeat::Harmless, Some(CALL_DEADLINE))
            .await
            .map(|_| ())
    }

    /// The same for a hold, and how long it is valid.
    ///
    /// # Errors
    ///
    /// [`CallError`]; `session_unknown`, `session_lost`, and `hold_lost` once the hold is over.
    pub async fn beat_hold(&self, session: Uuid, hold: Uuid) -> Result<wire::Beaten, CallError> {
        let body = wire::Beat { session, hold: Some(hold) };
        self.transport.post("/v1/beat", &body, Repeat::Harmless, Some(CALL_DEADLINE)).await
    }

    /// Says that the command that was guarded has ended, and which processes keep its session.
    ///
    /// # Errors
    ///
    /// [`CallError`]; `session_unknown`, `session_lost`, `invalid`; `not_found` by an agent of an earlier version.
    pub async fn leftovers(&self, leftovers: &wire::Leftovers) -> Result<(), CallError> {
        self.transport
            .post_raw("/v1/leftovers", leftovers, Repeat::Harmless, Some(CALL_DEADLINE))
            .await
            .map(|_| ())
    }

    /// Takes a resource away from its holders; for root and the agent's own user. Returns how many
    /// grants were taken away.
    ///
    /// # Errors
    ///
    /// [`CallError`]; `forbidden`. Repeated by itself only with a token: without one the next
    /// holder could be hit.
    pub async fn revoke(&self, revoke: &wire::Revoke) -> Result<wire::Revoked, CallError> {
        let repeat = if revoke.token.is_some() { Repeat::Harmless } else { Repeat::Never };
        self.transport
            .post::<wire::Revoked>("/v1/revoke", revoke, repeat, Some(CALL_DEADLINE))
            .await
    }

    /// Holders and waiters of a resource, across the fleet. A master's name is its project; without
    /// a tenant it is `default`.
    ///
    /// # Errors
    ///
    /// [`CallError`]; `invalid`, `upstream_unavailable`.
    pub async fn standing(
        &self,
        kind: wire::Kind,
        name: &str,
        tenant: Option<&str>,
    ) -> Result<wire::Standing, CallError> {
        let query = [("kind", Some(kind.as_str())), ("name", Some(name)), ("tenant", tenant)];
        self.transport.get(self.target("/v1/standing", &query)?, CALL_DEADLINE).await
    }

    /// The routing table: all leases of a tenant, or the one with that name. Read page by page; the
    /// version is that of the first page, so that whoever compares versions reads again what changed
    /// meanwhile.
    ///
    /// # Errors
    ///
    /// [`CallError`]; `invalid`, `upstream_unavailable`.
    pub async fn routes(
        &self,
        name: Option<&str>,
        tenant: Option<&str>,
    ) -> Result<wire::Routes, CallError> {
        let mut table = BTreeMap::new();
        let mut first = None;
        let mut cursor: Option<String> = None;
        loop {
            let query = [
                ("name", name),
                ("tenant", tenant),
                ("limit", Some(PAGE_LIMIT)),
                ("cursor", cursor.as_deref()),
            ];
            let target = self.target("/v1/routes", &query)?;
            let page: wire::Routes = self.transport.get(target, CALL_DEADLINE).await?;
            // A scan of the upstream may meet a line twice.
            table.extend(page.routes.into_iter().map(|route| (route.name.clone(), route)));
            let (version, total) = *first.get_or_insert((page.version, page.total));
            match page.cursor {
                Some(next) if cursor.as_ref() != Some(&next) => cursor = Some(next),
                _ => {
                    let routes = table.into_values().collect();
                    return Ok(wire::Routes { version, routes, total, cursor: None });
                }
            }
        }
    }

    /// The agent, its upstream, and the caller's sessions and holds: all of them, read page by page.
    ///
    /// # Errors
    ///
    /// [`CallError`].
    pub async fn status(&self) -> Result<wire::Status, CallError> {
        let mut whole = self.status_page(None).await?;
        while let Some(cursor) = whole.cursor.take() {
            let page = self.status_page(Some(&cursor)).await?;
            for session in page.sessions {
                match whole.sessions.last_mut() {
                    // Its holds did not fit on the page before.
                    Some(last) if last.session == session.session => {
                        last.holds.extend(session.holds)
                    }
                    _ => whole.sessions.push(session),
                }
            }
            whole.cursor = page.cursor.filter(|next| *next != cursor);
        }
        Ok(whole)
    }

    async fn status_page(&self, cursor: Option<&str>) -> Result<wire::Status, CallError> {
        let target =
            self.target("/v1/status", &[("limit", Some(PAGE_LIMIT)), ("cursor", cursor)])?;
        self.transport.get(target, CALL_DEADLINE).await
    }

    /// The agent's examination of its upstream; for root and the agent's own user. Takes up to a
    /// few seconds.
    ///
    /// # Errors
    ///
    /// [`CallError`]; `forbidden`, `quota_exceeded` (another examination is under way),
    /// `upstream_unavailable` (the examination did not end in time).
    pub async fn doctor(&self) -> Result<wire::Diagnosis, CallError> {
        self.transport.get(PathAndQuery::from_static("/v1/doctor"), CALL_DEADLINE).await
    }

    /// The filter of the agent's log; for root and the agent's own user.
    ///
    /// # Errors
    ///
    /// [`CallError`]; `forbidden`.
    pub async fn log_filter(&self) -> Result<wire::LogFilter, CallError> {
        self.transport.get(PathAndQuery::from_static("/v1/log"), CALL_DEADLINE).await
    }

    /// Has the agent log something else for the time being, such as `debug`; with `None` what its
    /// configuration says again. For root and the agent's own user. Returns what is logged then.
    ///
    /// # Errors
    ///
    /// [`CallError`]; `invalid` (no filter), `forbidden`.
    pub async fn set_log_filter(&self, filter: Option<&str>) -> Result<wire::LogFilter, CallError> {
        let body = wire::SetLog { filter: filter.map(str::to_owned) };
        self.transport.put("/v1/log", &body, CALL_DEADLINE).await
    }

    /// Succeeds when the agent answers.
    ///
    /// # Errors
    ///
    /// [`CallError`].
    pub async fn healthz(&self) -> Result<(), CallError> {
        self.probe("/healthz").await
    }

    /// Succeeds when the agent serves, whatever its upstream does.
    ///
    /// # Errors
    ///
    /// [`CallError`]; `stopping`.
    pub async fn readyz(&self) -> Result<(), CallError> {
        self.probe("/readyz").await
    }

    /// Opens the session's event stream, on a connection of its own. With the number of the last
    /// event seen, only what was missed is told again; else the first event is a snapshot.
    ///
    /// # Errors
    ///
    /// [`CallError`]; `session_unknown`, `session_lost`, `quota_exceeded` (4 streams a session).
    pub async fn events(
        &self,
        session: Uuid,
        last_event_id: Option<u64>,
    ) -> Result<EventStream, CallError> {
        let session = session.to_string();
        let target = self.target("/v1/events", &[("session", Some(&session))])?;
        let patience = self.transport.patience;
        EventStream::open(self.path(), target, last_event_id, patience).await
    }

    /// Opens a stream of a resource's standing; needs no session. A master's name is its project.
    ///
    /// # Errors
    ///
    /// [`CallError`]; `invalid`.
    pub async fn observe(
        &self,
        kind: wire::Kind,
        name: &str,
        tenant: Option<&str>,
    ) -> Result<EventStream, CallError> {
        let query = [("kind", Some(kind.as_str())), ("name", Some(name)), ("tenant", tenant)];
        let target = self.target("/v1/observe", &query)?;
        EventStream::open(self.path(), target, None, self.transport.patience).await
    }

    async fn probe(&self, target: &'static str) -> Result<(), CallError> {
        let target = PathAndQuery::from_static(target);
        self.transport
            .call(Method::GET, target, bytes::Bytes::new(), Repeat::Harmless, CALL_DEADLINE)
            .await
            .map(|_| ())
    }

    fn target(
        &self,
        path: &str,
        query: &[(&str, Option<&str>)],
    ) -> Result<PathAndQuery, CallError> {
        let mut target = Serializer::for_suffix(format!("{path}?"), path.len() + 1);
        target
            .extend_pairs(query.iter().filter_map(|(key, value)| value.map(|value| (key, value))));
        PathAndQuery::try_from(target.finish())
            .map_err(|error| CallError::garbled(self.path(), "the request has no URI", error))
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("path", &self.path()).finish_non_exhaustive()
    }
}
