//! A program's registration.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tenure_wire::{Role, Tether, brief};

use super::Settings;
use super::ends::Leaving;
use super::journal::SavedSession;
use super::losses::Losses;
use super::map::Map;
use super::request::StreamId;
use super::ring::Ring;
use super::slots::Slots;
use super::timers::Alarm;
use crate::model::{CallId, ClaimId, Denial, Owner, Resource, SessionId};
use crate::time::Boottime;

/// How long a session of a connection tether has at least to open its first stream, also after a
/// restart of the agent.
const FIRST_STREAM: Duration = Duration::from_secs(3);

/// Ends that were put off because the agent was late itself.
#[derive(Debug, Default)]
pub(super) struct PutOff {
    pub(super) tether: bool,
    pub(super) progress: bool,
}

/// The signs of life of a session's program.
#[derive(Debug, Default)]
pub(super) struct Life {
    /// Callers that wait for a grant; while there is one, the program is alive.
    pub(super) blocked: u32,
    /// True if the process that registered is known to have ended.
    pub(super) process_gone: bool,
    /// True if nobody will tell when that process ends, though somebody should.
    pub(super) unwatched: bool,
    /// True if it comes from an earlier agent, and nobody has opened a stream since: a command that
    /// inherited one may run, and there is no way to tell.
    pub(super) orphaned: bool,
    /// Its holds are not renewed any more, and are kept until their valid-until.
    pub(super) running_out: bool,
    /// End of the tether.
    pub(super) tether: Alarm,
    /// End of the program's promise.
    pub(super) progress: Alarm,
    /// Ends that were put off, and since then nothing was heard.
    pub(super) put_off: PutOff,
}

/// Events of a session, and the streams on which they are told.
#[derive(Debug)]
pub(super) struct Events {
    /// Its open event streams.
    pub(super) streams: Vec<StreamId>,
    /// The number of its next event.
    pub(super) next: u64,
    /// Its last events; kept only once somebody has listened.
    pub(super) ring: Ring,
    /// True if somebody has listened.
    pub(super) heard: bool,
}

impl Events {
    /// Numbers an event that happens now; `None` if nobody has listened who could be told it.
    pub(super) fn number(&mut self) -> Option<u64> {
        let number = self.next;
        self.next += 1;
        if !self.heard {
            self.ring.pass(number);
        }
        self.heard.then_some(number)
    }
}

/// An announced session as the upstream has it.
#[derive(Debug)]
pub(super) struct Upstream {
    /// Its role in its project, as of the last beat.
    pub(super) role: Role,
    /// True if the upstream may know of it: an announcement was answered, or may yet be.
    pub(super) known: bool,
    /// A beat, or the announcement, that is on its way.
    pub(super) beating: Option<CallId>,
    /// Next beat upstream.
    pub(super) beat: Alarm,
    /// Failed beats in a row.
    pub(super) failures: u32,
    /// Why the upstream did not let it be announced, or beaten, the last time.
    pub(super) denied: Option<Denial>,
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
    pub(super) life: Life,
    pub(super) events: Events,
    /// Its losses since its last beat.
    pub(super) losses: Option<Box<Losses>>,
    pub(super) upstream: Upstream,
    /// The command that was guarded, if it has ended, and processes which it started keep the session.
    pub(super) ended_command: Option<Box<EndedCommand>>,
    /// It ends, and has more holds than end in one turn.
    pub(super) leaving: Option<Leaving>,
}

/// The end of a command that was guarded. Not in the journal: a session of `tenure run` that such processes keep does not outlive
/// a restart, and of another session its program tells again.
#[derive(Debug)]
pub(super) struct EndedCommand {
    pub(super) at: Boottime,
    pub(super) exit_status: Option<i32>,
    pub(super) leftovers: BTreeMap<u32, String>,
    pub(super) more: u64,
}

impl EndedCommand {
    pub(super) fn view(&self, now: Boottime) -> tenure_wire::EndedCommand {
        tenure_wire::EndedCommand {
            ended_ms: u64::try_from(now.since(self.at).as_millis()).unwrap_or(u64::MAX),
            exit_status: self.exit_status,
            leftovers: self.leftovers.clone(),
            more: self.more,
        }
    }

    /// What kept the session until its end, for the history.
    pub(super) fn epitaph(&self, now: Boottime) -> String {
        let ago = brief(now.since(self.at));
        format!("its command ended {ago} before, and what that left behind kept the hold")
    }
}

impl Session {
    /// A session without holds or streams.
    pub(super) fn new(saved: SavedSession, settings: &Settings, first_event: u64) -> Session {
        let owner = Owner {
            session: saved.id,
            host: Arc::clone(&settings.host),
            name: Arc::clone(&saved.name),
        };
        Session {
            upstream: Upstream {
                role: if saved.announced { Role::Peer } else { Role::None },
                known: false,
                beating: None,
                beat: Alarm::default(),
                failures: 0,
                denied: None,
            },
            slots: Slots::new(saved.holds),
            saved,
            owner,
            holds: BTreeSet::new(),
            kept: BTreeSet::new(),
            requests: Map::default(),
            life: Life::default(),
            events: Events {
                streams: Vec::new(),
                next: first_event,
                ring: Ring::new(first_event),
                heard: false,
            },
            losses: None,
            ended_command: None,
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
    pub(super) fn tether_lasts(&self, holds_something: bool) -> Option<Duration> {
        match self.saved.tether {
            // A call that waits shows that its process is there, not that the program works: enough
            // for a wait, too little to keep from others what it holds.
            Tether::Keepalive if self.life.blocked == 0 || holds_something => {
                Some(self.saved.keepalive)
            }
            // Until its first stream it has the time that it takes to open one.
            Tether::Connection if self.events.streams.is_empty() && !self.events.heard => {
                Some(self.saved.linger.max(FIRST_STREAM))
            }
            Tether::Connection if self.events.streams.is_empty() => Some(self.saved.linger),
            // Its program has to show itself, or a dead one would hold for ever.
            Tether::Process
                if self.life.unwatched
                    && self.events.streams.is_empty()
                    && self.life.blocked == 0 =>
            {
                Some(self.saved.linger.max(FIRST_STREAM))
            }
            Tether::Keepalive | Tether::Connection | Tether::Process => None,
        }
    }
}
