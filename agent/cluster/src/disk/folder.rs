//! The folder of a node: its id, and the right to write there.

use std::fs::{self, File};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use rusqlite::{Connection, ErrorCode};
use tenure_host::directory::Directory;
use tenure_host::lock::{BYTES_MAX, Lock, LockError, kill, with};
use tenure_host::machine::host_id;
use tenure_host::tcp::own_user;

use super::images::{self, SqliteImages};
use super::seal::damaged_frame;
use super::sqlite::SqliteLog;
use super::{Disk, ImageFile, LogFile, PURGED, Place, log, writer};

/// The version of the files' format. It grows with each change that programs before it would misread.
const FORMAT: u32 = 1;
/// A node with less than it has promised to keep would harm its cluster.
pub(super) const WAY_OUT: &str = "; if the disk is well otherwise, wipe the folder, take the node out of its cluster, and add it as a new one";
const MODE: u32 = 0o700;
const LOCK: &str = "lock";
/// The machine on which the node ran last.
const MACHINE: &str = "machine";
const MACHINE_BYTES_MAX: u64 = 64;
/// The inode and the path of the folder in which the node ran last.
const PLACE: &str = "place";
const PLACE_BYTES_MAX: u64 = 8192;
/// The reason for which its node must not run again.
const CONDEMNED: &str = "condemned";
/// Another cluster was recovered from the folder, which can be read for that again.
const RECOVERED: &str = "recovered";
const CONDEMNED_BYTES_MAX: u64 = 1024;
/// Ids are numbers that every reader of JSON takes exactly.
const ID_BITS: u32 = 53;

/// A folder that this process alone may use, until the node in it has stopped.
#[derive(Debug)]
pub struct Folder {
    id: u64,
    path: PathBuf,
    lock: Arc<Lock>,
}

/// The folder cannot be used until somebody has looked at it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unusable(String);

impl Folder {
    /// Opens a node's folder; one that is empty or missing becomes that of a new node. Waits a moment for a process
    /// that is about to leave it.
    ///
    /// # Errors
    ///
    /// When the folder cannot be used or another process has it. [`Unusable`] where a retry does not help: the folder
    /// is a copy, was last used on another machine, is damaged, or is of a newer program; its node differed from the
    /// others; or another cluster was recovered from the folder.
    pub fn open(path: &Path) -> io::Result<Folder> {
        Folder::checked(path, |directory| {
            check_machine(directory)?;
            check_place(directory)?;
            check_condemned(path, &[CONDEMNED, RECOVERED])
        })
    }

    /// Opens the folder of a stopped node for reading, also a copy, and also after a cluster was recovered from the
    /// folder.
    ///
    /// # Errors
    ///
    /// As [`Folder::open`]; also when the folder does not exist.
    pub fn survivor(path: &Path) -> io::Result<Folder> {
        let log = path.join(log::FILE);
        let found = fs::metadata(&log).map_err(|error| {
            io::Error::other(format!(
                "{} is no folder of a node: {}: {error}",
                path.display(),
                log.display()
            ))
        })?;
        if found.uid() != own_user() {
            let uid = found.uid();
            let what = format!("the folder {} belongs to uid {uid}", path.display());
            return Err(io::Error::other(format!(
                "{what}: run this as that user (sudo -u '#{uid}')"
            )));
        }
        Folder::checked(path, |_| check_condemned(path, &[CONDEMNED]))
    }

    /// Retires the node of the folder for good: another cluster was recovered from its data.
    ///
    /// # Errors
    ///
    /// When the mark cannot be written.
    pub fn retire(&self, cause: &str) -> io::Result<()> {
        mark(&self.path, RECOVERED, cause)
    }

