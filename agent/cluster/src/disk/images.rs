//! The latest image of the machine.

use std::io;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use futures_util::future::BoxFuture;
use rusqlite::{Connection, OptionalExtension};
use tenure_host::lock::Lock;

use super::seal::{seal, unseal};
use super::{Disk, Folder, ImageFile};

pub(super) const FILE: &str = "image.sqlite";
pub(super) const TABLES: &str =
    "CREATE TABLE image (only INTEGER PRIMARY KEY CHECK (only = 1), data BLOB NOT NULL);";

/// The images of a node. Cheap to clone: all are the same ones.
#[derive(Clone)]
pub(crate) struct Images(Arc<dyn ImageFile>);

impl Images {
    /// Opens the images on a disk.
    ///
    /// # Errors
    ///
    /// When they cannot be read or written.
    pub(crate) fn open(disk: &dyn Disk) -> io::Result<Images> {
        disk.images().map(Images)
    }

    /// Keeps an image in the place of the one before.
    pub(crate) async fn keep(&self, data: Vec<u8>) -> io::Result<()> {
        self.0.keep(seal(data)).await
    }

    /// The image that is kept.
    pub(crate) async fn kept(&self) -> io::Result<Option<Vec<u8>>> {
        self.0.kept().await?.map(unseal).transpose().map_err(io::Error::other)
    }
}

/// The image of a folder.
pub(super) struct SqliteImages {
    file: Arc<Mutex<Connection>>,
    /// Gone when the log is closed: the folder may be another process's then.
    lock: Weak<Lock>,
}

impl SqliteImages {
    pub(super) fn open(folder: &Folder) -> io::Result<SqliteImages> {
        let file = Connection::open(folder.path().join(FILE)).map_err(io::Error::other)?;
        // The log up to an image goes once it is kept: a power cut must not bring the one before back, with its journal.
        let batch = "PRAGMA journal_mode = DELETE; PRAGMA synchronous = EXTRA;";
        file.execute_batch(batch).map_err(io::Error::other)?;
        Ok(SqliteImages { file: Arc::new(Mutex::new(file)), lock: Arc::downgrade(folder.held()) })
    }

    /// It waits for the disk, on a thread for such things.
    async fn on_disk<T: Send + 'static>(
        &self,
        act: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let connection = Arc::clone(&self.file);
        let stopped = || io::Error::other("the node has stopped");
        let lock = self.lock.upgrade().ok_or_else(stopped)?;
        let done = tokio::task::spawn_blocking(move || {
            let _lock = lock;
            let connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
            act(&connection).map_err(|error| {
                let path = connection.path().unwrap_or_default();
                io::Error::other(format!("{path} cannot be used: {error}"))
            })
        });
        done.await?
    }
}

impl ImageFile for SqliteImages {
    fn keep(&self, data: Vec<u8>) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(self.on_disk(move |connection| {
            let put = "INSERT OR REPLACE INTO image (only, data) VALUES (1, ?)";
            connection.execute(put, [data]).map(drop)
        }))
    }

    fn kept(&self) -> BoxFuture<'_, io::Result<Option<Vec<u8>>>> {
        Box::pin(self.on_disk(|connection| {
            connection.query_row("SELECT data FROM image", [], |row| row.get(0)).optional()
        }))
    }
}
