//! The latest image of the machine.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::{Connection, OptionalExtension};

/// The file with the image. Cheap to clone: all are the same one.
#[derive(Clone)]
pub(crate) struct Images(Arc<Mutex<Connection>>);

impl Images {
    /// Opens the images in a folder.
    ///
    /// # Errors
    ///
    /// When they cannot be read or written.
    pub(crate) fn open(folder: &Path) -> io::Result<Images> {
        let connection = Connection::open(folder.join("image.sqlite")).map_err(io::Error::other)?;
        connection
            .execute_batch(
                "PRAGMA journal_mode = DELETE; PRAGMA synchronous = FULL;
                 CREATE TABLE IF NOT EXISTS image (only INTEGER PRIMARY KEY CHECK (only = 1), data BLOB NOT NULL);",
            )
            .map_err(io::Error::other)?;
        Ok(Images(Arc::new(Mutex::new(connection))))
    }

    /// Keeps an image in the place of the one before. It waits for the disk, on a thread for such things.
    pub(crate) async fn keep(&self, data: Vec<u8>) -> io::Result<()> {
        self.on_disk(move |connection| {
            let put = "INSERT OR REPLACE INTO image (only, data) VALUES (1, ?)";
            connection.execute(put, [data]).map(drop)
        })
        .await
    }

    /// The image that is kept.
    pub(crate) async fn kept(&self) -> io::Result<Option<Vec<u8>>> {
        self.on_disk(|connection| {
            connection.query_row("SELECT data FROM image", [], |row| row.get(0)).optional()
        })
        .await
    }

    async fn on_disk<T: Send + 'static>(
        &self,
        act: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let connection = Arc::clone(&self.0);
        let done = tokio::task::spawn_blocking(move || {
            act(&connection.lock().unwrap_or_else(PoisonError::into_inner))
        });
        done.await?.map_err(io::Error::other)
    }
}
