//! Budgets: the memory, the connections and the streams that callers may have at a time.
//!
//! | file | what |
//! |---|---|
//! | `bytes.rs` | bytes of bodies and answers: in all, for each principal, for each address |
//! | `seats.rs`, `displaceable.rs` | places of connections, of callers and of strangers; who makes way for whom |
//! | `anonymous.rs` | streams for which nobody needs a key |

mod anonymous;
mod bytes;
mod displaceable;
mod seats;

use std::mem;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use ::bytes::BytesMut;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::response::Response;
use http_body_util::BodyExt;
use tenure_stores::gateway::scope::Mark;
use tenure_wire::Code;
use tokio::time::timeout;

pub(super) use self::anonymous::{AnonymousStreams, Ending};
pub use self::bytes::Shares;
pub(super) use self::bytes::{Budget, Charge, OverBudget, Payer};
pub use self::seats::Limits as Connections;
pub(super) use self::seats::{Full, Seat, Seats};
use super::places::{PlaceOf, Places};
use super::refused::Refused;
use crate::access::{Allowance, Call, Caller, Quotas};

const MIB: usize = 1 << 20;

/// Every bound of what callers may have at a time.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub connections: Connections,
    /// Bytes of requests that are being read or carried out.
    pub bodies: Shares,
    /// Bytes of answers that wait for their readers.
    pub replies: Shares,
    /// Quotas of each principal, unless its key says otherwise.
    pub quotas: Quotas,
    /// Bytes that all principals together may keep in the store.
    pub bytes_kept: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        let shares = Shares { all: 128 * MIB, per_principal: 32 * MIB, per_address: 64 * MIB };
        Limits {
            connections: Connections {
                connections: 16_384,
                per_address: 4096,
                anonymous: None,
                anonymous_per_address: None,
            },
            bodies: shares,
            replies: shares,
            quotas: Quotas::default(),
            bytes_kept: 512 * MIB,
        }
    }
}

/// The budgets of a gateway.
#[derive(Debug)]
pub struct Budgets {
    bodies: Arc<Budget>,
    replies: Arc<Budget>,
    streams: Arc<Places<Mark>>,
    pub(super) anonymous: Arc<AnonymousStreams>,
    /// Quotas of principals, and bytes of records in the store.
    pub allowance: Allowance,
}

impl Budgets {
    pub fn new(limits: &Limits) -> Arc<Budgets> {
        let bodies = bytes::Names {
            what: "request bodies",
            all: "limits.body_bytes",
            per_principal: "limits.body_bytes_per_principal",
            per_address: "limits.body_bytes_per_address",
        };
        let replies = bytes::Names {
            what: "answers",
            all: "limits.reply_bytes",
            per_principal: "limits.reply_bytes_per_principal",
            per_address: "limits.reply_bytes_per_address",
        };
        Arc::new(Budgets {
            bodies: Budget::new(bodies, limits.bodies),
            replies: Budget::new(replies, limits.replies),
            streams: Places::new(),
            anonymous: AnonymousStreams::new(),
            allowance: Allowance::new(limits.quotas, limits.bytes_kept),
        })
    }

    /// A place for one more stream of a caller.
    pub(super) fn stream(&self, caller: &Caller) -> Result<PlaceOf<Mark>, Refused> {
        let max = self.allowance.streams(&caller.bounds);
        let taken = self.streams.take(caller.principal.mark, max.number());
        taken.map_err(|count| Refused::denied(&max.denied("open stream", count)))
    }
}

/// The share of one request in the budgets, until it is answered.
#[derive(Debug)]
pub(super) struct Visit {
    budgets: Arc<Budgets>,
    seat: Arc<Seat>,
    /// `None` as long as it has shown no good key.
    principal: OnceLock<Mark>,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    body: Option<Charge>,
    call: Option<Arc<Call>>,
}

impl Visit {
    pub(super) fn new(budgets: Arc<Budgets>, seat: Arc<Seat>) -> Arc<Visit> {
        Arc::new(Visit { budgets, seat, principal: OnceLock::new(), taken: Mutex::default() })
    }

