//! Rows that must survive a restart of the agent.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_wire::page::{SLOTS, SLOTS_MAX};
use tenure_wire::{LostReason, Tether, Wait};

use crate::model::{Claim, ClaimId, Resource, Revocation, SessionId};
use crate::model::{Process, Program};
use crate::time::Boottime;

/// A session as the journal keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedSession {
    /// Its id.
    pub id: SessionId,
    /// The secret that resumes it.
    pub secret: String,
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// The process that registered.
    pub process: Option<Process>,
    /// True if that process was watched.
    pub watched: bool,
    /// Its name.
    pub name: Arc<str>,
    /// The kind of program.
    pub surface: Arc<str>,
    /// Its tenant.
    pub tenant: Arc<str>,
    /// Its project.
    pub project: Arc<str>,
    /// True if it is announced in its project.
    pub announced: bool,
    pub tether: Tether,
    /// For a keepalive tether.
    pub keepalive: Duration,
    /// For a connection tether.
    pub linger: Duration,
    /// The program's own promise.
    pub progress: Option<Duration>,
    /// How long it outlives its last beat upstream.
    pub ttl: Duration,
    /// True if guarded work goes on until the tether ends.
    pub guarded: bool,
    /// How many holds it may have: its page has so many slots.
    #[serde(default = "usual_holds")]
    pub holds: u32,
    /// As people know it.
    #[serde(default, skip_serializing_if = "Program::is_unknown")]
    pub program: Program,
    /// Resources that were taken from it and that it may not have for a while.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub barred: Vec<Bar>,
}

/// A resource that a session may not have for a while.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bar {
    pub resource: Resource,
    pub until: Boottime,
    pub revocation: Arc<Revocation>,
}

/// The number of a session of an agent that knew no other.
fn usual_holds() -> u32 {
    SLOTS
}

/// A hold as the journal keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedHold {
    /// Its row: grows with every hold, so that beats of neighbours touch neighbouring rows.
    pub row: u64,
    pub claim: Claim,
    /// How its client waits.
    pub wait: Wait,
    /// When the wait ends.
    pub wait_until: Option<Boottime>,
    /// The client's id for it.
    pub request: Option<String>,
    /// How long it may be held in all; the agent alone counts it.
    #[serde(default)]
    pub max_hold: Option<Duration>,
    /// How long it is kept from others at least.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_least: Option<Duration>,
    /// Its slot on the page.
    pub slot: u32,
    /// The token; `None` while waiting.
    pub token: Option<u64>,
    /// The instant just before the granting request was sent.
    pub granted_at: Option<Boottime>,
    /// When its holder must stop, as of the grant; later beats come as [`Entry::Valid`].
    pub valid_until: Boottime,
    /// It has ended for its client, and its release upstream is not confirmed yet.
    pub departing: bool,
}

/// Ended holds and sessions that still answer, as the journal keeps them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SavedEnd {
    /// A hold of a session that goes on.
    Hold {
        /// Its id.
        hold: ClaimId,
        /// Whose it was.
        session: SessionId,
        /// The client's id for it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        request: Option<Arc<str>>,
        /// Why it was lost; `None` when it was released.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lost: Option<LostReason>,
        /// Until when it is remembered.
        until: Boottime,
    },
    /// A session.
    Session {
        /// Its id.
        session: SessionId,
        /// Its user.
        uid: u32,
        /// Why it ended.
        why: Cow<'static, str>,
        /// Until when it is remembered.
        until: Boottime,
    },
}

impl SavedEnd {
    /// Until when it is remembered.
    pub fn until(&self) -> Boottime {
        match self {
            SavedEnd::Hold { until, .. } | SavedEnd::Session { until, .. } => *until,
        }
    }
}

/// One change of the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Entry {
    /// Write or overwrite.
    Session(Box<SavedSession>),
    /// Remove.
    SessionEnded(SessionId),
    /// Write or overwrite.
    Hold(Box<SavedHold>),
    /// A beat made a hold valid until then; comes after its [`Entry::Hold`].
    Valid {
        /// The hold's row.
        row: u64,
        /// When its holder must stop.
        valid_until: Boottime,
    },
    /// Remove.
    HoldEnded {
        /// The hold's row.
        row: u64,
        /// The hold.
        hold: ClaimId,
    },
    /// Remember an end. It is forgotten by its time, not by another entry.
    Remembered(SavedEnd),
}

/// A row of the journal, as the keeper finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// A session.
    Session(SessionId),
    /// A hold, or one that is being released.
    Hold(ClaimId),
    /// A hold that has ended and is remembered.
    EndedHold(ClaimId),
    /// The same of a session.
    EndedSession(SessionId),
}

/// Everything that the journal knows of this boot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Saved {
    /// Sessions.
    pub sessions: Vec<SavedSession>,
    /// Holds by row, each with the valid-until of its last beat.
    pub holds: Vec<SavedHold>,
    /// Ended holds and sessions, in the order in which they are forgotten.
    pub remembered: Vec<SavedEnd>,
}

impl Saved {
    /// Holds whose valid-until has passed, with that.
    pub fn ended(&self, now: Boottime) -> HashMap<ClaimId, Boottime> {
        let ended =
            self.holds.iter().filter(|hold| hold.token.is_some() && hold.valid_until <= now);
        ended.map(|hold| (hold.claim.id, hold.valid_until)).collect()
    }

    /// Takes up renewals that the journal had no space for: a hold whose valid-until has passed may be shown as
    /// valid longer. `shown` tells until when the page of its session, of so many slots, shows it.
    pub fn catch_up(
        &mut self,
        now: Boottime,
        mut shown: impl FnMut(&SavedHold, u32) -> Option<Boottime>,
    ) {
        let slots: HashMap<_, _> =
            self.sessions.iter().map(|session| (session.id, session.holds)).collect();
        for hold in &mut self.holds {
            let may_lag = hold.token.is_some() && hold.valid_until <= now;
            let slots = slots.get(&hold.claim.owner.session).filter(|_| may_lag);
            if let Some(until) = slots.and_then(|slots| shown(hold, *slots)) {
                hold.valid_until = hold.valid_until.max(until);
            }
        }
    }

    /// Looks for what no keeper has written.
    ///
    /// # Errors
    ///
    /// The row that contradicts another.
    pub fn check(&self) -> Result<(), String> {
        let mut ids = HashSet::new();
        let mut slots = HashSet::new();
        let mut slots_max = HashMap::new();
        for session in &self.sessions {
            let (id, holds) = (session.id, session.holds);
            if !(1..=SLOTS_MAX).contains(&holds) {
                return Err(format!("session {id} has a page of {holds} slots"));
            }
            slots_max.insert(id, holds);
        }
        for hold in &self.holds {
            let (id, slot) = (hold.claim.id, hold.slot);
            if !ids.insert(id) {
                return Err(format!("hold {id} is in it twice"));
            }
            // One that is being released may have outlived its session.
            let slots_max = slots_max.get(&hold.claim.owner.session).unwrap_or(&SLOTS_MAX);
            if slot >= *slots_max {
                return Err(format!("hold {id} has slot {slot}"));
            }
            // The slot of a hold that has ended for its client is free.
            if !hold.departing && !slots.insert((hold.claim.owner.session, slot)) {
                return Err(format!("hold {id} has the slot {slot} of another one"));
            }
        }
        Ok(())
    }
}
