//! A program's registration.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tenure_wire::{Role, Tether};

use super::Settings;
use super::ends::Leaving;
use super::journal::SavedSession;
use super::map::Map;
use super::request::StreamId;
use super::ring::Ring;
use super::slots::Slots;
use super::timers::Alarm;
use crate::model::{CallId, ClaimId, Owner, Resource, SessionId};

/// How long a session of a connection tether has at least to open its first stream, also after a
/// restart of the agent.
const FIRST_STREAM: Duration = Duration::from_secs(3);

/// Ends that were put off because the agent was late itself.
#[derive(Debug, Default)]
pub(super) struct PutOff {
    pub(super) tether: bool,
    pub(super) progress: bool,
}

/// One local program's registration with the agent.
#[derive(Debug)]
pub(super) struct Session {
    /// Its row in the journal.
    pub(super) saved: SavedSession,
    /// Shared by every claim of the session.
    pub(super) owner: Owner,
    /// Its holds, waiting ones counted.
    pub(super) holds: BTreeSet<ClaimId>,
    /// Lost holds of a guarded session that are kept from others until its tether ends.
    pub(super) kept: BTreeSet<ClaimId>,
    /// The slots of its page.
    pub(super) slots: Slots,
    /// Request ids of its live and of its remembered holds.
    pub(super) requests: Map<Arc<str>, ClaimId>,
    /// Its open event streams.
    pub(super) streams: Vec<StreamId>,
    /// Callers that wait for a grant; while there is one, the program is alive.
    pub(super) blocked: u32,
    /// True if the process that registered is known to have ended.
    pub(super) process_gone: bool,
    /// True if the upstream may know of it: an announcement was answered, or may yet be.
    pub(super) known_upstream: bool,
    /// True if it comes from an earlier agent, and nobody has opened a stream since: a command that
    /// inherited one may run, and there is no way to tell.
    pub(super) orphaned: bool,
    /// Its holds are not renewed any more, and are kept until their valid-until.
    pub(super) running_out: bool,
    /// True if nobody will tell when that process ends, though somebody should.
    pub(super) unwatched: bool,
    /// Its role in its project, as of the last beat.
    pub(super) role: Role,
    /// The number of its next event.
    pub(super) next_event: u64,
    /// Its last events; kept only once somebody has listened.
    pub(super) ring: Ring,
    /// True if somebody has listened.
    pub(super) heard: bool,
    /// A beat, or the announcement, that is on its way.
    pub(super) beating: Option<CallId>,
    /// End of the tether.
    pub(super) tether: Alarm,
    /// End of the program's promise.
    pub(super) progress: Alarm,
    /// Whether an end was put off, and since then nothing was heard.
    pub(super) put_off: PutOff,
    /// Next beat upstream.
    pub(super) beat: Alarm,
    /// Failed beats in a row.
    pub(super) failures: u32,
    /// It ends, and has more holds than end in one turn.
    pub(super) leaving: Option<Leaving>,
}

impl Session {
    /// A session without holds or streams.
    pub(super) fn new(saved: SavedSession, settings: &Settings, first_event: u64) -> Session {
        let owner = Owner {
            session: saved.id,
            host: Arc::clone(&settings.host),
            name: Arc::clone(&saved.name),
        };
        let slots = Slots::new(saved.holds);
        Session {
            role: if saved.announced { Role::Peer } else { Role::None },
            saved,
            owner,
            holds: BTreeSet::new(),
            kept: BTreeSet::new(),
            slots,
            requests: Map::default(),
            streams: Vec::new(),
            blocked: 0,
            process_gone: false,
            known_upstream: false,
            orphaned: false,
            running_out: false,
            unwatched: false,
            next_event: first_event,
            ring: Ring::new(first_event),
            heard: false,
            beating: None,
            tether: Alarm::default(),
            progress: Alarm::default(),
            put_off: PutOff::default(),
            beat: Alarm::default(),
            failures: 0,
            leaving: None,
        }
    }

    /// Its id.
    pub(super) fn id(&self) -> SessionId {
        self.saved.id
    }

    /// The process as people know it.
    pub(super) fn pid(&self) -> Option<u32> {
        self.saved.process.map(|process| process.pid)
    }

    /// The resource whose holder is the master of its project.
    pub(super) fn master(&self) -> Resource {
        Resource {
            tenant: Arc::clone(&self.saved.tenant),
            kind: tenure_wire::Kind::Master,
            name: Arc::clone(&self.saved.project),
        }
    }

    /// How long its tether lasts without a sign of life; `None` where only the kernel can tell.
    /// `holds_something` if one of its holds is held.
    pub(super) fn patience(&self, holds_something: bool) -> Option<Duration> {
        match self.saved.tether {
            // A call that waits shows that its process is there, not that the program works: enough
            // for a wait, too little to keep from others what it holds.
            Tether::Keepalive if self.blocked == 0 || holds_something => Some(self.saved.keepalive),
            // Until its first stream it has the time that it takes to open one.
            Tether::Connection if self.streams.is_empty() && !self.heard => {
                Some(self.saved.linger.max(FIRST_STREAM))
            }
            Tether::Connection if self.streams.is_empty() => Some(self.saved.linger),
            // Its program has to show itself, or a dead one would hold for ever.
            Tether::Process if self.unwatched && self.streams.is_empty() && self.blocked == 0 => {
                Some(self.saved.linger.max(FIRST_STREAM))
            }
            Tether::Keepalive | Tether::Connection | Tether::Process => None,
        }
    }
}
