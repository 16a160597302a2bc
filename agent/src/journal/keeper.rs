//! The keeper's tables.

use rusqlite::types::Type;
use rusqlite::{Connection, Row};
use serde::de::DeserializeOwned;

use super::database::Writer;
use super::redo::Change;
use super::{Database, signed, unsigned};
use crate::host::clock::Boottime;
use crate::keeper::journal::{Entry, Saved, SavedHold, SavedSession};

/// The view is for people. Generated columns would do as well, but SQLite works those out at every
/// insert too, and parsing a body takes longer than writing it.
pub(super) const TABLES: &str = "
CREATE TABLE sessions (
    id   TEXT PRIMARY KEY,
    body TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE holds (
    row  INTEGER PRIMARY KEY,
    body TEXT NOT NULL
);
CREATE TABLE valid (
    row            INTEGER PRIMARY KEY,
    valid_until_ns INTEGER NOT NULL
);
CREATE VIEW readable_holds AS SELECT
    row,
    body ->> '$.claim.id'              AS id,
    body ->> '$.claim.owner.session'   AS session,
    body ->> '$.claim.resource.tenant' AS tenant,
    body ->> '$.claim.resource.kind'   AS kind,
    body ->> '$.claim.resource.name'   AS name,
    CASE
        WHEN body ->> '$.departing' THEN 'departing'
        WHEN body ->> '$.token' IS NULL THEN 'waiting'
        ELSE 'held'
    END                                AS state,
    body ->> '$.token'                 AS token,
    max(body ->> '$.valid_until', coalesce(valid_until_ns, 0)) AS valid_until_ns
FROM holds LEFT JOIN valid USING (row);
";

impl Database {
    /// Notes a change of the keeper's.
    pub fn write(&mut self, entry: Entry) {
        self.note(Change::Keeper(entry));
    }

    /// What the keeper had written before this start. Comes once; nothing the second time.
    pub fn load(&mut self) -> Saved {
        std::mem::take(&mut self.keeper)
    }
}

impl Writer<'_> {
    /// Writes a change of the keeper's.
    pub(super) fn write_keeper(&mut self, entry: &Entry) -> rusqlite::Result<()> {
        match entry {
            Entry::Session(session) => {
                let id = session.id.to_string();
                self.execute_with_body(session, |writer, body| {
                    writer.execute(
                        "INSERT INTO sessions (id, body) VALUES (?1, ?2)
                         ON CONFLICT (id) DO UPDATE SET body = excluded.body",
                        (id, body),
                    )
                })
            }
            Entry::SessionEnded(id) => {
                self.execute("DELETE FROM sessions WHERE id = ?1", [id.to_string()])
            }
            Entry::Hold(hold) => self.execute_with_body(hold, |writer, body| {
                writer.execute(
                    "INSERT INTO holds (row, body) VALUES (?1, ?2)
                     ON CONFLICT (row) DO UPDATE SET body = excluded.body",
                    (signed(hold.row), body),
                )
            }),
            Entry::Valid { row, valid_until } => self.execute(
                "INSERT INTO valid (row, valid_until_ns) VALUES (?1, ?2)
                 ON CONFLICT (row) DO UPDATE SET valid_until_ns = excluded.valid_until_ns",
                (signed(*row), signed(valid_until.as_nanos())),
            ),
            Entry::HoldEnded { row, .. } => {
                self.execute("DELETE FROM holds WHERE row = ?1", [signed(*row)])?;
                self.execute("DELETE FROM valid WHERE row = ?1", [signed(*row)])
            }
        }
    }
}

pub(super) fn load(connection: &Connection) -> rusqlite::Result<Saved> {
    let mut saved = Saved::default();
    let mut sessions = connection.prepare("SELECT body FROM sessions")?;
    for session in sessions.query_map([], |row| decode::<SavedSession>(row, 0))? {
        saved.sessions.push(session?);
    }
    let mut holds = connection.prepare(
        "SELECT body, valid_until_ns FROM holds LEFT JOIN valid USING (row) ORDER BY row",
    )?;
    let hold = |row: &Row<'_>| -> rusqlite::Result<SavedHold> {
        let mut hold: SavedHold = decode(row, 0)?;
        let beaten: Option<i64> = row.get(1)?;
        let beaten = Boottime::from_nanos(unsigned(beaten.unwrap_or(0)));
        hold.valid_until = hold.valid_until.max(beaten);
        Ok(hold)
    };
    for hold in holds.query_map([], hold)? {
        saved.holds.push(hold?);
    }
    Ok(saved)
}

/// A column with a value as JSON.
pub(super) fn decode<T: DeserializeOwned>(row: &Row<'_>, column: usize) -> rusqlite::Result<T> {
    let text = row.get_ref(column)?.as_str()?;
    serde_json::from_str(text).map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(column, Type::Text, error.into())
    })
}