    #[cfg(test)]
    pub(super) fn of_tests() -> Arc<Visit> {
        let limits = Limits::default();
        let seats = Seats::new(limits.connections, false);
        let (seat, _) = seats.take(IpAddr::from([127, 0, 0, 1])).unwrap();
        Visit::new(Budgets::new(&limits), Arc::new(seat))
    }

    /// Its caller was let in.
    pub(super) fn let_in(&self, mark: Mark) {
        if self.principal.set(mark).is_ok() {
            self.seat.begin(mark);
        }
    }

    pub(super) fn address(&self) -> IpAddr {
        self.seat.address
    }

    /// Counts it among the calls of its principal until it is answered.
    pub(super) fn is_call(&self, call: Arc<Call>) {
        self.taken().call = Some(call);
    }

    /// Takes bytes of a body that have come.
    fn takes_body(&self, bytes: usize) -> Result<(), OverBudget> {
        let mut taken = self.taken();
        let charge = taken.body.get_or_insert_with(|| self.budgets.bodies.charge(self.payer()));
        charge.grow(bytes)
    }

    /// Ends what it has as long as it is carried out, and takes the bytes of its answer.
    ///
    /// # Errors
    ///
    /// When they do not fit.
    pub(super) fn answered(&self, answer: &Response) -> Result<Charge, OverBudget> {
        // Until the answer is counted it is one of the large reads, if it is.
        let _ended = mem::take(&mut *self.taken());
        let mut charge = self.waiting();
        // The length of a stream is not known; its queues have bounds of their own.
        if let Some(bytes) = answer.body().size_hint().exact() {
            charge.grow(usize::try_from(bytes).unwrap_or(usize::MAX))?;
        }
        Ok(charge)
    }

    /// Bytes that wait to be written, none so far.
    pub(super) fn waiting(&self) -> Charge {
        self.budgets.replies.charge(self.payer())
    }

    fn payer(&self) -> Payer {
        Payer { principal: self.principal.get().copied(), address: self.seat.address }
    }

    /// No code panics while it holds the lock.
    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        if self.principal.get().is_some() {
            self.seat.is_over();
        }
    }
}

/// Why a body is not read to its end.
#[derive(Debug)]
pub(super) enum NotRead {
    Over(OverBudget),
    TooLong,
    /// Its sender has gone, or broke the rules.
    Broken,
    Late,
}

/// The whole body of a request, of so many bytes at most, taken from the budgets as it comes.
///
/// # Errors
///
/// When it is too long, too late, or there is no room for it.
pub(super) async fn read(request: Request, max: usize, within: Duration) -> Result<Bytes, NotRead> {
    let (head, body) = request.into_parts();
    let visit = head.extensions.get::<Arc<Visit>>();
    timeout(within, collect(body, visit, max)).await.map_err(|_| NotRead::Late)?
}

async fn collect(mut body: Body, visit: Option<&Arc<Visit>>, max: usize) -> Result<Bytes, NotRead> {
    let (mut first, mut rest) = (Bytes::new(), BytesMut::new());
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|_| NotRead::Broken)?.into_data() else { continue };
        if first.len() + rest.len() + data.len() > max {
            return Err(NotRead::TooLong);
        }
        if let Some(visit) = visit {
            visit.takes_body(data.len()).map_err(NotRead::Over)?;
        }
        if first.is_empty() {
            first = data;
        } else {
            rest.extend_from_slice(&data);
        }
    }
    // Most bodies come at once, and are not copied.
    if rest.is_empty() {
        return Ok(first);
    }
    let mut whole = BytesMut::with_capacity(first.len() + rest.len());
    whole.extend_from_slice(&first);
    whole.extend_from_slice(&rest);
    Ok(whole.freeze())
}

impl From<OverBudget> for Refused {
    fn from(over: OverBudget) -> Refused {
        let code = if over.is_own { Code::QuotaExceeded } else { Code::UpstreamUnavailable };
        Refused::over(code, over.limit, over.to_string())
    }
}
