//! Exact images of an engine.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::claims::{State, Tracked};
use super::history::{Histories, SavedChange};
use super::occupation::{Limit, Occupation};
use super::sessions::Announced;
use super::tokens::Tokens;
use super::tombstones::{Marks, Tombstones};
use super::{Effect, Engine, EngineSettings, TokenRange};
use crate::model::{ClaimId, Resource, SessionId};
use crate::time::Boottime;

/// An engine at one instant, with all that it will go by.
///
/// Engines with equal images give equal answers and effects for equal inputs, and their images stay equal.
/// What follows from the fields is not in it: occupations, queues, deadlines, lines of routing tables.
/// Lists are in an order that does not depend on how the engine came to be as it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Image {
    settings: EngineSettings,
    pub(super) latest: Boottime,
    pub(super) tokens: Tokens,
    quarantined_until: Boottime,
    pub(super) next_row: u64,
    /// By row.
    pub(super) claims: Vec<Tracked>,
    /// Each with its limit, and whether the journal has a row for that.
    pub(super) limits: Vec<(Resource, u32, bool)>,
    /// In the order in which they were announced.
    pub(super) sessions: Vec<Announced>,
    next_place: u64,
    ended_sessions: Marks<SessionId>,
    /// Versions of routing tables; without a tenant that of all without leases.
    pub(super) routes: Vec<(Option<Arc<str>>, u64)>,
    tombstones: Marks<ClaimId>,
    /// By row.
    #[serde(default)]
    pub(super) changes: Vec<SavedChange>,
    #[serde(default)]
    next_change: u64,
    blocked: BTreeSet<Resource>,
    /// Those that the shell has not taken yet.
    effects: VecDeque<Effect>,
}

/// A number in an image that no engine comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutOfRange {
    field: &'static str,
    value: u64,
    max: u64,
}

impl std::error::Error for OutOfRange {}

impl fmt::Display for OutOfRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OutOfRange { field, value, max } = self;
        write!(f, "its {field} is {value}, and must be {max} at most")
    }
}

impl OutOfRange {
    /// Looks whether a number is this at most.
    ///
    /// # Errors
    ///
    /// If it is greater.
    pub fn check(field: &'static str, value: u64, max: u64) -> Result<(), OutOfRange> {
        if value > max { Err(OutOfRange { field, value, max }) } else { Ok(()) }
    }
}

/// Counters beyond this are none that an engine has counted.
const COUNT_MAX: u64 = 1 << 62;
/// Times beyond this leave no room for one more ttl: 292 years.
const NANOS_MAX: u64 = i64::MAX.unsigned_abs();

impl Image {
    /// Looks for numbers that no engine comes to: one that goes on with them would grant nothing any more, or grant a token
    /// twice.
    ///
    /// # Errors
    ///
    /// The first such number, by its field.
    pub fn check(&self, token_max: u64) -> Result<(), OutOfRange> {
        let at_most = OutOfRange::check;
        let time = |field, at: Boottime| at_most(field, at.as_nanos(), NANOS_MAX);
        let (next, last) = self.tokens.bounds();
        at_most("engine.tokens.last", last, token_max)?;
        at_most("engine.tokens.next", next, last + 1)?;
        time("engine.latest", self.latest)?;
        time("engine.quarantined_until", self.quarantined_until)?;
        at_most("engine.next_row", self.next_row, COUNT_MAX)?;
        at_most("engine.next_place", self.next_place, COUNT_MAX)?;
        at_most("engine.next_change", self.next_change, COUNT_MAX)?;
        for tracked in &self.claims {
            at_most("engine.claims.row", tracked.row, self.next_row)?;
            if let State::Granted(grant) = &tracked.state {
                // A greater one would be granted again.
                at_most("engine.claims.token", grant.token, next.saturating_sub(1))?;
                time("engine.claims.expires", grant.expires)?;
                at_most("engine.claims.route_version", grant.route_version, COUNT_MAX)?;
            }
        }
        self.routes
            .iter()
            .try_for_each(|(_, version)| at_most("engine.routes", *version, COUNT_MAX))
    }
}

impl Engine {
    /// The engine as it is now. Takes time in proportion to all that it knows.
    pub fn freeze(&self) -> Image {
        let mut claims: Vec<Tracked> = self.claims.values().cloned().collect();
        claims.sort_unstable_by_key(|tracked| tracked.row);
        let limits = self.resources.iter().filter_map(|(resource, occupation)| {
            let Limit { permits, is_saved } = occupation.limit?;
            Some((resource.clone(), permits, is_saved))
        });
        let mut limits: Vec<_> = limits.collect();
        limits.sort_unstable();
        let version = |tenant: Option<Arc<str>>| {
            let version = self.routes.version(tenant.as_deref())?;
            Some((tenant, version))
        };
        let mut routes: Vec<_> = self.routes.keys().filter_map(version).collect();
        routes.sort_unstable();
        debug_assert!(self.out.orphaned.is_empty(), "each step tells of its own");
        Image {
            settings: self.settings.clone(),
            latest: self.latest,
            tokens: self.tokens.clone(),
            quarantined_until: self.quarantined_until,
            next_row: self.claims.next_row,
            claims,
            limits,
            sessions: self.sessions.in_order().into_iter().cloned().collect(),
            next_place: self.sessions.next_place,
            ended_sessions: self.sessions.ended.freeze(),
            routes,
            tombstones: self.tombstones.freeze(),
            changes: self.histories.freeze(),
            next_change: self.histories.next_row,
            blocked: self.resources.blocked.clone(),
            effects: self.out.effects.clone(),
        }
    }

    /// An engine that goes on as the one of the image would.
    pub fn thaw(image: Image) -> Engine {
        let Image { settings, claims, limits, sessions, routes, .. } = image;
        let (keep, count_max) = (settings.tombstone, settings.tombstones_max);
        let ended = Tombstones::thaw(keep, settings.ended_sessions_max(), image.ended_sessions);
        let mut engine = Engine {
            latest: image.latest,
            tokens: image.tokens,
            quarantined_until: image.quarantined_until,
            tombstones: Tombstones::thaw(keep, count_max, image.tombstones),
            histories: Histories::thaw(image.changes, image.next_change),
            ..Engine::new(settings, TokenRange { first: 1, last: 0 })
        };
        engine.claims.next_row = image.next_row;
        engine.resources.blocked = image.blocked;
        engine.out.effects = image.effects;
        for (resource, permits, is_saved) in limits {
            let limit = Limit { permits, is_saved };
            engine.resources.get_or_insert(&resource, || Occupation::of_permits(limit));
        }
        for tracked in claims {
            engine.occupy(&tracked);
            engine.track(tracked);
        }
        engine.sessions.next_place = image.next_place;
        engine.sessions.ended = ended;
        for announced in sessions {
            engine.track_session(announced);
        }
        for (tenant, version) in routes {
            engine.routes.restore(tenant.as_deref(), version);
        }
        engine
    }

    /// Gives a claim its place in its resource.
    fn occupy(&mut self, tracked: &Tracked) {
        let id = tracked.id();
        let resource = &tracked.claim.resource;
        let occupation = self.resources.get_or_insert(resource, Occupation::default);
        match &tracked.state {
            State::Waiting(_) => occupation.join(tracked),
            State::Granted(grant) => {
                occupation.holders.insert(grant.token, id);
                if tracked.is_of_lease() {
                    self.routes.add(resource, id);
                }
            }
        }
    }
}
