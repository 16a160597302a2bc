//! A store as the corpus sees it.

use std::time::Duration;

use serde_json::Value;
use tenure_core::model::{Answer, Change, ClaimId, GrantHint, Request, Resource, SessionId};
use tenure_core::time::Boottime;

use crate::allowances::Allowance;

/// A store under test, driven by one caller that waits for every answer.
///
/// Required are a clock that the corpus sets, answers, and the hints that they cause. The other
/// methods look at what a store does by itself; a store that cannot be looked into leaves them out.
pub trait Subject {
    /// Differences that are right for this store.
    fn allowances(&self) -> &'static [Allowance];

    /// Forgets everything: a new store, whose clock stands at 0.
    fn begin(&mut self);

    /// Sets the store's clock, to µs after the beginning. It never goes back within a run.
    fn set_clock(&mut self, us: u64);

    /// The answer to a request.
    fn ask(&mut self, request: &Request) -> Result<Answer, String>;

    /// The number of calls that the last answer took: pages of a table, or of a long batch.
    fn calls(&self) -> usize {
        1
    }

    /// The connection breaks, and an answer on its way is lost; the store keeps what it has.
    fn reconnect(&mut self) {}

    /// The hints given since this was called last, in their order.
    fn hints(&mut self) -> Result<Vec<Hint>, String>;

    /// The ways in which upkeep can be done: `true` for when it is due, by [`Subject::look_after`],
    /// `false` for on the way of the next request.
    fn upkeep_in_time(&self) -> &'static [bool] {
        &[true, false]
    }

    /// Does what is due by itself. Tells of each semaphore how it stands then, if the store counts.
    fn look_after(&mut self, semaphores: &[Resource]) -> Result<Option<Vec<Upkeep>>, String> {
        let _ = semaphores;
        Ok(None)
    }

    /// True for each of the claims that holds the resource, by another way than a request.
    fn verify(&mut self, _: &Resource, _: &[ClaimId]) -> Result<Option<Vec<bool>>, String> {
        Ok(None)
    }

    /// The number of changes so far. A look or a refusal must not add to it.
    fn changes(&mut self) -> Option<u64> {
        None
    }

    /// Entries that are left although everything has ended, without the counters of tokens and versions.
    fn left(&mut self) -> Vec<String> {
        Vec::new()
    }
}

/// A semaphore after its upkeep.
#[derive(Debug)]
pub struct Upkeep {
    pub holders: u64,
    pub waiting: u64,
    /// When something is due next, from now on.
    pub next: Option<Duration>,
}

/// Something that a store tells unasked.
#[derive(Debug, Clone, PartialEq)]
pub enum Hint {
    /// To every program of a project.
    ToProject { tenant: String, project: String, payload: Value },
    /// To one program; programs without Tenure have other ids than uuids.
    ToSession { session: String, payload: Value },
    /// A grant was taken away, or a waiter purged.
    Lost(ClaimId),
    /// A waiter was granted, and what it was told of that.
    Granted(ClaimId, Option<Grant>),
    /// A holder or waiter came or went.
    Changed(Resource),
    /// A routing table has a new version.
    RoutesVersion { tenant: String, version: String },
}

/// A grant as its waiter is told of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    pub token: u64,
    /// Semaphore only.
    pub limit: Option<u32>,
    /// Until when it is kept without a beat, after the beginning.
    pub until: Duration,
}

impl Hint {
    /// A hint of an engine whose clock began at that instant.
    pub(crate) fn of(change: Change, beginning: Boottime) -> Hint {
        match change {
            Change::Message { session: Some(SessionId(id)), payload, .. } => {
                Hint::ToSession { session: id.hyphenated().to_string(), payload }
            }
            Change::Message { tenant, project, session: None, payload } => {
                let (tenant, project) = (tenant.to_string(), project.to_string());
                Hint::ToProject { tenant, project, payload }
            }
            Change::Lost { claim, .. } => Hint::Lost(claim),
            Change::Granted { claim, grant, .. } => {
                let grant = grant.map(|GrantHint { token, limit, confirm_by }| Grant {
                    token,
                    limit,
                    until: confirm_by.since(beginning),
                });
                Hint::Granted(claim, grant)
            }
            Change::Resource(resource) => Hint::Changed(resource),
        }
    }

    /// The token that is told with it.
    pub(crate) fn token(&self) -> Option<u64> {
        match self {
            Hint::ToProject { payload, .. } | Hint::ToSession { payload, .. } => {
                payload.get("token")?.as_u64()
            }
            Hint::Granted(_, Some(grant)) => Some(grant.token),
            _ => None,
        }
    }

    /// The message, if it is one.
    pub(crate) fn payload_mut(&mut self) -> Option<&mut Value> {
        match self {
            Hint::ToProject { payload, .. } | Hint::ToSession { payload, .. } => Some(payload),
            _ => None,
        }
    }
}
