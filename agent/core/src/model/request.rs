//! Requests of an agent to its upstream, and the answers.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_wire::{Attributes, Kind, Role, Routes};

use super::{ClaimId, HistoryEntry, HostId, Members, Resource, SessionId, Within};

/// A call to the upstream; its answer comes back under this number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CallId(pub u64);

/// The owner of a claim, as others may see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// The session; also what *former holder* means during a lease's grace.
    pub session: SessionId,
    pub host: HostId,
    pub name: Arc<str>,
}

/// The terms that only one kind has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Terms {
    /// One per role.
    Leader,
    /// One per project; a higher priority preempts.
    Master {
        /// Higher preempts lower; equal does not.
        priority: i32,
    },
    /// As many as the limit says, in the order of claiming.
    Semaphore {
        /// The limit from now on, for everybody.
        limit: u32,
        /// True if a limit that is in force is kept.
        #[serde(default)]
        keeps: bool,
        /// True if a limit in force that differs is changed only where all holders and waiters bear the mark of this
        /// claim ([`ClaimId::shares_mark`]). Otherwise the claim is answered as contended, also if it would queue, and
        /// the limit stays.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        only_own: bool,
    },
    /// One, listed in the routing table.
    Lease {
        /// How long after expiry only the former holder's session is granted it.
        grace: Duration,
        /// The entry in the routing table.
        attributes: Attributes,
        /// The claim that makes way for this one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        take_over: Option<Box<TakeOver>>,
    },
}

/// A lease that goes from one claim to another at once, if nobody has renewed it for a while: the caller knows that
/// both are of one program, and that its first run has ended. Nobody who waits is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakeOver {
    pub from: ClaimId,
    /// For how long at least nobody has renewed it.
    pub unbeaten: Duration,
}

/// A wish to hold a resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// The hold to be; the same id again is the same claim.
    pub id: ClaimId,
    pub resource: Resource,
    pub owner: Owner,
    /// How long the grant, or the place in the queue, outlives its last beat.
    pub ttl: Duration,
    pub terms: Terms,
    /// Stay in the queue if it is taken. Without, nobody who waits is overtaken.
    pub enqueue: bool,
}

impl Claim {
    /// The rank in a queue: those of a lower one wait behind. A master's goes by its priority.
    pub fn rank(&self) -> Reverse<i32> {
        match self.terms {
            Terms::Master { priority } => Reverse(priority),
            _ => Reverse(0),
        }
    }
}

/// The subject of a beat.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Subject {
    /// A grant or a place in a queue.
    Claim { claim: ClaimId, resource: Resource },
    /// An announced session, and the master of its project.
    Session { session: SessionId, master: Resource },
}

/// One renewal. For a waiting claim it also confirms a grant that was announced by a hint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beat {
    pub subject: Subject,
    /// For how long from now on.
    pub ttl: Duration,
}

/// A session that is announced in its project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRecord {
    pub owner: Owner,
    pub tenant: Arc<str>,
    pub project: Arc<str>,
    /// The kind of program.
    pub surface: Arc<str>,
    /// How long it outlives its last beat.
    pub ttl: Duration,
    /// When it was announced first, in ISO 8601: the word of a gateway, for a store without a calendar.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registered_at: Option<Arc<str>>,
}

impl SessionRecord {
    /// The master of its project.
    pub fn master(&self) -> Resource {
        let (tenant, name) = (Arc::clone(&self.tenant), Arc::clone(&self.project));
        Resource { tenant, kind: Kind::Master, name }
    }
}

/// A part of a long answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// The cursor that the page before ended with.
    pub after: Option<Arc<str>>,
    /// How many entries at most; an upstream that reads in steps may give some more.
    pub limit: usize,
}

impl Page {
    /// All of it.
    pub fn whole() -> Page {
        Page { after: None, limit: usize::MAX }
    }
}

/// Most beats in one [`Request::Renew`].
pub const BEATS_MAX: usize = 512;