    fn checked(
        path: &Path,
        check: impl FnOnce(&Directory) -> Result<(), Fault>,
    ) -> io::Result<Folder> {
        let directory = Directory::private(path, MODE).map_err(io::Error::other)?;
        let opened = lock(&directory).and_then(|lock| {
            check(&directory)?;
            Ok((identify(path)?, Arc::new(lock)))
        });
        let (id, lock) = opened.map_err(|fault| {
            let (is_lasting, way_out) = match fault {
                Fault::Damaged(_) => (true, WAY_OUT),
                Fault::Refused(_) => (true, ""),
                Fault::Taken(_) | Fault::System(_) | Fault::Sqlite(_) => (false, ""),
            };
            let what = format!("the folder {} cannot be used: {fault}{way_out}", path.display());
            if is_lasting { io::Error::other(Unusable(what)) } else { io::Error::other(what) }
        })?;
        Ok(Folder { id, path: path.to_owned(), lock })
    }

    /// The node's id: random, and made with the folder.
    pub fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The right to write there, for whoever writes.
    pub(super) fn held(&self) -> &Arc<Lock> {
        &self.lock
    }
}

impl Disk for Folder {
    fn id(&self) -> u64 {
        self.id
    }

    fn log(&self) -> io::Result<Arc<dyn LogFile>> {
        Ok(Arc::new(SqliteLog::open(self)?))
    }

    fn images(&self) -> io::Result<Arc<dyn ImageFile>> {
        Ok(Arc::new(SqliteImages::open(self)?))
    }

    fn place(&self) -> Box<dyn Place> {
        Box::new(Left { path: self.path.clone(), lock: Arc::downgrade(&self.lock) })
    }
}

/// A folder that its node may have left.
#[derive(Debug)]
struct Left {
    path: PathBuf,
    lock: Weak<Lock>,
}

impl Place for Left {
    fn leave(&self) {
        if let Some(lock) = self.lock.upgrade() {
            lock.leave();
        }
    }

    fn condemn(&self, cause: &str) -> io::Result<()> {
        mark(&self.path, CONDEMNED, cause)
    }
}

/// Writes the reason for which a folder is refused from now on.
fn mark(folder: &Path, name: &str, cause: &str) -> io::Result<()> {
    let new = folder.join(format!("{name}.new"));
    let mut file = File::create(&new)?;
    file.write_all(cause.as_bytes()).and_then(|()| file.sync_all())?;
    fs::rename(new, folder.join(name))?;
    File::open(folder)?.sync_all()
}

/// The reason for which a folder is not used.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error(transparent)]
    System(#[from] io::Error),
    #[error(transparent)]
    Sqlite(rusqlite::Error),
    #[error("{0}")]
    Taken(String),
    #[error("{0}")]
    Refused(String),
    #[error("{0}")]
    Damaged(String),
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Fault {
        match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
                Fault::Damaged(error.to_string())
            }
            _ => Fault::Sqlite(error),
        }
    }
}

fn lock(directory: &Directory) -> Result<Lock, Fault> {
    Lock::take(directory.write(LOCK, BYTES_MAX)?).map_err(|error| match error {
        LockError::Held { pid } => Fault::Taken(format!(
            "another process{} runs a node there; stop that one{}",
            with(pid),
            kill(pid)
        )),
        LockError::System(error) => Fault::System(error),
    })
}

/// A copy of a folder would be the same node twice.
fn check_machine(directory: &Directory) -> Result<(), Fault> {
    let here = host_id(directory)?;
    let mut file = directory.write(MACHINE, MACHINE_BYTES_MAX)?;
    let mut last = String::new();
    file.read_to_string(&mut last)?;
    match last.trim() {
        // It is new, or could not be written at first.
        "" => Ok(write!(file, "{here}")?),
        last if last == here => Ok(()),
        _ => Err(Fault::Refused(format!(
            "its node ran on another machine, and must not run twice. If it never starts there again, remove {}; \
             otherwise take an empty folder",
            directory.join(MACHINE).display()
        ))),
    }
}

