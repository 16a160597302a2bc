//! A gateway as the upstream: the store behind it is known to the gateway alone.
//!
//! One connection is for beats, one for other calls, one for the change stream. On each of the first two
//! one call is on its way at a time. A backend with the session plane alone is spoken to in its own words.

mod address;
pub mod behind;
mod choice;
mod door;
mod feed;
mod gateways;
mod history;
mod http;
mod join;
pub mod key;
mod lateness;
mod local_key;
pub mod paging;
mod proxy;
pub mod scope;
mod session_plane;
mod settings;
#[cfg(test)]
mod tests;
pub mod wire;

pub use address::GatewayAccess;
pub use local_key::LOCAL_KEY;
pub use settings::settings;

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hyper::StatusCode;
use tenure_core::model::{Answer, BeatAnswer, ClaimId, Failure, GoneReason, Request, Resource};
use tenure_host::clock;

use self::address::{Address, Face};
use self::http::{Answered, CallError, Http};
use self::join::OwnKey;
use self::key::Shown;
use self::paging::Listing;
use self::wire::Operation;
use crate::remote::{self, Backend, Dialer, Driver, Hears, LineOf, Listening, NoChores, Verified};
use crate::settings::secret::SecretSource;
use crate::settings::{OpenError, Opened, Place};

/// The guarantee of a gateway.
pub const GUARANTEE: &str = "that of the store behind the gateway";

/// Opens a gateway.
///
/// # Errors
///
/// When the agent's journal cannot be used, or a key of its own not be kept.
pub fn open(access: &GatewayAccess, place: Place<'_>) -> Result<Opened, OpenError> {
    let mut access = access.clone();
    let key = access.key.as_ref().map(SecretSource::latest);
    if let Some(join) = key.as_ref().and_then(|key| Shown::parse_join(key.expose())) {
        let directory = place.state_dir.directory();
        let own = directory.ok_or_else(|| std::io::ErrorKind::Unsupported.into());
        let own = own.and_then(|directory| OwnKey::read_or_make(directory, &join));
        access.own_key = Some(own.map_err(OpenError::OwnKey)?);
    }
    remote::open(place, || Box::new(Gateway::open(access)))
}

/// A gateway.
#[derive(Debug)]
pub struct Gateway {
    dialer: Arc<Dialer<Address>>,
}

type Line = LineOf<Gateway>;

impl Gateway {
    /// Starts to connect. Must be called on the thread, and in the runtime, that will use it.
    pub fn open(access: GatewayAccess) -> Driver<Gateway> {
        let dialer = Arc::new(Dialer::new(Address::new(access)));
        let timeout = dialer.connector().timeout();
        let gateway = Gateway { dialer: Arc::clone(&dialer) };
        Driver::open(&dialer, gateway, NoChores, timeout)
    }

    /// Asks the gateway that the connection leads to.
    async fn attempt(
        &self,
        line: &mut Line,
        request: &Request,
        floor: u64,
    ) -> Result<Answer, Missed> {
        let nothing = Failure::Unavailable;
        let connection = line.connection().clone();
        let Some(http) = &connection.http else {
            return Err(nothing("there is no connection for this".to_owned()).into());
        };
        let mark = match connection.face {
            Face::Agents(mark) => mark,
            Face::SessionPlane => {
                let plane = self.dialer.connector().plane();
                return Ok(plane.perform(http, line, request, floor).await?);
            }
        };
        if connection.forgets.load(Ordering::Relaxed)
            && let Some(answer) = without_history(request)
        {
            return Ok(answer);
        }
        let scope = self.dialer.connector().scope();
        let mut scoped = scope.outward(clock::now(), mark, request.clone());
        let mut listing = Listing::of(&mut scoped);
        let operation = Operation::of(request);
        let mut answered = post(http, line, scoped.clone()).await?;
        if listing.begins_again(&mut scoped, &answered) {
            answered = post(http, line, scoped).await?;
        }
        if answered.status == StatusCode::UNAUTHORIZED {
            // The key may have been changed, and is read again: the next connection says whether it is good.
            line.suspect();
        }
        if answered.status == StatusCode::NOT_FOUND
            && let Some(answer) = without_history(request)
        {
            connection.forgets.store(true, Ordering::Relaxed);
            return Ok(answer);
        }
        let mut answer = understand(operation, request, &answered)?;
        scope.inward(mark, &mut answer);
        listing.mark(&mut answer);
        Ok(answer)
    }
}

