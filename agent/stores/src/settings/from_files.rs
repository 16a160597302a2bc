//! What is made of files, and made again once one of them has changed.

use std::fmt::{self, Display};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tracing::{info, warn};

/// The longest wait for a disk, before what was made last is used.
const LOOK_MAX: Duration = Duration::from_secs(1);

/// Files, and how something is made of them.
pub trait Source: Send + Sync + 'static {
    /// The thing that is made.
    type Made: Send + Sync;
    /// Why it cannot be.
    type Error: Display + PartialEq + Send;

    /// The files.
    fn files(&self) -> Vec<&Path>;

    /// The name of the files for people: "certificates of …".
    fn name(&self) -> String;

    /// Reads the files.
    ///
    /// # Errors
    ///
    /// When one of them is not what it should be.
    fn make(&self) -> Result<Self::Made, Self::Error>;

    /// Judges whether it may take the place of one before.
    ///
    /// # Errors
    ///
    /// When it is of no use.
    fn judge(&self, _made: &Self::Made) -> Result<(), Self::Error> {
        Ok(())
    }
}

/// A thing that is made of files. A connection that begins after one of them was replaced has the new one, so that a
/// rotation takes no restart. Clones share the one that was made last.
pub struct FromFiles<S: Source>(Arc<Origin<S>>);

struct Origin<S: Source> {
    source: S,
    latest: Mutex<Latest<S>>,
    /// Held while the files are read.
    reading: Mutex<()>,
}

/// The one that was made last.
struct Latest<S: Source> {
    made: Arc<S::Made>,
    /// The state of the files before they were read.
    stamps: Stamps,
    /// What was wrong with the files since then.
    wrong: Option<S::Error>,
}

impl<S: Source> Clone for FromFiles<S> {
    fn clone(&self) -> Self {
        FromFiles(Arc::clone(&self.0))
    }
}

impl<S: Source> fmt::Debug for FromFiles<S> {
    /// Without private keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FromFiles")
    }
}

impl<S: Source> FromFiles<S> {
    /// Reads the files for the first time.
    ///
    /// # Errors
    ///
    /// When one of them is not what it should be.
    pub fn read(source: S) -> Result<FromFiles<S>, S::Error> {
        // Before they are read: what changes meanwhile is noticed.
        let stamps = stamps(&source);
        let made = Arc::new(source.make()?);
        let latest = Mutex::new(Latest { made, stamps, wrong: None });
        Ok(FromFiles(Arc::new(Origin { source, latest, reading: Mutex::default() })))
    }

    /// What a connection takes that begins now. The one that was made last if something is wrong with the files at this
    /// moment: one of them may be replaced, and another not yet.
    ///
    /// Reads on another thread, and waits for it a second at most: beats go on meanwhile. Within a runtime.
    pub async fn current(&self) -> Arc<S::Made> {
        let origin = Arc::clone(&self.0);
        // A disk that hangs leaves it as it was.
        let _looked = timeout(LOOK_MAX, spawn_blocking(move || origin.look())).await;
        self.latest()
    }

    /// The one that was made last. Does not look at the files.
    pub fn latest(&self) -> Arc<S::Made> {
        Arc::clone(&lock(&self.0.latest).made)
    }

    /// Reads the files again, also if none has changed: what else it is made of may have.
    ///
    /// # Errors
    ///
    /// When one of them is not what it should be, or of no use. Then nothing changes.
    pub fn reload(&self) -> Result<(), S::Error> {
        let _reading = lock(&self.0.reading);
        self.0.make_again(stamps(&self.0.source))
    }
}

impl<S: Source> Origin<S> {
    /// Reads the files again if one of them has changed.
    fn look(&self) {
        // Another connection reads already, or waits for a disk.
        let Ok(_reading) = self.reading.try_lock() else { return };
        let stamps = stamps(&self.source);
        {
            let mut latest = lock(&self.latest);
            if stamps == latest.stamps {
                latest.wrong = None;
                return;
            }
        }
        let Err(wrong) = self.make_again(stamps) else { return };
        let mut latest = lock(&self.latest);
        // An agent without a connection looks several times a second.
        if latest.wrong.as_ref() != Some(&wrong) {
            warn!("connecting with the {} that were read last: {wrong}", self.source.name());
            latest.wrong = Some(wrong);
        }
    }

    /// Reads the files, of which these are the stamps. Under `reading`.
    fn make_again(&self, stamps: Stamps) -> Result<(), S::Error> {
        let made = self.source.make()?;
        self.source.judge(&made)?;
        let mut latest = lock(&self.latest);
        if stamps != latest.stamps {
            info!("read the {} again, for new connections", self.source.name());
        }
        *latest = Latest { made: Arc::new(made), stamps, wrong: None };
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The state of each file. One state may stand for two contents of a file that changed twice at once; a reload reads the
/// files anyway.
type Stamps = Vec<Option<Stamp>>;

fn stamps(source: &impl Source) -> Stamps {
    source.files().into_iter().map(Stamp::of).collect()
}

#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    length: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// That of a file; `None` while it cannot be looked at.
    fn of(path: &Path) -> Option<Stamp> {
        let found = fs::metadata(path).ok()?;
        Some(Stamp {
            inode: found.ino(),
            length: found.size(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        })
    }
}
