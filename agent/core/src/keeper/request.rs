//! Requests of clients to the keeper, and its replies.

use std::sync::Arc;

use tenure_wire as wire;
use uuid::Uuid;

use crate::model::{AgentSeen, HistoryEntry, Page, Program, Resource, Revocation, SessionId};

/// A request in flight: the shell keeps the way back to the caller under this number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// An open event stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u64);

/// The subject of an event stream.
#[derive(Debug, Clone)]
pub enum StreamTarget {
    /// `GET /v1/events`.
    Session {
        /// The session.
        session: Uuid,
        /// The last event that the client has seen.
        last_event_id: Option<u64>,
    },
    /// `GET /v1/observe`.
    Resource(Resource),
}

/// A request whose form has been checked. Names are within their limits, and the policy allows it; the
/// keeper checks the rest.
#[derive(Debug, Clone)]
pub enum Request {
    /// `POST /v1/register`.
    Register(wire::Register, Program),
    /// `POST /v1/acquire`.
    Acquire(wire::Acquire),
    /// `POST /v1/release`.
    Release(wire::Release),
    /// `POST /v1/checkpoint`.
    Checkpoint(Uuid),
    /// `POST /v1/beat`.
    Beat(Uuid),
    /// `POST /v1/beat` with the hold that the caller relies on.
    BeatHold { session: Uuid, hold: Uuid },
    /// `POST /v1/leftovers`.
    Leftovers(wire::Leftovers),
    /// `POST /v1/revoke`; the API has checked that the peer may.
    Revoke {
        resource: Resource,
        /// Only the grant with this token.
        token: Option<u64>,
        /// For those who lose it.
        revocation: Option<Arc<Revocation>>,
    },
    /// `GET /v1/standing`.
    Standing(Resource),
    /// `GET /v1/history`.
    History(Resource),
    /// For `GET /v1/list`: names.
    Resources(Page),
    /// `GET /v1/routes`.
    Routes {
        /// Whose table.
        tenant: Arc<str>,
        /// Only this lease.
        name: Option<Arc<str>>,
        page: Page,
    },
    /// `GET /v1/agents`.
    Agents(Page),
    /// `GET /v1/status`.
    Status(StatusPage),
    /// Asks for what the policy must know of a session before it can judge an acquire.
    Lookup(Uuid),
}

/// A session as the policy sees it.
#[derive(Debug, Clone)]
pub struct SessionFacts {
    /// Its tenant.
    pub tenant: Arc<str>,
    /// Its project.
    pub project: Arc<str>,
    /// The kind of program.
    pub surface: Arc<str>,
}

/// A part of what there is to tell of sessions and holds. Its entries are both of them, as a session
/// may have many holds.
#[derive(Debug, Clone, Copy)]
pub struct StatusPage {
    /// The last entry of the page before.
    pub after: Option<StatusCursor>,
    /// How many entries at most; at least 1.
    pub limit: usize,
}

impl StatusPage {
    /// The first so many entries.
    pub fn first(limit: usize) -> StatusPage {
        StatusPage { after: None, limit }
    }
}

/// An entry of a status: sessions come by user and id, each followed by its holds by id.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StatusCursor {
    /// The user.
    pub uid: u32,
    /// The session.
    pub session: Uuid,
    /// The hold; nil before the first of the session's.
    pub hold: Uuid,
}

/// The keeper's own view for `/v1/status` and `/metrics`.
#[derive(Debug, Clone, Default)]
pub struct StatusView {
    /// Sessions of all users.
    pub sessions: u64,
    /// Holds of all users by kind in the order of [`wire::Kind::ALL`]: held, in jeopardy, waiting.
    pub holds: [[u64; 3]; 4],
    /// The sessions that the caller may see; a page of them.
    pub visible: Vec<wire::SessionStatus>,
    /// How many the caller may see.
    pub total: u64,
    /// The last entry, if there are more.
    pub next: Option<StatusCursor>,
}

/// The reply to a request. Refusals are [`super::Refusal`]s.
#[derive(Debug, Clone)]
pub enum Reply {
    /// To [`Request::Register`]; `agent` and `page` are filled in by the API.
    Registered {
        /// The session.
        session: SessionId,
        /// Hex.
        secret: String,
        /// How long it outlives its last beat upstream, ms.
        ttl_ms: u64,
        /// How often it is beaten upstream, ms.
        beat_ms: u64,
        /// True if an earlier session was taken up.
        resumed: bool,
    },
    /// To [`Request::Acquire`]: granted.
    Acquired(wire::Acquired),
    /// To [`Request::Acquire`]: in the queue.
    Waiting(wire::Waiting),
    /// To [`Request::Release`].
    Released(wire::Released),
    /// To [`Request::Checkpoint`].
    Checkpointed(wire::Checkpointed),
    /// To [`Request::Beat`] of a session that has lost nothing since the last one.
    Beaten,
    /// To [`Request::BeatHold`], and to [`Request::Beat`] with what was lost.
    HoldBeaten(wire::Beaten),
    /// To [`Request::Leftovers`].
    LeftoversNoted,
    /// To [`Request::Revoke`].
    Revoked(wire::Revoked),
    /// To [`Request::Standing`].
    Standing(wire::Standing),
    /// To [`Request::History`].
    History(Vec<HistoryEntry>),
    /// To [`Request::Resources`].
    Resources {
        resources: Vec<Resource>,
        /// The cursor of the next page; `None` after the last.
        next: Option<Arc<str>>,
    },
    /// To [`Request::Routes`].
    Routes(wire::Routes),
    /// To [`Request::Agents`].
    Agents {
        /// This one first, on the first page.
        agents: Vec<AgentSeen>,
        /// The cursor of the next page; `None` after the last.
        next: Option<Arc<str>>,
    },
    /// To [`Request::Status`].
    Status(StatusView),
    /// To [`Request::Lookup`].
    Facts(SessionFacts),
}

impl Reply {
    /// Something was given back.
    pub(super) const RELEASED: Reply =
        Reply::Released(wire::Released { released: true, kept_ms: None });
}
