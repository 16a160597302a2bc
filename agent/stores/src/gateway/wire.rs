//! The agent face of a gateway: what an agent and a gateway say to each other. Both use this one text of it.
//!
//! A call is `POST`, its body is JSON, and so is its answer. Fields that are not known are ignored and new
//! ones have defaults, so that an agent works with the gateway before its own version and after it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Error;
use tenure_core::model::{
    Answer, Beat, BeatAnswer, Claim, ClaimAnswer, ClaimId, GoneReason, Members, Page, Request,
    Resource, Revocation, SessionId, SessionRecord, UpstreamStanding, Within,
};
use tenure_wire::Routes;

pub use super::behind::{StoreInfo, StoreState};
use super::history::{Changes, HistoryOf};
use super::scope::Mark;
use crate::relay::Carried;

/// The version of all this.
pub const PROTOCOL: u32 = 1;
/// Answered by [`Welcome`].
pub const HELLO: &str = "/v1/upstream/hello";
/// `POST` of a [`Join`] with a join key. Answered by `{}`, also once more to the same.
pub const JOIN: &str = "/v1/upstream/join";
/// `GET`: events of [`News`].
pub const CHANGES: &str = "/v1/upstream/changes";
/// `POST` without a body: answered by a `tenure_wire::Diagnosis` of the store.
pub const EXAMINE: &str = "/v1/upstream/examine";
/// The header that says which agent a call is of, for people: the same on all its connections until it ends.
pub const AGENT: &str = "tenure-agent";
/// Most bytes of a request: [`BEATS_MAX`] beats of resources with the longest names have half of it.
pub const REQUEST_BYTES_MAX: usize = 1 << 20;
/// Most bytes of an answer; the holders of a large semaphore have a tenth of it.
pub const ANSWER_BYTES_MAX: usize = 16 << 20;
/// Most bytes of an event.
pub const NEWS_BYTES_MAX: usize = 1 << 20;
/// Most beats in a call.
pub const BEATS_MAX: usize = tenure_core::model::BEATS_MAX;

/// The first words of an agent on each connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The agent's [`PROTOCOL`].
    pub protocol: u32,
    /// The agent's version, for people.
    pub version: String,
    /// The agent's host, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// It does not use this gateway.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub only_looks: bool,
}

/// The key of its own that an agent wants for a join key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Join {
    pub id: String,
    /// That of its secret, 64 hexadecimal digits.
    pub sha256: String,
}

/// A gateway that lets an agent in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// The gateway's [`PROTOCOL`].
    pub protocol: u32,
    /// The gateway's version, for people.
    pub version: String,
    pub store: StoreInfo,
    #[serde(default, skip_serializing_if = "StoreState::is_up")]
    pub state: StoreState,
    /// The ids of all sessions and claims of this caller end with it.
    pub mark: Mark,
}

/// The operations, each with an endpoint of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    Claim,
    Renew,
    Release,
    Announce,
    End,
    /// Both [`Request::Inspect`] and [`Request::Holders`].
    Inspect,
    Members,
    Routes,
    /// Gateways before this one know neither this nor the next two: an agent needs it for nothing that it does by itself.
    Resources,
    Record,
    History,
    Revoke,
}

impl Operation {
    pub const ALL: [Operation; 12] = [
        Operation::Claim,
        Operation::Renew,
        Operation::Release,
        Operation::Announce,
        Operation::End,
        Operation::Inspect,
        Operation::Members,
        Operation::Routes,
        Operation::Resources,
        Operation::Record,
        Operation::History,
        Operation::Revoke,
    ];

    /// The operation that a request asks for.
    pub fn of(request: &Request) -> Operation {
        match request {
            Request::Claim(_) => Operation::Claim,
            Request::Renew(_) => Operation::Renew,
            Request::Release { .. } => Operation::Release,
            Request::Announce(_) => Operation::Announce,
            Request::EndSession { .. } => Operation::End,
            Request::Inspect(_) | Request::Holders(_) => Operation::Inspect,
            Request::Members { .. } => Operation::Members,
            Request::Routes { .. } => Operation::Routes,
            Request::Resources { .. } => Operation::Resources,
            Request::Record(_) => Operation::Record,
            Request::History(_) => Operation::History,
            Request::Revoke { .. } => Operation::Revoke,
        }
    }

