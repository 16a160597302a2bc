//! Versions of routing tables: the two sides number them differently, but for the same reader.

use std::cmp::Ordering;
use std::collections::HashMap;

use tenure::wire::{Route, Routes};

use super::compare::equal;

/// What the upstream said last of every table and line.
///
/// Whoever has read a version reads on when there is a greater one. So versions never shrink, and
/// grow with every change; that they grow more often than they must is no harm.
#[derive(Default)]
pub(super) struct RouteVersions {
    greatest: HashMap<String, u64>,
    tables: HashMap<String, Routes>,
    lines: HashMap<(String, String), Route>,
    published: HashMap<String, u64>,
}

impl RouteVersions {
    /// Checks a table, or one line of it, that the upstream told.
    ///
    /// # Errors
    ///
    /// When a line is not the engine's, or a version does not tell of a change.
    pub(super) fn check(
        &mut self,
        tenant: &str,
        whole: bool,
        engine: &Routes,
        upstream: &Routes,
    ) -> Result<(), String> {
        for (engine, upstream) in engine.routes.iter().zip(&upstream.routes) {
            self.line(tenant, engine, upstream)?;
        }
        let greatest = self.greatest.entry(tenant.to_owned()).or_default();
        if upstream.version < *greatest {
            return Err(format!("the table's version is {} after {greatest}", upstream.version));
        }
        *greatest = upstream.version;
        let newest = upstream.routes.iter().map(|route| route.version).max().unwrap_or(0);
        if newest > upstream.version {
            return Err(format!("version {newest} in a table of version {}", upstream.version));
        }
        if !whole {
            return Ok(());
        }
        let Some(last) = self.tables.insert(tenant.to_owned(), upstream.clone()) else {
            return Ok(());
        };
        let changed = last.routes != upstream.routes;
        if changed && last.version == upstream.version {
            return Err(format!("another table of the same version {}", last.version));
        }
        Ok(())
    }

    /// Takes note of a version that was published.
    ///
    /// # Errors
    ///
    /// When it is not greater than the one before.
    pub(super) fn published(&mut self, tenant: &str, text: &str) -> Result<(), String> {
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
    ///
    /// # Errors
    ///
    /// When one was not.
    pub(super) fn all_published(&self) -> Result<(), String> {
        let published = |tenant| self.published.get(tenant).copied().unwrap_or(0);
        let missing = self.greatest.iter().find(|(tenant, told)| **told > published(*tenant));
        missing.map_or(Ok(()), |(tenant, told)| {
            let last = published(tenant);
            Err(format!("version {told} of {tenant}'s table was told, but {last} published"))
        })
    }

    fn line(&mut self, tenant: &str, engine: &Route, upstream: &Route) -> Result<(), String> {
        // Tokens have been matched by now.
        let alike = |route: &Route| Route { token: 0, version: 0, ..route.clone() };
        equal("the line", &alike(engine), &alike(upstream))?;
        let key = (tenant.to_owned(), upstream.name.clone());
        let Some(last) = self.lines.insert(key, upstream.clone()) else { return Ok(()) };
        let same = last == Route { version: last.version, ..upstream.clone() };
        match upstream.version.cmp(&last.version) {
            Ordering::Less => {
                Err(format!("the line's version is {} after {}", upstream.version, last.version))
            }
            Ordering::Equal if !same => {
                Err(format!("another line of the same version {}", last.version))
            }
            _ => Ok(()),
        }
    }
}
