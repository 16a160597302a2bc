//! The database of this boot.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, OptionalExtension, Params};
use serde::Serialize;
use uuid::Uuid;

use super::redo::{Change, Redo};
use super::{signed, unsigned};
use crate::host::clock::Boottime;

const FILE_NAME: &str = "journal.db";
const REDO_NAME: &str = "journal.redo";
/// Where a database that cannot be read is left for people to look at.
const DAMAGED_NAME: &str = "journal.db.damaged";
/// Grows with every change of the tables or of what is in them.
const SCHEMA: i64 = 1;
/// How long a write waits for somebody who writes to the file with another program.
const BUSY_TIMEOUT: Duration = Duration::from_millis(200);
/// Changes that wait for a commit at most.
const PENDING_MAX: usize = 4096;
/// More than there are statements in this room.
const STATEMENTS_MAX: usize = 64;
/// 4 MiB of changes between two checkpoints: a beat of everything rewrites the same few pages, and
/// copying them back each time would double its cost.
const CHECKPOINT_PAGES: i64 = 1024;

/// `journal.db` in the runtime directory.
///
/// SQLite in WAL mode, so that `sqlite3` can read it at any time; without fsync, because it is worth
/// nothing after a reboot. Changes are noted one by one; [`secure`](Database::secure) makes those of a
/// turn survive the agent, before anything of that turn is told, and [`commit`](Database::commit) brings
/// those of many turns into the database.
///
/// After a failed commit the file is removed and nothing is written any more: a restart then starts
/// from nothing, which it can know, and not from a state that was overtaken, which it could not.
#[derive(Debug)]
pub struct Database {
    /// `None` after a failure.
    connection: Option<Connection>,
    redo: Redo,
    /// Secured or not, but not in the database.
    pending: Vec<Change>,
    path: PathBuf,
    boot_id: Uuid,
    fresh: Option<Fresh>,
    quarantined_until: Option<Boottime>,
    /// A failure that the next commit tells.
    failed: Option<rusqlite::Error>,
    /// What the commit that failed said.
    failure: Option<String>,
    pub(super) keeper: crate::keeper::journal::Saved,
    pub(super) engine: crate::engine::journal::Saved,
}

/// Why a database is new.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fresh {
    /// There was none.
    #[error("there was no journal")]
    Missing,
    /// It was of another boot, after which nothing in it means anything.
    #[error("the journal was of an earlier boot")]
    OtherBoot,
    /// It was written by another version of the agent.
    #[error("the journal has layout {found}, and this version of the agent reads {SCHEMA}")]
    OtherSchema {
        /// The layout's number.
        found: i64,
    },
    /// It could not be read, and has been moved aside.
    #[error("the journal could not be read ({cause}) and is kept as {DAMAGED_NAME}")]
    Damaged {
        /// What SQLite or the decoder said.
        cause: String,
    },
}

/// A database cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file cannot be made or removed.
    #[error(
        "the journal {path} cannot be made: check that its directory is writable for the agent"
    )]
    File {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// SQLite refuses.
    #[error("the journal {path} cannot be set up: check its file system for space and rights")]
    Sqlite {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: rusqlite::Error,
    },
}

/// A turn's changes are not on disk, and from now on none will be.
#[derive(Debug, thiserror::Error)]
#[error(
    "the journal {path} could not be written and is given up: holds go on, but a restart of the \
     agent will not know them; check its file system for space and start the agent again"
)]
pub struct CommitError {
    path: PathBuf,
    source: rusqlite::Error,
}

/// What was found in place of a usable database.
enum Unusable {
    Known(Fresh),
    Sqlite(rusqlite::Error),
}

impl From<rusqlite::Error> for Unusable {
    fn from(error: rusqlite::Error) -> Unusable {
        Unusable::Sqlite(error)
    }
}

