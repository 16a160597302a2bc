//! Exact images of an engine.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tenure_wire::Kind;

use super::claims::{State, Tracked};
use super::semaphore::Semaphore;
use super::sessions::Announced;
use super::tokens::Tokens;
use super::tombstones::{Marks, Tombstones};
use super::{Effect, Engine, EngineSettings, Occupation, TokenRange};
use crate::model::Resource;
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
    /// Versions of routing tables; without a tenant that of all without leases.
    pub(super) routes: Vec<(Option<Arc<str>>, u64)>,
    tombstones: Marks,
    blocked: BTreeSet<Resource>,
    /// Those that the shell has not taken yet.
    effects: VecDeque<Effect>,
}

impl Engine {
    /// The engine as it is now. Takes time in proportion to all that it knows.
    pub fn freeze(&self) -> Image {
        let mut claims: Vec<Tracked> =
            self.claims.values().map(|tracked| (**tracked).clone()).collect();
        claims.sort_unstable_by_key(|tracked| tracked.row);
        let limits = self.resources.iter().filter_map(|(resource, occupation)| match occupation {
            Occupation::Semaphore(it) => Some((resource.clone(), it.limit, it.limit_saved)),
            Occupation::Exclusive(_) => None,
        });
        let mut limits: Vec<_> = limits.collect();
        limits.sort_unstable();
        let version = |tenant: Option<Arc<str>>| {
            let version = self.routes.version(tenant.as_deref())?;
            Some((tenant, version))
        };
        let mut routes: Vec<_> = self.routes.keys().filter_map(version).collect();
        routes.sort_unstable();
        debug_assert!(self.orphaned.is_empty(), "each step tells of its own");
        Image {
            settings: self.settings.clone(),
            latest: self.latest,
            tokens: self.tokens.clone(),
            quarantined_until: self.quarantined_until,
            next_row: self.next_row,
            claims,
            limits,
            sessions: self.sessions.in_order().into_iter().cloned().collect(),
            next_place: self.sessions.next_place,
            routes,
            tombstones: self.tombstones.freeze(),
            blocked: self.blocked.clone(),
            effects: self.effects.clone(),
        }
    }

    /// An engine that goes on as the one of the image would.
    pub fn thaw(image: Image) -> Engine {
        let Image { settings, claims, limits, sessions, routes, .. } = image;
        let (keep, count_max) = (settings.tombstone, settings.tombstones_max);
        let mut engine = Engine {
            latest: image.latest,
            tokens: image.tokens,
            quarantined_until: image.quarantined_until,
            next_row: image.next_row,
            tombstones: Tombstones::thaw(keep, count_max, image.tombstones),
            blocked: image.blocked,
            effects: image.effects,
            ..Engine::new(settings, TokenRange { first: 1, last: 0 })
        };
        for (resource, limit, limit_saved) in limits {
            let semaphore = Semaphore { limit_saved, ..Semaphore::new(limit) };
            engine.resources.insert(resource, Occupation::Semaphore(semaphore));
        }
        for tracked in claims {
            engine.occupy(&tracked);
            engine.track(tracked);
        }
        engine.sessions.next_place = image.next_place;
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
        if let Some(semaphore) = self.semaphore_mut(resource) {
            match &tracked.state {
                State::Granted(grant) => drop(semaphore.holders.insert(grant.token, id)),
                State::Waiting(_) => semaphore.queue.insert(tracked.row, id),
            }
            return;
        }
        self.resources.insert(resource.clone(), Occupation::Exclusive(id));
        if resource.kind == Kind::Lease {
            self.routes.add(resource, id);
        }
    }
}