    pub const fn path(self) -> &'static str {
        match self {
            Operation::Claim => "/v1/upstream/claim",
            Operation::Renew => "/v1/upstream/renew",
            Operation::Release => "/v1/upstream/release",
            Operation::Announce => "/v1/upstream/announce",
            Operation::End => "/v1/upstream/end",
            Operation::Inspect => "/v1/upstream/inspect",
            Operation::Members => "/v1/upstream/members",
            Operation::Routes => "/v1/upstream/routes",
            Operation::Resources => "/v1/upstream/resources",
            Operation::Record => "/v1/upstream/record",
            Operation::History => "/v1/upstream/history",
            Operation::Revoke => "/v1/upstream/revoke",
        }
    }

    /// Reads the body of a call.
    ///
    /// # Errors
    ///
    /// When it is not what this operation takes.
    pub fn read_request(self, body: &[u8]) -> Result<Request, Error> {
        Ok(match self {
            Operation::Claim => Request::Claim(read(body)?),
            Operation::Renew => Request::Renew(read::<Renew>(body)?.beats),
            Operation::Release => {
                let Release { claim, resource } = read(body)?;
                Request::Release { claim, resource }
            }
            Operation::Announce => Request::Announce(read(body)?),
            Operation::End => {
                let End { session, tenant, project } = read(body)?;
                Request::EndSession { session, tenant, project }
            }
            Operation::Inspect => match read(body)? {
                Inspect { resource, all_holders: false } => Request::Inspect(resource),
                Inspect { resource, all_holders: true } => Request::Holders(resource),
            },
            Operation::Members => {
                let MembersOf { within, listed, page } = read(body)?;
                Request::Members { within, listed, page }
            }
            Operation::Routes => {
                let RoutesOf { tenant, name, page } = read(body)?;
                Request::Routes { tenant, name, page }
            }
            Operation::Resources => Request::Resources { page: read::<ResourcesOf>(body)?.page },
            Operation::Record => Request::Record(read::<Changes>(body)?.changes),
            Operation::History => Request::History(read::<HistoryOf>(body)?.resource),
            Operation::Revoke => {
                let Revoke { resource, token, revocation } = read(body)?;
                Request::Revoke { resource, token, revocation }
            }
        })
    }

    /// Reads the answer to a call.
    ///
    /// # Errors
    ///
    /// When it is not an answer to this operation.
    pub fn read_answer(self, body: &[u8]) -> Result<Answer, Error> {
        Ok(match self {
            Operation::Claim => Answer::Claim(read::<ClaimAnswer>(body)?),
            Operation::Renew => Answer::Renew(read::<Renewed>(body)?.answers()),
            Operation::Release => Answer::Released(read::<Found>(body)?.found),
            Operation::Announce => {
                read::<Done>(body)?;
                Answer::Announced
            }
            Operation::End => Answer::Ended(read::<Found>(body)?.found),
            Operation::Inspect => Answer::Standing(read::<UpstreamStanding>(body)?),
            Operation::Members => Answer::Members(read::<Option<Members>>(body)?),
            Operation::Routes => Answer::Routes(read::<Routes>(body)?),
            Operation::Resources => {
                let Names { resources, next } = read(body)?;
                Answer::Resources { resources, next }
            }
            Operation::Record => {
                read::<Done>(body)?;
                Answer::Recorded
            }
            Operation::History => Answer::History(read::<Changes>(body)?.changes),
            Operation::Revoke => Answer::Revoked(read::<Revoked>(body)?.revoked),
        })
    }
}

/// The body of a call.
///
/// # Errors
///
/// Never for a request that an agent makes.
pub fn request_body(request: Request) -> Result<Vec<u8>, Error> {
    match request {
        Request::Claim(claim) => write::<Claim>(&claim),
        Request::Renew(beats) => write(&Renew { beats }),
        Request::Release { claim, resource } => write(&Release { claim, resource }),
        Request::Announce(record) => write::<SessionRecord>(&record),
        Request::EndSession { session, tenant, project } => {
            write(&End { session, tenant, project })
        }
        Request::Inspect(resource) => write(&Inspect { resource, all_holders: false }),
        Request::Holders(resource) => write(&Inspect { resource, all_holders: true }),
        Request::Members { within, listed, page } => write(&MembersOf { within, listed, page }),
        Request::Routes { tenant, name, page } => write(&RoutesOf { tenant, name, page }),
        Request::Resources { page } => write(&ResourcesOf { page }),
        Request::Record(changes) => write(&Changes { changes }),
        Request::History(resource) => write(&HistoryOf { resource }),
        Request::Revoke { resource, token, revocation } => {
            write(&Revoke { resource, token, revocation })
        }
    }
}

/// The body of an answer.
///
/// # Errors
///
/// Never for an answer that a store gives.
pub fn answer_body(answer: Answer) -> Result<Vec<u8>, Error> {
    match answer {
        Answer::Claim(answer) => write(&answer),
        Answer::Renew(answers) => write(&Renewed::from(answers)),
        Answer::Released(found) | Answer::Ended(found) => write(&Found { found }),
        Answer::Announced | Answer::Recorded => write(&Done {}),
        Answer::History(changes) => write(&Changes { changes }),
        Answer::Standing(standing) => write(&standing),
        Answer::Members(members) => write(&members),
        Answer::Routes(routes) => write(&routes),
        Answer::Resources { resources, next } => write(&Names { resources, next }),
        Answer::Revoked(revoked) => write(&Revoked { revoked }),
    }
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(body)
}

