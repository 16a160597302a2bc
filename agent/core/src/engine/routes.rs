//! The routing table of each tenant: its leases, under a version that only grows.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use tenure_wire::{Route, Routes};

use super::Engine;
use super::TokenRange;
use super::claims::{State, Tracked};
use super::journal::Entry;
use crate::model::{Claim, ClaimId, Page, Resource, Terms, defaults};

/// The status of a lease in its grace.
const EXPIRING: &str = "expiring";

#[derive(Debug, Default)]
pub(super) struct RouteTables {
    tables: HashMap<Arc<str>, RouteTable>,
    /// The version of every tenant without leases: the greatest at which one lost its last. Keeps
    /// versions growing without remembering every tenant that ever was.
    floor: u64,
}

#[derive(Debug, Default)]
struct RouteTable {
    version: u64,
    lines: BTreeMap<Arc<str>, ClaimId>,
}

/// Tokens begin with the clock in µs, and versions with the same in ms.
const TOKENS_PER_VERSION: u64 = 1000;

impl RouteTables {
    /// Those of an engine that begins with these tokens: one that has lost what it had goes on with greater versions.
    pub(super) fn starting_with(tokens: TokenRange) -> RouteTables {
        RouteTables { floor: tokens.first / TOKENS_PER_VERSION, ..RouteTables::default() }
    }

    /// Puts a lease into its tenant's table. The version is the caller's concern.
    pub(super) fn add(&mut self, resource: &Resource, claim: ClaimId) {
        let floor = self.floor;
        self.tables
            .entry(resource.tenant.clone())
            .or_insert_with(|| RouteTable { version: floor, lines: BTreeMap::new() })
            .lines
            .insert(resource.name.clone(), claim);
    }

    /// Takes up a version from the journal; without a tenant that of all without leases.
    pub(super) fn restore(&mut self, tenant: Option<&str>, version: u64) {
        match tenant.and_then(|tenant| self.tables.get_mut(tenant)) {
            Some(table) => table.version = table.version.max(version),
            None => self.floor = self.floor.max(version),
        }
    }

    /// The tenants with leases, and `None` for all others.
    pub(super) fn keys(&self) -> impl Iterator<Item = Option<Arc<str>>> {
        self.tables.keys().cloned().map(Some).chain([None])
    }

    /// The version of a table.
    pub(super) fn version(&self, tenant: Option<&str>) -> Option<u64> {
        match tenant {
            Some(tenant) => self.tables.get(tenant).map(|table| table.version),
            None => Some(self.floor),
        }
    }

    fn bump(&mut self, tenant: &str) -> u64 {
        let Some(table) = self.tables.get_mut(tenant) else { return self.floor };
        table.version += 1;
        table.version
    }

    /// Takes a lease out. Returns what to persist.
    fn remove(&mut self, resource: &Resource) -> Vec<Entry> {
        let Some(table) = self.tables.get_mut(&resource.tenant) else { return Vec::new() };
        table.lines.remove(&resource.name);
        table.version += 1;
        let version = table.version;
        if !table.lines.is_empty() {
            let tenant = Some(resource.tenant.clone());
            return vec![Entry::Routes { tenant, version }];
        }
        self.tables.remove(&resource.tenant);
        self.floor = self.floor.max(version);
        vec![
            Entry::Routes { tenant: None, version: self.floor },
            Entry::RoutesEnded { tenant: resource.tenant.clone() },
        ]
    }
}

impl Engine {
    /// A lease was granted, or what its line says changed.
    pub(super) fn route_changed(&mut self, id: ClaimId) {
        let Some(tracked) = self.claims.get_mut(id) else { return };
        let tenant = tracked.claim.resource.tenant.clone();
        let version = self.routes.bump(&tenant);
        if let State::Granted(grant) = &mut tracked.state {
            grant.route_version = version;
        }
        self.persist(Entry::Routes { tenant: Some(tenant), version });
        self.persist_claim(id);
    }

    pub(super) fn route_removed(&mut self, resource: &Resource) {
        for entry in self.routes.remove(resource) {
            self.persist(entry);
        }
    }

    /// A repeated claim may bring other attributes.
    pub(super) fn change_attributes(&mut self, claim: &Claim) {
        let Terms::Lease { attributes, .. } = &claim.terms else { return };
        let Some(tracked) = self.claims.get_mut(claim.id) else { return };
        let waits = matches!(tracked.state, State::Waiting(_));
        let Terms::Lease { attributes: current, .. } = &mut tracked.claim.terms else { return };
        if current == attributes {
            return;
        }
        *current = attributes.clone();
        if waits {
            return self.persist_claim(claim.id);
        }
        self.route_changed(claim.id);
        self.tell_changed(&claim.resource);
    }

    /// A page of a tenant's leases, or the one of that name.
    pub fn routing_table(&self, tenant: &str, name: Option<&str>, page: &Page) -> Routes {
        let Some(table) = self.routes.tables.get(tenant) else {
            return Routes { version: self.routes.floor, total: Some(0), ..Routes::default() };
        };
        let (version, total) = (table.version, Some(table.lines.len() as u64));
        let line = |id: &ClaimId| self.claims.get(*id).and_then(route);
        if let Some(name) = name {
            let routes = table.lines.get(name).and_then(line).into_iter().collect();
            return Routes { version, routes, total, cursor: None };
        }
        let after = page.after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut rest = table.lines.range::<Arc<str>, _>((after, Bound::Unbounded));
        let lines: Vec<_> = rest.by_ref().take(page.limit).collect();
        let last = rest.next().and(lines.last()).map(|(name, _)| name.to_string());
        let routes = lines.into_iter().filter_map(|(_, id)| line(id)).collect();
        Routes { version, routes, total, cursor: last }
    }
}

fn route(tracked: &Tracked) -> Option<Route> {
    let State::Granted(grant) = &tracked.state else { return None };
    let Terms::Lease { attributes, .. } = &tracked.claim.terms else { return None };
    let name = &tracked.claim.resource.name;
    let status = match grant.grace_until {
        Some(_) => EXPIRING,
        None => defaults::status(attributes),
    };
    Some(Route {
        name: name.to_string(),
        host: tracked.claim.owner.host.to_string(),
        holder: tracked.claim.owner.name.to_string(),
        address: attributes.address.clone().unwrap_or_default(),
        proxy_id: attributes.proxy_id.clone().unwrap_or_default(),
        partition: defaults::partition(attributes, name),
        status: status.to_owned(),
        token: grant.token,
        version: grant.route_version,
    })
}
