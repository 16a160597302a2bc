//! The engine's tables.

use std::sync::Arc;

use rusqlite::{Connection, Row};
use tenure::wire::Kind;

use super::database::Writer;
use super::keeper::decode;
use super::redo::Change;
use super::{Database, signed, unsigned};
use crate::engine::journal::{Entry, Saved, SavedGrant, SavedWaiter};
use crate::host::clock::Boottime;
use crate::model::Resource;

/// The view is for people. In `routes` an empty tenant stands for every tenant without leases.
pub(super) const TABLES: &str = "
CREATE TABLE grants (
    row           INTEGER PRIMARY KEY,
    token         INTEGER NOT NULL,
    granted_at_ns INTEGER NOT NULL,
    in_grace      INTEGER NOT NULL,
    route_version INTEGER NOT NULL,
    claim         TEXT NOT NULL
);
CREATE TABLE waiters (
    row      INTEGER PRIMARY KEY,
    since_ns INTEGER NOT NULL,
    claim    TEXT NOT NULL
);
CREATE VIEW readable_grants AS SELECT
    row,
    claim ->> '$.id'              AS id,
    claim ->> '$.owner.session'   AS session,
    claim ->> '$.resource.tenant' AS tenant,
    claim ->> '$.resource.kind'   AS kind,
    claim ->> '$.resource.name'   AS name,
    token,
    granted_at_ns
FROM grants;
CREATE TABLE limits (
    tenant  TEXT NOT NULL,
    name    TEXT NOT NULL,
    permits INTEGER NOT NULL,
    PRIMARY KEY (tenant, name)
) WITHOUT ROWID;
CREATE TABLE announced (
    id   TEXT NOT NULL UNIQUE,
    body TEXT NOT NULL
);
CREATE TABLE routes (
    tenant  TEXT PRIMARY KEY,
    version INTEGER NOT NULL
) WITHOUT ROWID;
";

impl Database {
    /// Notes a change of the engine's.
    pub fn write_engine(&mut self, entry: Entry) {
        self.note(Change::Engine(entry));
    }

    /// What the engine had written before this start. Comes once; nothing the second time.
    pub fn load_engine(&mut self) -> Saved {
        std::mem::take(&mut self.engine)
    }
}

impl Writer<'_> {
    /// Writes a change of the engine's.
    pub(super) fn write_engine(&mut self, entry: &Entry) -> rusqlite::Result<()> {
        match entry {
            Entry::Grant(grant) => self.write_grant(grant),
            Entry::GrantEnded { row } => {
                self.execute("DELETE FROM grants WHERE row = ?1", [signed(*row)])
            }
            Entry::Waiter(waiter) => self.execute_with_body(&waiter.claim, |writer, claim| {
                writer.execute(
                    "INSERT OR REPLACE INTO waiters (row, since_ns, claim) VALUES (?1, ?2, ?3)",
                    (signed(waiter.row), signed(waiter.since.as_nanos()), claim),
                )
            }),
            Entry::WaiterEnded { row } => {
                self.execute("DELETE FROM waiters WHERE row = ?1", [signed(*row)])
            }
            Entry::Limit { resource, limit } => self.execute(
                "INSERT OR REPLACE INTO limits (tenant, name, permits) VALUES (?1, ?2, ?3)",
                (&*resource.tenant, &*resource.name, limit),
            ),
            Entry::LimitEnded { resource } => self.execute(
                "DELETE FROM limits WHERE tenant = ?1 AND name = ?2",
                (&*resource.tenant, &*resource.name),
            ),
            // Replacing puts it at the end, where the engine has it too.
            Entry::Session(record) => {
                let id = record.owner.session.to_string();
                self.execute_with_body(record, |writer, body| {
                    writer.execute(
                        "INSERT OR REPLACE INTO announced (id, body) VALUES (?1, ?2)",
                        (id, body),
                    )
                })
            }
            Entry::SessionEnded(id) => {
                self.execute("DELETE FROM announced WHERE id = ?1", [id.to_string()])
            }
            Entry::Routes { tenant, version } => self.execute(
                "INSERT OR REPLACE INTO routes (tenant, version) VALUES (?1, ?2)",
                (tenant.as_deref().unwrap_or_default(), signed(*version)),
            ),
            Entry::RoutesEnded { tenant } => {
                self.execute("DELETE FROM routes WHERE tenant = ?1", [&**tenant])
            }
        }
    }

    fn write_grant(&mut self, grant: &SavedGrant) -> rusqlite::Result<()> {
        self.execute_with_body(&grant.claim, |writer, claim| {
            writer.execute(
                "INSERT INTO grants (row, token, granted_at_ns, in_grace, route_version, claim)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)
                 ON CONFLICT (row) DO UPDATE SET in_grace = excluded.in_grace,
                     route_version = excluded.route_version, claim = excluded.claim",
                (
                    signed(grant.row),
                    signed(grant.token),
                    signed(grant.granted_at.as_nanos()),
                    grant.in_grace,
                    signed(grant.route_version),
                    claim,
                ),
            )
        })
    }
}

pub(super) fn load(connection: &Connection) -> rusqlite::Result<Saved> {
    Ok(Saved {
        grants: all(
            connection,
            "SELECT row, token, granted_at_ns, in_grace, route_version, claim FROM grants",
            |row| {
                Ok(SavedGrant {
                    row: number(row, 0)?,
                    token: number(row, 1)?,
                    granted_at: Boottime::from_nanos(number(row, 2)?),
                    in_grace: row.get(3)?,
                    route_version: number(row, 4)?,
                    claim: decode(row, 5)?,
                })
            },
        )?,
        waiters: all(connection, "SELECT row, since_ns, claim FROM waiters", |row| {
            Ok(SavedWaiter {
                row: number(row, 0)?,
                since: Boottime::from_nanos(number(row, 1)?),
                claim: decode(row, 2)?,
            })
        })?,
        limits: all(connection, "SELECT tenant, name, permits FROM limits", |row| {
            let (tenant, name) = (text(row, 0)?, text(row, 1)?);
            Ok((Resource { tenant, kind: Kind::Semaphore, name }, row.get(2)?))
        })?,
        sessions: all(connection, "SELECT body FROM announced ORDER BY rowid", |row| {
            decode(row, 0)
        })?,
        routes: all(connection, "SELECT tenant, version FROM routes", |row| {
            let tenant = text(row, 0)?;
            Ok(((!tenant.is_empty()).then_some(tenant), number(row, 1)?))
        })?,
    })
}

fn all<T>(
    connection: &Connection,
    sql: &str,
    read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Vec<T>> {
    connection.prepare(sql)?.query_map([], read)?.collect()
}

fn number(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    row.get(column).map(unsigned)
}

fn text(row: &Row<'_>, column: usize) -> rusqlite::Result<Arc<str>> {
    row.get(column)
}
