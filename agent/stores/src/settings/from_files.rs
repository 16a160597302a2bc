//! A value that is read from files, and read again when one of them has changed.

use std::fmt::{self, Display};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, SendError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::Duration;

use tenure_core::time::Boottime;
use tenure_host::clock;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tracing::{info, warn};

/// The longest wait for a disk.
const READ_MAX: Duration = Duration::from_secs(1);
/// Files that were wrong, and have not changed since, are not read again before.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Files, and the value that is read from them.
pub trait Source: Send + Sync + 'static {
    /// The value.
    type Value: Send + Sync;
    /// A file is not what it should be.
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
    fn read(&self) -> Result<Self::Value, Self::Error>;

    /// Refuses a value that is worse than the one before, such as a certificate that has expired.
    ///
    /// # Errors
    ///
    /// When the value is worse.
    fn check(&self, _value: &Self::Value) -> Result<(), Self::Error> {
        Ok(())
    }
}

/// A value that is read from files. A connection that begins after a file was replaced has the new value, so that a
/// rotation takes no restart. Clones share the value that was read last.
pub struct FromFiles<S: Source>(Arc<Origin<S>>);

struct Origin<S: Source> {
    source: S,
    latest: Mutex<Latest<S>>,
    /// Held while the files are read.
    reading: Mutex<()>,
    reload: Mutex<Reload>,
}

/// The reloads that are under way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Reload {
    #[default]
    None,
    Once,
    /// Another one was asked for while the first waited for the disk, or read.
    Twice,
}

/// The value that was read last.
struct Latest<S: Source> {
    value: Arc<S::Value>,
    /// The state of the files before they were read.
    stamps: Stamps,
    /// The last try since then, if the files were wrong.
    refused: Option<Refusal<S>>,
}

struct Refusal<S: Source> {
    error: S::Error,
    stamps: Stamps,
    at: Boottime,
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
        let value = Arc::new(source.read()?);
        let latest = Mutex::new(Latest { value, stamps, refused: None });
        let (reading, reload) = (Mutex::default(), Mutex::default());
        Ok(FromFiles(Arc::new(Origin { source, latest, reading, reload })))
    }

    /// The value for a connection that begins now. It is the one that was read last while another connection reads the
    /// files, and while something is wrong with them: one file may be replaced, and another not yet.
    ///
    /// Reads on another thread, and waits for it a second at most: beats go on meanwhile. Within a runtime.
    pub async fn current(&self) -> Arc<S::Value> {
        let origin = Arc::clone(&self.0);
        // A disk that hangs leaves the value as it was.
        let _looked = timeout(READ_MAX, spawn_blocking(move || origin.look())).await;
        self.latest()
    }

    /// The value that was read last. Does not look at the files.
    pub fn latest(&self) -> Arc<S::Value> {
        Arc::clone(&lock(&self.0.latest).value)
    }

    /// Reads the files again, also when none has changed: the authorities of the host itself may have.
    ///
    /// Waits for a second at most. A disk that hangs is told in the log, and leaves the value as it was until the disk
    /// answers; until then a further reload starts no thread.
    ///
    /// # Errors
    ///
    /// When one of the files is not what it should be, or the value is worse than the one before. Then nothing changes.
    pub fn reload(&self) -> Result<(), S::Error> {
        let name = self.0.source.name();
        let is_first = {
            let mut reload = lock(&self.0.reload);
            let is_first = *reload == Reload::None;
            *reload = if is_first { Reload::Once } else { Reload::Twice };
            is_first
        };
        if !is_first {
            info!("the {name} are read once more when the reload before has ended");
            return Ok(());
        }
        let (answer, answered) = sync_channel(0);
        let origin = Arc::clone(&self.0);
        let started = thread::Builder::new().spawn(move || origin.reload(&answer));
        if started.is_err() {
            *lock(&self.0.reload) = Reload::None;
        }
        let read = answered.recv_timeout(READ_MAX);
        // From here on the thread tells the outcome itself.
        drop(answered);
        match read {
            Ok(read) => {
                if read.is_ok() {
                    self.0.tell(&read);
                }
                return read;
            }
            Err(RecvTimeoutError::Timeout) => {
                warn!("the {name} are not read again yet: see whether their disk answers");
            }
            Err(RecvTimeoutError::Disconnected) => {
                warn!("the {name} were not read again: no thread can be started");
            }
        }
        Ok(())
    }
}

