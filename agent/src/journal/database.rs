//! The database of this boot.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, OptionalExtension, Params};
use uuid::Uuid;

use super::{signed, unsigned};
use crate::host::clock::Boottime;

const FILE_NAME: &str = "journal.db";
/// Where a database that cannot be read is left for people to look at.
const DAMAGED_NAME: &str = "journal.db.damaged";
/// Grows with every change of the tables or of what is in them.
const SCHEMA: i64 = 1;
/// How long a write waits for somebody who writes to the file with another program.
const BUSY_TIMEOUT: Duration = Duration::from_millis(200);
/// More than there are statements in this room.
const STATEMENTS_MAX: usize = 64;
/// 4 MiB of changes between two checkpoints: a beat of everything rewrites the same few pages, and
/// copying them back each time would double its cost.
const CHECKPOINT_PAGES: i64 = 1024;

/// `journal.db` in the runtime directory.
///
/// SQLite in WAL mode, so that `sqlite3` can read it at any time; without fsync, because it is worth
/// nothing after a reboot. The first write of a turn begins a transaction and
/// [`commit`](Database::commit) ends it.
///
/// After a failed commit the file is removed and nothing is written any more: a restart then starts
/// from nothing, which it can know, and not from a state that was overtaken, which it could not.
#[derive(Debug)]
pub struct Database {
    /// `None` after a failure.
    connection: Option<Connection>,
    path: PathBuf,
    boot_id: Uuid,
    fresh: Option<Fresh>,
    quarantined_until: Option<Boottime>,
    in_transaction: bool,
    /// The first failure of this transaction.
    failed: Option<rusqlite::Error>,
    /// What the commit that failed said.
    failure: Option<String>,
    pub(super) keeper: crate::keeper::journal::Saved,
    pub(super) engine: crate::engine::journal::Saved,
    /// Reused for every body, so that writing one allocates nothing.
    pub(super) body: Vec<u8>,
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
        // An empty file is one whose maker was killed at once.
        let fresh = if path.metadata().is_ok_and(|file| file.len() > 0) {
            match Database::read(&path, boot_id) {
                Ok(database) => return Ok(database),
                Err(Unusable::Known(fresh)) => fresh,
                Err(Unusable::Sqlite(error)) => Fresh::Damaged { cause: error.to_string() },
            }
        } else {
            Fresh::Missing
        };
        let aside = matches!(fresh, Fresh::Damaged { .. }).then(|| runtime_dir.join(DAMAGED_NAME));
        clear(&path, aside.as_deref())
            .map_err(|source| OpenError::File { path: path.clone(), source })?;
        Database::make(&path, boot_id, fresh)
    }

    fn read(path: &Path, boot_id: Uuid) -> Result<Database, Unusable> {
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
        let keeper = super::keeper::load(&connection)?;
        let engine = super::engine::load(&connection)?;
        let blank = Database::over(connection, path, boot_id);
        Ok(Database { keeper, engine, quarantined_until, ..blank })
    }

    fn make(path: &Path, boot_id: Uuid, fresh: Fresh) -> Result<Database, OpenError> {
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
        let connection =
            made.map_err(|source| OpenError::Sqlite { path: path.to_owned(), source })?;
        Ok(Database { fresh: Some(fresh), ..Database::over(connection, path, boot_id) })
    }

    fn over(connection: Connection, path: &Path, boot_id: Uuid) -> Database {
        Database {
            connection: Some(connection),
            path: path.to_owned(),
            boot_id,
            fresh: None,
            quarantined_until: None,
            in_transaction: false,
            failed: None,
            failure: None,
            keeper: crate::keeper::journal::Saved::default(),
            engine: crate::engine::journal::Saved::default(),
            body: Vec::new(),
        }
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
        self.execute(
            "INSERT INTO meta (key, value) VALUES ('quarantined_until_ns', ?1)
             ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            [signed(until.as_nanos())],
        );
    }

    /// Makes everything written since the last commit visible to the next start. Costs nothing if
    /// nothing was written.
    ///
    /// # Errors
    ///
    /// When a write or the commit failed. Comes once: from then on nothing is written.
    pub fn commit(&mut self) -> Result<(), CommitError> {
        if !self.in_transaction && self.failed.is_none() {
            return Ok(());
        }
        self.in_transaction = false;
        let Some(connection) = &self.connection else { return Ok(()) };
        let done = match self.failed.take() {
            Some(error) => Err(error),
            None => run(connection, "COMMIT", []),
        };
        done.map_err(|source| self.give_up(source))
    }

    /// Runs a statement within the turn's transaction. A failure comes out of the commit.
    pub(super) fn execute(&mut self, sql: &'static str, values: impl Params) {
        if self.failed.is_some() {
            return;
        }
        let Some(connection) = &self.connection else { return };
        let begun =
            if self.in_transaction { Ok(()) } else { run(connection, "BEGIN IMMEDIATE", []) };
        self.in_transaction = true;
        self.failed = begun.and_then(|()| run(connection, sql, values)).err();
    }

    fn give_up(&mut self, source: rusqlite::Error) -> CommitError {
        self.connection = None;
        self.failure = Some(format!("the journal is given up: {source}"));
        // Removing needs no space: it fails only where the directory is gone, and the file with it,
        // or was made read-only under the agent, which nothing here can mend.
        let _ = clear(&self.path, None);
        CommitError { path: self.path.clone(), source }
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