/// An operation upstream. Each can be sent again after a lost reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// Answered by [`Answer::Claim`].
    Claim(Claim),
    /// Answered by [`Answer::Renew`], in the same order.
    Renew(Vec<Beat>),
    /// Answered by [`Answer::Released`]. Leaves a mark, so that a claim of the same id that was
    /// sent earlier and arrives later is refused.
    Release { claim: ClaimId, resource: Resource },
    /// Answered by [`Answer::Announced`].
    Announce(SessionRecord),
    /// Answered by [`Answer::Ended`].
    EndSession { session: SessionId, tenant: Arc<str>, project: Arc<str> },
    /// Answered by [`Answer::Standing`], with at most [`STANDING_LISTED_MAX`] of each list.
    Inspect(Resource),
    /// Every holder, for a caller that takes the resource away from them. Answered by
    /// [`Answer::Standing`]; only the holders count.
    Holders(Resource),
    /// Answered by [`Answer::Members`]: the master, and if `listed` a page of the sessions, or all of them.
    Members { within: Within, listed: bool, page: Option<Page> },
    /// Answered by [`Answer::Routes`].
    Routes {
        tenant: Arc<str>,
        /// Only this lease.
        name: Option<Arc<str>>,
        page: Page,
    },
    /// The names of all that is held, waited for or announced; a project with sessions is a master. In no order;
    /// over several pages a name may come again, and one that comes or goes meanwhile be missed. Answered by
    /// [`Answer::Resources`].
    Resources { page: Page },
    /// Answered by [`Answer::Revoked`].
    Revoke {
        resource: Resource,
        /// Only the grant with this token.
        token: Option<u64>,
        /// Kept with the mark of what is taken away, for the agents that had it.
        revocation: Option<Arc<Revocation>>,
    },
    /// Keeps what happened for people who ask later; nothing goes by it. At most [`RECORD_MAX`](super::RECORD_MAX)
    /// changes. Answered by [`Answer::Recorded`].
    Record(Vec<HistoryEntry>),
    /// Answered by [`Answer::History`].
    History(Resource),
}

impl Request {
    /// True if no claim and no release should wait behind it: its answer may have many rows, or no client waits for it.
    pub fn is_aside(&self) -> bool {
        match self {
            Request::Inspect(_)
            | Request::Holders(_)
            | Request::Members { listed: true, .. }
            | Request::Routes { .. }
            | Request::Resources { .. }
            | Request::Record(_)
            | Request::History(_) => true,
            Request::Claim(_)
            | Request::Renew(_)
            | Request::Release { .. }
            | Request::Announce(_)
            | Request::EndSession { .. }
            | Request::Revoke { .. }
            | Request::Members { listed: false, .. } => false,
        }
    }

    /// True if it changes nothing.
    pub fn is_read(&self) -> bool {
        matches!(
            self,
            Request::Inspect(_)
                | Request::Holders(_)
                | Request::Members { .. }
                | Request::Routes { .. }
                | Request::Resources { .. }
                | Request::History(_)
        )
    }
}

/// A holder or waiter, as the upstream knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StandingEntry {
    pub claim: ClaimId,
    pub owner: Owner,
    /// The token; 0 while waiting.
    pub token: u64,
    /// How long it has been held, or waited for.
    pub since: Duration,
    /// For how long nobody has renewed it; `None` for a waiter, and where the upstream does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unbeaten: Option<Duration>,
}

/// Most holders, most waiters and most sessions that a standing lists; all of them are counted.
pub const STANDING_LISTED_MAX: usize = 100;

/// Most names in a page of them, whatever is asked for.
pub const RESOURCES_LISTED_MAX: usize = 1024;

/// The holders and waiters of a resource, as the upstream knows them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpstreamStanding {
    /// Semaphore only.
    pub limit: Option<u32>,
    /// Oldest grant first.
    pub holders: Vec<StandingEntry>,
    /// How many holders there are, listed or not.
    pub holding: u64,
    /// Next first.
    pub waiters: Vec<StandingEntry>,
    /// How many waiters there are, listed or not.
    pub waiting: u64,
    /// Master only: names of the project's sessions.
    pub sessions: Vec<Arc<str>>,
    /// How many sessions the project has, listed or not.
    pub members: u64,
    /// When an exclusive holder's time is up; `None` from an upstream that tells of it in time by itself.
    pub runs_out: Option<Duration>,
    /// The times of a lease that is held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseTimes>,
}

/// The times of a lease, also in its grace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseTimes {
    /// That of its last beat.
    pub ttl: Duration,
    pub grace: Duration,
    /// For how long nobody has renewed it.
    pub unbeaten: Duration,
}