impl<S: Source> Origin<S> {
    /// Reads the files again, once for each reload that is asked for meanwhile.
    fn reload(&self, answer: &SyncSender<Result<(), S::Error>>) {
        loop {
            let read = {
                let _reading = lock(&self.reading);
                self.read_again(stamps(&self.source))
            };
            let is_last = {
                let mut reload = lock(&self.reload);
                *reload = if *reload == Reload::Twice { Reload::Once } else { Reload::None };
                *reload == Reload::None
            };
            // Fails once the receiver has heard an outcome, or waits no longer.
            if let Err(SendError(read)) = answer.send(read) {
                self.tell(&read);
            }
            if is_last {
                return;
            }
        }
    }

    /// Reads the files again if one of them has changed.
    fn look(&self) {
        let _reading = match self.reading.try_lock() {
            Ok(reading) => reading,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Another connection reads already, or waits for a disk.
            Err(TryLockError::WouldBlock) => return,
        };
        let stamps = stamps(&self.source);
        {
            let mut latest = lock(&self.latest);
            if stamps == latest.stamps {
                latest.refused = None;
                return;
            }
            let is_same = |refusal: &Refusal<S>| {
                refusal.stamps == stamps && clock::now() < refusal.at + RETRY_AFTER
            };
            if latest.refused.as_ref().is_some_and(is_same) {
                return;
            }
        }
        let read = self.read_again(stamps.clone());
        let is_known = {
            let latest = lock(&self.latest);
            let before = latest.refused.as_ref().map(|refusal| &refusal.error);
            read.is_err() && before == read.as_ref().err()
        };
        // The same refusal is told once.
        if !is_known {
            self.tell(&read);
        }
        let refused = read.err().map(|error| Refusal { error, stamps, at: clock::now() });
        lock(&self.latest).refused = refused;
    }

    /// Tells the log what became of the files.
    fn tell(&self, read: &Result<(), S::Error>) {
        let name = self.source.name();
        match read {
            Ok(()) => info!("read the {name} again, for new connections"),
            Err(error) => warn!("going on with the {name} that were read last: {error}"),
        }
    }

