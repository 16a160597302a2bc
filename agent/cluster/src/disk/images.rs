//! The latest image of the machine.

use std::io;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rusqlite::{Connection, OptionalExtension};
use tenure_host::lock::Lock;

use super::Folder;
use super::seal::{seal, unseal};

pub(super) const FILE: &str = "image.sqlite";
pub(super) const TABLES: &str =
    "CREATE TABLE image (only INTEGER PRIMARY KEY CHECK (only = 1), data BLOB NOT NULL);";

/// The file with the image. Cheap to clone: all are the same one.
#[derive(Clone)]
pub(crate) struct Images {
    file: Arc<Mutex<Connection>>,
    /// Gone when the log is closed: the folder may be another process's then.
    lock: Weak<Lock>,
}

impl Images {
    /// Opens the images in a folder.
    ///
    /// # Errors
    ///
    /// When they cannot be read or written.
    pub(crate) fn open(folder: &Folder) -> io::Result<Images> {
        let file = Connection::open(folder.path().join(FILE)).map_err(io::Error::other)?;
        let batch = "PRAGMA journal_mode = DELETE; PRAGMA synchronous = FULL;";
        file.execute_batch(batch).map_err(io::Error::other)?;
        let lock = Arc::downgrade(&folder.lock());
        Ok(Images { file: Arc::new(Mutex::new(file)), lock })
    }

    /// Keeps an image in the place of the one before. It waits for the disk, on a thread for such things.
    pub(crate) async fn keep(&self, data: Vec<u8>) -> io::Result<()> {
        let data = seal(data);
        self.on_disk(move |connection| {
            let put = "INSERT OR REPLACE INTO image (only, data) VALUES (1, ?)";
            connection.execute(put, [data]).map(drop)
        })
        .await
    }

    /// The image that is kept.
    pub(crate) async fn kept(&self) -> io::Result<Option<Vec<u8>>> {
        let kept = self.on_disk(|connection| {
            connection.query_row("SELECT data FROM image", [], |row| row.get(0)).optional()
        });
        kept.await?.map(unseal).transpose().map_err(io::Error::other)
    }

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