/// Sends a call when its turn has come, and waits for its answer.
async fn post(http: &Http, line: &mut Line, request: Request) -> Result<Answered, Missed> {
    let nothing = Failure::Unavailable;
    let operation = Operation::of(&request);
    let body = wire::request_body(request).map_err(|error| nothing(error.to_string()))?;
    let turn = http.turn().await.map_err(|error| Missed::Lost(nothing(error.to_string())))?;
    line.sending();
    turn.post(operation.path(), body).await.map_err(|error| match error {
        CallError::NotSent(_) => Missed::Lost(nothing(error.to_string())),
        CallError::TooLong => Missed::Said(Failure::Unknown(error.to_string())),
        _ => Missed::Lost(Failure::Unknown(error.to_string())),
    })
}

/// Why a gateway gave no answer.
enum Missed {
    /// The connection is lost: the next one may lead to another gateway.
    Lost(Failure),
    Said(Failure),
}

impl Missed {
    fn failure(self) -> Failure {
        let (Missed::Lost(failure) | Missed::Said(failure)) = self;
        failure
    }
}

impl From<Failure> for Missed {
    fn from(failure: Failure) -> Missed {
        Missed::Said(failure)
    }
}

/// True of what takes effect once, however often it is asked.
fn can_be_repeated(request: &Request) -> bool {
    !matches!(request, Request::Revoke { .. } | Request::Record(_))
}

impl Backend for Gateway {
    type Connector = Address;
    type Chores = NoChores;

    async fn perform(
        &self,
        line: &mut Line,
        request: &Request,
        floor: u64,
    ) -> Result<Answer, Failure> {
        let mut uncertain = None;
        for _ in 0..self.dialer.connector().others_count() {
            let failure = match self.attempt(line, request, floor).await {
                Err(Missed::Lost(failure)) => failure,
                Ok(answer) => return Ok(answer),
                Err(Missed::Said(failure)) => return Err(uncertain.unwrap_or(failure)),
            };
            if matches!(failure, Failure::Unknown(_)) {
                if !can_be_repeated(request) {
                    return Err(failure);
                }
                uncertain.get_or_insert_with(|| failure.clone());
            }
            if line.go_on().await.is_err() {
                return Err(uncertain.unwrap_or(failure));
            }
        }
        let answered = self.attempt(line, request, floor).await;
        answered.map_err(|missed| uncertain.unwrap_or(missed.failure()))
    }

    /// A session plane tells of no changes: they are looked for.
    async fn listen(&self, line: &mut Line) -> Result<Listening, Failure> {
        let refused = match line.connection().face {
            Face::Agents(_) => None,
            Face::SessionPlane => Some(session_plane::MEANING.to_owned()),
        };
        Ok(Listening { hears: Hears::Everything, refused })
    }

    /// The gateway looks after the claims that it carries, and tells of those that are lost. Of others a beat
    /// tells.
    async fn verify(
        &self,
        _: &mut Line,
        claims: &[(ClaimId, Resource)],
    ) -> Result<Vec<Verified>, Failure> {
        let is_told = !self.dialer.connector().plane().is_all_there_is();
        let found = if is_told { Verified::Held } else { Verified::Gone };
        Ok(vec![found; claims.len()])
    }
}

/// The answer of a gateway of an earlier version, which keeps no history: nothing is decided by one.
fn without_history(request: &Request) -> Option<Answer> {
    match request {
        Request::Record(_) => Some(Answer::Recorded),
        Request::History(_) => Some(Answer::History(Vec::new())),
        _ => None,
    }
}

/// The meaning of an answer.
fn understand(
    operation: Operation,
    request: &Request,
    answered: &Answered,
) -> Result<Answer, Failure> {
    match answered.status {
        StatusCode::OK => {
            let wrong =
                |cause: &dyn Display| Failure::Unknown(format!("the gateway's answer: {cause}"));
            let answer = operation.read_answer(&answered.body).map_err(|error| wrong(&error))?;
            // A token that no store counts to would fence off every later holder.
            answer.check().map_err(|invalid| wrong(&invalid))?;
            Ok(answer)
        }
        StatusCode::GONE => match request {
            Request::Renew(beats) => {
                Ok(Answer::Renew(vec![BeatAnswer::Gone(GoneReason::Unknown); beats.len()]))
            }
            _ => Err(Failure::Unavailable(answered.words())),
        },
        // A refusal takes no effect.
        status if status.is_client_error() => Err(match answered.denial() {
            Some(denial) => Failure::Denied(denial),
            None => Failure::Unavailable(answered.words()),
        }),
        _ => Err(Failure::Unknown(answered.words())),
    }
}