/// The answer to [`Request::Claim`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClaimAnswer {
    /// Granted, now or by an earlier copy of the same claim.
    Held {
        /// The fencing token of the grant.
        token: u64,
        /// Semaphore only: the limit in force.
        limit: Option<u32>,
        /// The one that this claim changed.
        limit_was: Option<u32>,
    },
    /// In the queue.
    Waiting {
        /// 1 is next.
        position: u64,
        /// Semaphore only: the limit in force.
        limit: Option<u32>,
        /// The one that this claim changed.
        limit_was: Option<u32>,
    },
    /// Taken.
    Contended {
        /// `None` where it is not known.
        holder: Option<StandingEntry>,
        /// When it ends unless it is renewed; a good time to try again.
        free_in: Option<Duration>,
        /// Semaphore only: the limit in force.
        limit: Option<u32>,
        /// The one that this claim changed.
        limit_was: Option<u32>,
    },
    /// This claim has been granted or queued and has ended; it is never granted again.
    Gone(GoneReason),
    /// Not now: earlier grants that this upstream has forgotten may still be valid.
    Quarantined { free_in: Duration },
}

/// Why a claim is no longer there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum GoneReason {
    /// Released, with this id.
    Released,
    /// Not renewed in time.
    Expired,
    /// A higher priority took it.
    Preempted,
    /// An administrator took it.
    Revoked,
    /// Never heard of it.
    Unknown,
    /// Somebody else has it.
    Conflict,
}

/// Most bytes of [`Revocation::by`].
pub const REVOKED_BY_MAX: usize = 512;

/// The words of whoever takes a grant away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revocation {
    /// The user and host, such as `root on hostb`; at most [`REVOKED_BY_MAX`] bytes.
    pub by: String,
    /// The reason, in the words of `by`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How long the loser's session may not have the resource again, ms.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub for_ms: u64,
}

fn is_zero(ms: &u64) -> bool {
    *ms == 0
}

/// The answer to one [`Beat`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum BeatAnswer {
    /// The claim is granted and renewed.
    Held {
        /// The fencing token of the grant.
        token: u64,
        /// Semaphore only: the limit in force.
        limit: Option<u32>,
    },
    /// The claim is still in the queue.
    Waiting {
        /// 1 is next.
        position: u64,
        /// Semaphore only: the limit in force.
        limit: Option<u32>,
    },
    /// The claim, or the session, is not there.
    Gone(GoneReason),
    /// An administrator took it, and said why. Without words it is [`GoneReason::Revoked`].
    Revoked(Arc<Revocation>),
    /// The session is renewed.
    Session {
        /// Its role in its project.
        role: Role,
    },
    /// The cause why the upstream could not renew this one: to its holder the same as a call without an answer.
    Failed(String),
}

impl BeatAnswer {
    /// Why the claim, or the session, is not there.
    pub fn gone(&self) -> Option<GoneReason> {
        match self {
            BeatAnswer::Gone(reason) => Some(*reason),
            BeatAnswer::Revoked(_) => Some(GoneReason::Revoked),
            _ => None,
        }
    }
}

/// An answer of the upstream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// To [`Request::Claim`].
    Claim(ClaimAnswer),
    /// To [`Request::Renew`], in the same order.
    Renew(Vec<BeatAnswer>),
    /// To [`Request::Release`]: whether it was there.
    Released(bool),
    /// To [`Request::Announce`].
    Announced,
    /// To [`Request::EndSession`]: whether it was there.
    Ended(bool),
    /// To [`Request::Inspect`].
    Standing(UpstreamStanding),
    /// To [`Request::Members`]: `None` if there is no such session.
    Members(Option<Members>),
    /// To [`Request::Routes`].
    Routes(Routes),
    /// To [`Request::Resources`]. A page may be empty and have one after it.
    Resources {
        resources: Vec<Resource>,
        /// The cursor of the next page; `None` after the last.
        next: Option<Arc<str>>,
    },
    /// To [`Request::Revoke`]: how many grants were taken away.
    Revoked(u64),
    /// To [`Request::Record`].
    Recorded,
    /// To [`Request::History`]: newest first, at most [`HISTORY_MAX`](super::HISTORY_MAX), none older than
    /// [`HISTORY_KEPT`](super::HISTORY_KEPT).
    History(Vec<HistoryEntry>),
}