/// A copy on the same machine has another inode and another path. One of the two alone says nothing: a folder is moved
/// to another disk and mounted at its path, or renamed, and some file systems number their files anew.
fn check_place(directory: &Directory) -> Result<(), Fault> {
    let (inode, path) = (directory.metadata()?.ino(), fs::canonicalize(directory.path())?);
    let here = format!("{inode} {}", path.display());
    let mut file = directory.write(PLACE, PLACE_BYTES_MAX)?;
    let mut last = String::new();
    file.read_to_string(&mut last)?;
    if last == here {
        return Ok(());
    }
    if let Some((last_inode, last_path)) = last.split_once(' ')
        && last_inode != inode.to_string()
        && Path::new(last_path) != path
    {
        return Err(Fault::Refused(format!(
            "it is a copy of {last_path}, and a node must not run twice. If no node ever starts there again, remove {}; \
             otherwise take an empty folder",
            directory.join(PLACE).display()
        )));
    }
    file.set_len(0)?;
    file.rewind()?;
    Ok(file.write_all(here.as_bytes())?)
}

/// A node whose state differs from its cluster's would differ again. A node of a recovered cluster would still be one
/// of the old cluster.
fn check_condemned(path: &Path, marks: &[&str]) -> Result<(), Fault> {
    for name in marks {
        let mut cause = String::new();
        match File::open(path.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            file => file?.take(CONDEMNED_BYTES_MAX).read_to_string(&mut cause)?,
        };
        return Err(Fault::Refused(cause));
    }
    Ok(())
}

/// The node whose files these are; a new one where there are none. Either file has its id: a node that has lost its
/// log would vote twice, and one that has lost its image would begin with nothing.
fn identify(path: &Path) -> Result<u64, Fault> {
    // Before SQLite opens it, and goes on after what it can read.
    let wal = path.join(format!("{}-wal", log::FILE));
    let written = fs::read(&wal).or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => Ok(Vec::new()),
        _ => Err(error),
    })?;
    if let Some(frame) = damaged_frame(&written) {
        return Err(Fault::Damaged(format!("{} is damaged at frame {frame}", wal.display())));
    }
    let mut log = Connection::open(path.join(log::FILE))?;
    let mut image = Connection::open(path.join(images::FILE))?;
    match (id_of(&log)?, id_of(&image)?) {
        (Some(id), Some(same)) if id == same => Ok(id),
        // The image's file is the later one to be made.
        (Some(id), None) if writer::kept(&log, PURGED)?.is_none() => {
            make(&mut image, images::TABLES, id)?;
            Ok(id)
        }
        (None, None) => {
            let id = random()?;
            make(&mut log, writer::TABLES, id)?;
            make(&mut image, images::TABLES, id)?;
            Ok(id)
        }
        (log, image) => {
            let told = |id: Option<u64>| {
                id.map_or("of no node".to_owned(), |id| format!("of node {id:x}"))
            };
            let (log, image) = (told(log), told(image));
            Err(Fault::Damaged(format!("its log is {log}, and its image {image}")))
        }
    }
}

/// The node that has written a file; `None` if the file is new.
fn id_of(file: &Connection) -> Result<Option<u64>, Fault> {
    match file.query_row("PRAGMA user_version", [], |row| row.get(0))? {
        0 => Ok(None),
        FORMAT => Ok(Some(
            file.query_row("SELECT id FROM node", [], |row| row.get::<_, i64>(0))?.unsigned_abs(),
        )),
        format => Err(Fault::Refused(format!(
            "its files have format {format}, and this program knows {FORMAT}: install the release that has written \
             them"
        ))),
    }
}

fn make(file: &mut Connection, tables: &str, id: u64) -> rusqlite::Result<()> {
    let transaction = file.transaction()?;
    transaction.execute_batch(tables)?;
    transaction.execute_batch("CREATE TABLE node (id INTEGER NOT NULL);")?;
    transaction.execute("INSERT INTO node (id) VALUES (?)", [writer::position(id)])?;
    transaction.pragma_update(None, "user_version", FORMAT)?;
    transaction.commit()
}

/// Never 0, which people take for none.
fn random() -> Result<u64, Fault> {
    let bytes = getrandom::u64().map_err(|error| Fault::System(io::Error::other(error)))?;
    Ok((bytes >> (u64::BITS - ID_BITS)).max(1))
}