impl Database {
    /// Opens the database of this boot and reads it, or makes a new one.
    ///
    /// # Errors
    ///
    /// When a new one is needed and cannot be made.
    pub fn open(runtime_dir: &Path, boot_id: Uuid) -> Result<Database, OpenError> {
        let path = runtime_dir.join(FILE_NAME);
        let redo_path = runtime_dir.join(REDO_NAME);
        let fail = |source| OpenError::File { path: redo_path.clone(), source };
        let (mut redo, told) = Redo::open(&redo_path).map_err(fail)?;
        // An empty file is one whose maker was killed at once.
        let fresh = if path.metadata().is_ok_and(|file| file.len() > 0) {
            match Database::read(&path, boot_id, told) {
                Ok(read) => {
                    redo.reset().map_err(fail)?;
                    return Ok(read.over(path, redo, boot_id));
                }
                Err(Unusable::Known(fresh)) => fresh,
                Err(Unusable::Sqlite(error)) => Fresh::Damaged { cause: error.to_string() },
            }
        } else {
            Fresh::Missing
        };
        let aside = matches!(fresh, Fresh::Damaged { .. }).then(|| runtime_dir.join(DAMAGED_NAME));
        clear(&path, aside.as_deref())
            .map_err(|source| OpenError::File { path: path.clone(), source })?;
        redo.reset().map_err(fail)?;
        let connection = Database::make(&path, boot_id)?;
        let read = Read {
            connection,
            quarantined_until: None,
            keeper: Default::default(),
            engine: Default::default(),
        };
        Ok(Database { fresh: Some(fresh), ..read.over(path, redo, boot_id) })
    }

    fn read(path: &Path, boot_id: Uuid, told: Vec<Change>) -> Result<Read, Unusable> {
        let connection = connect(path)?;
        let meta = |key: &str| -> rusqlite::Result<Option<i64>> {
            connection
                .query_row("SELECT value FROM meta WHERE key = ?1", [key], |row| row.get(0))
                .optional()
        };
        match meta("schema")? {
            Some(SCHEMA) => {}
            found => {
                let found = found.unwrap_or(0);
                return Err(Unusable::Known(Fresh::OtherSchema { found }));
            }
        }
        let boot: String =
            connection
                .query_row("SELECT value FROM meta WHERE key = 'boot_id'", [], |row| row.get(0))?;
        if boot != boot_id.to_string() {
            return Err(Unusable::Known(Fresh::OtherBoot));
        }
        let quarantined_until =
            meta("quarantined_until_ns")?.map(|ns| Boottime::from_nanos(unsigned(ns)));
        if !told.is_empty() {
            write_all(&connection, told)?;
        }
        let keeper = super::keeper::load(&connection)?;
        let engine = super::engine::load(&connection)?;
        Ok(Read { connection, quarantined_until, keeper, engine })
    }

    fn make(path: &Path, boot_id: Uuid) -> Result<Connection, OpenError> {
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .map_err(|source| OpenError::File { path: path.to_owned(), source })?;
        let made = connect(path).and_then(|connection| {
            connection.execute_batch("BEGIN")?;
            connection.execute_batch(super::keeper::TABLES)?;
            connection.execute_batch(super::engine::TABLES)?;
            connection.execute_batch("CREATE TABLE meta (key TEXT PRIMARY KEY, value)")?;
            let mut insert = connection.prepare("INSERT INTO meta (key, value) VALUES (?1, ?2)")?;
            insert.execute(("schema", SCHEMA))?;
            insert.execute(("boot_id", boot_id.to_string()))?;
            drop(insert);
            connection.execute_batch("COMMIT")?;
            Ok(connection)
        });
        made.map_err(|source| OpenError::Sqlite { path: path.to_owned(), source })
    }

    /// The boot it is of.
    pub fn boot_id(&self) -> Uuid {
        self.boot_id
    }

    /// Why it is new; `None` if it was there.
    pub fn fresh(&self) -> Option<&Fresh> {
        self.fresh.as_ref()
    }

    /// Why nothing is written any more, for people.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Until when the embedded store grants nothing; `None` if it has not decided that since this
    /// database was made.
    pub fn quarantined_until(&self) -> Option<Boottime> {
        self.quarantined_until
    }

    /// Notes until when the embedded store grants nothing, so that another restart does not end it.
    pub fn set_quarantined_until(&mut self, until: Boottime) {
        self.quarantined_until = Some(until);
        let Some(connection) = &self.connection else { return };
        let noted = run(
            connection,
            "INSERT INTO meta (key, value) VALUES ('quarantined_until_ns', ?1)
             ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            [signed(until.as_nanos())],
        );
        self.failed = noted.err();
    }

    /// Notes a change.
    pub(super) fn note(&mut self, change: Change) {
        if self.connection.is_some() {
            self.redo.add(&change);
            self.pending.push(change);
        }
    }

    /// Whether there are changes that the database lacks.
    pub fn is_behind(&self) -> bool {
        !self.pending.is_empty() || self.failed.is_some()
    }