    /// Reads the files, of which these are the stamps. Under `reading`.
    fn read_again(&self, stamps: Stamps) -> Result<(), S::Error> {
        let value = self.source.read()?;
        self.source.check(&value)?;
        *lock(&self.latest) = Latest { value: Arc::new(value), stamps, refused: None };
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

#[derive(Debug, Clone, PartialEq, Eq)]
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tempfile::TempDir;

    use super::*;

    /// A number in a file. Odd ones are refused as worse than the one before.
    struct Number {
        file: PathBuf,
        reads: Arc<AtomicUsize>,
        disk: Arc<Mutex<()>>,
    }

    impl Source for Number {
        type Value = u32;
        type Error = String;

        fn files(&self) -> Vec<&Path> {
            vec![&self.file]
        }

        fn name(&self) -> String {
            "number".to_owned()
        }

        fn read(&self) -> Result<u32, String> {
            self.reads.fetch_add(1, Ordering::SeqCst);
            let _answers = lock(&self.disk);
            let text = fs::read_to_string(&self.file).map_err(|error| error.to_string())?;
            text.parse().map_err(|_| format!("{text:?} is no number"))
        }

        fn check(&self, value: &u32) -> Result<(), String> {
            if value.is_multiple_of(2) { Ok(()) } else { Err(format!("{value} is odd")) }
        }
    }

    struct Scene {
        folder: TempDir,
        reads: Arc<AtomicUsize>,
        disk: Arc<Mutex<()>>,
        number: FromFiles<Number>,
    }

    impl Scene {
        fn start() -> Scene {
            let folder = TempDir::new().unwrap();
            let (reads, disk) = (Arc::<AtomicUsize>::default(), Arc::<Mutex<()>>::default());
            let file = folder.path().join("number");
            fs::write(&file, "1").unwrap();
            let source = Number { file, reads: Arc::clone(&reads), disk: Arc::clone(&disk) };
            Scene { number: FromFiles::read(source).unwrap(), folder, reads, disk }
        }

        fn replace(&self, text: &str) {
            let next = self.folder.path().join("next");
            fs::write(&next, text).unwrap();
            fs::rename(next, self.folder.path().join("number")).unwrap();
        }

        fn reads(&self) -> usize {
            self.reads.load(Ordering::SeqCst)
        }
    }

    #[tokio::test]
    async fn the_next_one_has_what_was_replaced() {
        let scene = Scene::start();
        for text in ["2", "40", "6"] {
            scene.replace(text);
            assert_eq!(scene.number.current().await.to_string(), text);
        }
        let reads = scene.reads();
        assert_eq!(*scene.number.current().await, 6);
        assert_eq!(scene.reads(), reads, "nothing has changed");
        scene.number.reload().unwrap();
        assert_eq!(scene.reads(), reads + 1);
    }

    #[tokio::test]
    async fn a_folder_that_is_replaced_by_a_link_has_changed() {
        // Kubernetes replaces a volume like this: files are links through `..data`, a link to the current folder,
        // which is replaced.
        let folder = TempDir::new().unwrap();
        let path = |name: &str| folder.path().join(name);
        for text in ["1", "2"] {
            fs::create_dir(path(text)).unwrap();
            fs::write(path(text).join("number"), text).unwrap();
        }
        symlink("1", path("..data")).unwrap();
        symlink("..data/number", path("number")).unwrap();
        let (reads, disk) = (Arc::default(), Arc::default());
        let number = FromFiles::read(Number { file: path("number"), reads, disk }).unwrap();
        symlink("2", path("next")).unwrap();
        fs::rename(path("next"), path("..data")).unwrap();
        assert_eq!(*number.current().await, 2);
    }

    #[tokio::test]
    async fn what_is_wrong_changes_nothing_and_is_not_read_each_time() {
        let scene = Scene::start();
        scene.replace("2");
        scene.number.reload().unwrap();
        for wrong in ["3", "three"] {
            scene.replace(wrong);
            let (reads, until) = (scene.reads(), clock::now() + RETRY_AFTER / 2);
            let mut turns = 0;
            while turns < 10_000 && clock::now() < until {
                assert_eq!(*scene.number.current().await, 2);
                turns += 1;
            }
            assert!(scene.reads() - reads <= 3, "once, and once a second");
            assert!(scene.number.reload().unwrap_err().contains(wrong));
        }
        scene.replace("4");
        assert_eq!(*scene.number.current().await, 4);
    }

    #[tokio::test]
    #[expect(clippy::await_holding_lock, reason = "the disk hangs for as long as this is held")]
    async fn a_disk_that_hangs_is_waited_for_a_second() {
        let scene = Scene::start();
        let before = scene.reads();
        scene.replace("2");
        let hangs = scene.disk.lock().unwrap();
        assert_eq!(*scene.number.current().await, 1, "the first one waits for a second");
        // The others do not wait: 10 000 seconds would be three hours.
        for _ in 0..10_000 {
            assert_eq!(*scene.number.current().await, 1);
        }
        scene.number.reload().unwrap();
        // Each thread that waits has the value, too.
        let waiting = Arc::strong_count(&scene.number.0);
        for _ in 0..10_000 {
            scene.number.reload().unwrap();
        }
        assert_eq!(Arc::strong_count(&scene.number.0), waiting, "one thread waits for all");
        assert_eq!(*scene.number.latest(), 1);
        drop(hangs);
        while *scene.number.current().await != 2 {
            tokio::task::yield_now().await;
        }
        while *lock(&scene.number.0.reload) != Reload::None {
            tokio::task::yield_now().await;
        }
        let reads = scene.reads();
        scene.number.reload().unwrap();
        assert_eq!(scene.reads(), reads + 1, "the disk answers");
        assert_eq!(reads - before, 3, "one that waited for the disk, and one for each two reloads");
    }
}
