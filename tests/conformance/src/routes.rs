//! Versions of routing tables: the two sides number them differently, but for the same reader.

use std::cmp::Ordering;
use std::collections::HashMap;

use tenure_wire::{Route, Routes};

use crate::compare::equal;

/// The store's last answer about every table and line.
///
/// A reader of a version reads on when there is a greater one. So versions never shrink, and
/// grow with every change; that they grow more often than they must is no harm.
#[derive(Default)]
pub(crate) struct RouteVersions {
    greatest: HashMap<String, u64>,
    tables: HashMap<String, Routes>,
    lines: HashMap<(String, String), Route>,
    published: HashMap<String, u64>,
}

impl RouteVersions {
    /// Checks a table, or one line of it, that the store told.
    pub(crate) fn check(
        &mut self,
        tenant: &str,
        whole: bool,
        engine: &Routes,
        store: &Routes,
    ) -> Result<(), String> {
        for (engine, store) in engine.routes.iter().zip(&store.routes) {
            self.line(tenant, engine, store)?;
        }
        let greatest = self.greatest.entry(tenant.to_owned()).or_default();
        if store.version < *greatest {
            return Err(format!("the table's version is {} after {greatest}", store.version));
        }
        *greatest = store.version;
        let newest = store.routes.iter().map(|route| route.version).max().unwrap_or(0);
        if newest > store.version {
            return Err(format!("version {newest} in a table of version {}", store.version));
        }
        if !whole {
            return Ok(());
        }
        let Some(last) = self.tables.insert(tenant.to_owned(), store.clone()) else {
            return Ok(());
        };
        let changed = last.routes != store.routes;
        if changed && last.version == store.version {
            return Err(format!("another table of the same version {}", last.version));
        }
        Ok(())
    }

    /// Takes note of a version that was published.
    pub(crate) fn published(&mut self, tenant: &str, text: &str) -> Result<(), String> {
        let last = self.published.entry(tenant.to_owned()).or_default();
        match text.parse::<u64>() {
            Ok(version) if version > *last => {
                *last = version;
                Ok(())
            }
            _ => Err(format!("version {text:?} of the table was published after {last}")),
        }
    }

    /// Checks that every version that was told was published.
    pub(crate) fn all_published(&self) -> Result<(), String> {
        let published = |tenant| self.published.get(tenant).copied().unwrap_or(0);
        let missing = self.greatest.iter().find(|(tenant, told)| **told > published(*tenant));
        missing.map_or(Ok(()), |(tenant, told)| {
            let last = published(tenant);
            Err(format!("version {told} of {tenant}'s table was told, but {last} published"))
        })
    }

    fn line(&mut self, tenant: &str, engine: &Route, store: &Route) -> Result<(), String> {
        // Tokens have been matched by now.
        let alike = |route: &Route| Route { token: 0, version: 0, ..route.clone() };
        equal("the line", &alike(engine), &alike(store))?;
        let key = (tenant.to_owned(), store.name.clone());
        let Some(last) = self.lines.insert(key, store.clone()) else { return Ok(()) };
        let same = last == Route { version: last.version, ..store.clone() };
        match store.version.cmp(&last.version) {
            Ordering::Less => {
                Err(format!("the line's version is {} after {}", store.version, last.version))
            }
            Ordering::Equal if !same => {
                Err(format!("another line of the same version {}", last.version))
            }
            _ => Ok(()),
        }
    }
}