fn write<T: Serialize>(body: &T) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(body)
}

#[derive(Serialize, Deserialize)]
struct Renew {
    beats: Vec<Beat>,
}

#[derive(Serialize, Deserialize)]
struct Renewed {
    beats: Vec<BeatAnswer>,
    /// The words of those that were revoked, by their places: an agent that does not know them reads the rest.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    revocations: BTreeMap<usize, Arc<Revocation>>,
}

impl Renewed {
    fn answers(self) -> Vec<BeatAnswer> {
        let Renewed { mut beats, revocations } = self;
        for (at, revocation) in revocations {
            if let Some(beat) = beats.get_mut(at)
                && *beat == BeatAnswer::Gone(GoneReason::Revoked)
            {
                *beat = BeatAnswer::Revoked(revocation);
            }
        }
        beats
    }
}

impl From<Vec<BeatAnswer>> for Renewed {
    fn from(mut beats: Vec<BeatAnswer>) -> Renewed {
        let mut revocations = BTreeMap::new();
        for (at, beat) in beats.iter_mut().enumerate() {
            if let BeatAnswer::Revoked(revocation) = beat {
                revocations.insert(at, Arc::clone(revocation));
                *beat = BeatAnswer::Gone(GoneReason::Revoked);
            }
        }
        Renewed { beats, revocations }
    }
}

#[derive(Serialize, Deserialize)]
struct Release {
    claim: ClaimId,
    resource: Resource,
}

#[derive(Serialize, Deserialize)]
struct End {
    session: SessionId,
    tenant: Arc<str>,
    project: Arc<str>,
}

#[derive(Serialize, Deserialize)]
struct Inspect {
    resource: Resource,
    #[serde(default)]
    all_holders: bool,
}

#[derive(Serialize, Deserialize)]
struct MembersOf {
    within: Within,
    listed: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    page: Option<Page>,
}

#[derive(Serialize, Deserialize)]
struct RoutesOf {
    tenant: Arc<str>,
    #[serde(default)]
    name: Option<Arc<str>>,
    page: Page,
}

#[derive(Serialize, Deserialize)]
struct ResourcesOf {
    page: Page,
}

#[derive(Serialize, Deserialize)]
struct Names {
    resources: Vec<Resource>,
    #[serde(default)]
    next: Option<Arc<str>>,
}

#[derive(Serialize, Deserialize)]
struct Revoke {
    resource: Resource,
    #[serde(default)]
    token: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    revocation: Option<Arc<Revocation>>,
}

#[derive(Serialize, Deserialize)]
struct Found {
    found: bool,
}

#[derive(Serialize, Deserialize)]
struct Done {}

#[derive(Serialize, Deserialize)]
struct Revoked {
    revoked: u64,
}

/// A hint, as the change stream has it. Never the truth: it makes an agent ask.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum News {
    /// A holder or waiter of the resource came or went.
    Resource(Resource),
    /// A waiting claim may have been granted. What the grant says, if it is known, may be acted on as
    /// [`Change::Granted`](tenure_core::model::Change::Granted) tells.
    Granted {
        claim: ClaimId,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        grant: Option<Carried>,
    },
    /// A grant may have been taken away.
    Lost { claim: ClaimId },
    /// A message to a project, or to one session of it.
    Message {
        tenant: Arc<str>,
        project: Arc<str>,
        #[serde(default)]
        session: Option<SessionId>,
        payload: serde_json::Value,
    },
    /// The gateway may not have been told of some changes.
    FeedLost,
    /// This stream could not take all news, and some were left out.
    Reset,
    /// The store behind the gateway is away, or is back. Who does not know of this passes over it.
    Store(StoreState),
}

impl News {
    /// The line of the stream, with the end of its event.
    ///
    /// # Errors
    ///
    /// Never for news of a store.
    pub fn line(&self) -> Result<Vec<u8>, Error> {
        let mut line = Vec::from(DATA);
        serde_json::to_writer(&mut line, self)?;
        line.extend_from_slice(b"\n\n");
        Ok(line)
    }

    /// Reads a line of the stream; `None` if it is a comment, or news of a later version.
    pub fn read(line: &[u8]) -> Option<News> {
        serde_json::from_slice(line.strip_prefix(DATA)?).ok()
    }
}

/// The field of an event that has its contents.
const DATA: &[u8] = b"data: ";

/// A sign of life.
pub const COMMENT: &[u8] = b": \n\n";

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.path().rsplit('/').next().unwrap_or_default();
        f.write_str(name)
    }
}