    /// Makes everything noted survive the agent. Costs nothing if nothing was noted, and one write to
    /// memory if something was.
    ///
    /// # Errors
    ///
    /// As [`Database::commit`], which it does when too much waits for one.
    pub fn secure(&mut self) -> Result<(), CommitError> {
        if !self.redo.has_turn() {
            return Ok(());
        }
        match self.redo.write_turn() {
            Ok(true) if self.pending.len() < PENDING_MAX => Ok(()),
            // Without room, or without its file, the database itself must have it.
            Ok(_) | Err(_) => self.commit(),
        }
    }

    /// Brings everything noted into the database. Costs nothing if there is nothing.
    ///
    /// # Errors
    ///
    /// When a write or the commit failed. Comes once: from then on nothing is written.
    pub fn commit(&mut self) -> Result<(), CommitError> {
        if !self.is_behind() {
            return Ok(());
        }
        let pending = std::mem::take(&mut self.pending);
        let Some(connection) = &self.connection else { return Ok(()) };
        let done = match self.failed.take() {
            Some(error) => Err(error),
            None => write_all(connection, pending),
        };
        done.map_err(|source| self.give_up(source))?;
        let cleared = self.redo.clear();
        cleared.map_err(|error| self.give_up(rusqlite::Error::ToSqlConversionFailure(error.into())))
    }

    fn give_up(&mut self, source: rusqlite::Error) -> CommitError {
        self.connection = None;
        self.pending.clear();
        self.failure = Some(format!("the journal is given up: {source}"));
        // Removing needs no space: it fails only where the directory is gone, and the file with it,
        // or was made read-only under the agent, which nothing here can mend.
        let _ = clear(&self.path, None);
        let _ = self.redo.reset();
        CommitError { path: self.path.clone(), source }
    }
}

/// What a usable database holds.
struct Read {
    connection: Connection,
    quarantined_until: Option<Boottime>,
    keeper: crate::keeper::journal::Saved,
    engine: crate::engine::journal::Saved,
}

impl Read {
    fn over(self, path: PathBuf, redo: Redo, boot_id: Uuid) -> Database {
        Database {
            connection: Some(self.connection),
            redo,
            pending: Vec::new(),
            path,
            boot_id,
            fresh: None,
            quarantined_until: self.quarantined_until,
            failed: None,
            failure: None,
            keeper: self.keeper,
            engine: self.engine,
        }
    }
}

/// Writes changes in one transaction.
fn write_all(connection: &Connection, changes: Vec<Change>) -> rusqlite::Result<()> {
    run(connection, "BEGIN IMMEDIATE", [])?;
    let mut writer = Writer { connection, body: Vec::new() };
    let written = super::superseded::without(changes).iter().try_for_each(|change| match change {
        Change::Keeper(entry) => writer.write_keeper(entry),
        Change::Engine(entry) => writer.write_engine(entry),
    });
    match written {
        Ok(()) => run(connection, "COMMIT", []),
        Err(error) => {
            // The error that matters is the first one.
            let _ = run(connection, "ROLLBACK", []);
            Err(error)
        }
    }
}

/// Writes changes, within a transaction.
pub(super) struct Writer<'a> {
    connection: &'a Connection,
    /// Reused for every body, so that writing one allocates nothing.
    body: Vec<u8>,
}

impl Writer<'_> {
    /// Runs a statement.
    pub(super) fn execute(&self, sql: &'static str, values: impl Params) -> rusqlite::Result<()> {
        run(self.connection, sql, values)
    }

    /// Lends the buffer, filled with a value as JSON.
    pub(super) fn execute_with_body(
        &mut self,
        value: &impl Serialize,
        execute: impl FnOnce(&Self, &str) -> rusqlite::Result<()>,
    ) -> rusqlite::Result<()> {
        let mut body = std::mem::take(&mut self.body);
        body.clear();
        // Writing plain structs to memory cannot fail; if it did, the row would be unreadable and
        // the next start would say so.
        let _ = serde_json::to_writer(&mut body, value);
        let done = execute(self, str::from_utf8(&body).unwrap_or_default());
        self.body = body;
        done
    }
}

fn run(connection: &Connection, sql: &str, values: impl Params) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute(values).map(drop)
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "OFF")?;
    connection.pragma_update_and_check(None, "wal_autocheckpoint", CHECKPOINT_PAGES, |_| Ok(()))?;
    Ok(connection)
}

/// Makes room for a new database, keeping the old one if a name for it is given.
fn clear(path: &Path, aside: Option<&Path>) -> io::Result<()> {
    if let Some(aside) = aside {
        std::fs::rename(path, aside)?;
    } else {
        remove(path)?;
    }
    for suffix in ["-wal", "-shm"] {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        remove(Path::new(&name))?;
    }
    Ok(())
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
