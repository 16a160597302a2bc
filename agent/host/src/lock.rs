//! The right to a thing that only one agent may use.

use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::thread;
use std::time::Duration;

use super::clock;

/// A pid, a namespace and a word are shorter.
pub const BYTES_MAX: u64 = 256;
/// Length of what is written.
const LINE: usize = 128;
/// How long an owner may take to be gone that was killed a moment ago.
const PATIENCE: Duration = Duration::from_secs(1);
/// The same for one that has said that it is leaving. Longer than the longest stop.
const PATIENCE_LEAVING: Duration = Duration::from_secs(10);
const PACE: Duration = Duration::from_millis(5);
/// The last word of an owner that takes on nothing more.
const LEAVING: &str = "leaving";

/// Why there is no lock.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another agent has it.
    #[error("another agent has it")]
    Held {
        /// The other agent, where its number means the same process here.
        pid: Option<u32>,
    },
    /// The system refused.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// A lock. Its file stays when the agent ends: if it were removed, one agent could lock the old file
/// while another makes a new one.
#[derive(Debug)]
pub struct Lock(File);

impl Lock {
    /// Locks a file, with our pid and its namespace in it. Waits a moment for an owner that is on
    /// its way out.
    ///
    /// # Errors
    ///
    /// See [`LockError`].
    pub fn take(file: File) -> Result<Lock, LockError> {
        let since = clock::now();
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(fs::TryLockError::WouldBlock) => {}
                Err(fs::TryLockError::Error(error)) => return Err(error.into()),
            }
            let owner = read(&file).unwrap_or_default();
            let patience =
                if owner.trim_end().ends_with(LEAVING) { PATIENCE_LEAVING } else { PATIENCE };
            if clock::now().since(since) >= patience {
                return Err(LockError::Held { pid: pid_of(&owner) });
            }
            thread::sleep(PACE);
        }
        Ok(Lock::of(file))
    }

    /// Locks a file that nobody has locked.
    ///
    /// # Errors
    ///
    /// See [`LockError`].
    pub fn take_now(file: File) -> Result<Lock, LockError> {
        match file.try_lock() {
            Ok(()) => Ok(Lock::of(file)),
            Err(fs::TryLockError::WouldBlock) => {
                Err(LockError::Held { pid: pid_of(&read(&file).unwrap_or_default()) })
            }
            Err(fs::TryLockError::Error(error)) => Err(error.into()),
        }
    }

    /// A file that is locked, with its owner in it from now on.
    fn of(locked: File) -> Lock {
        let lock = Lock(locked);
        lock.write("");
        lock
    }

    /// Tells a next agent that it is worth waiting for the end of this one.
    pub fn leave(&self) {
        self.write(LEAVING);
    }

    /// Device and inode of its file.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn identity(&self) -> io::Result<(u64, u64)> {
        let found = self.0.metadata()?;
        Ok((found.dev(), found.ino()))
    }

    /// Says whose it is, and that word. It is a lock without that, too: others are told less then.
    fn write(&self, word: &str) {
        let owner = format!("{} {} {word}", std::process::id(), pid_namespace());
        // In one call and always as long, so that no part of it is read; over what is there, whose
        // space nobody else takes on a full disk.
        let line = format!("{owner:<LINE$}");
        if self.0.write_all_at(line.as_bytes(), 0).is_err() {
            // Rather nobody's number than that of another process.
            let _ = self.0.set_len(0);
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing alone would leave the lock to a child that was forked and has not exec'd yet.
        let _ = self.0.unlock();
    }
}

/// ` (pid 7)`, of an owner that has a number.
pub fn with(pid: Option<u32>) -> String {
    pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default()
}

/// ` (kill 7)`, of an owner that has a number.
pub fn kill(pid: Option<u32>) -> String {
    pid.map(|pid| format!(" (kill {pid})")).unwrap_or_default()
}

fn read(mut file: &File) -> io::Result<String> {
    file.rewind()?;
    let mut owner = String::new();
    file.take(BYTES_MAX).read_to_string(&mut owner)?;
    Ok(owner)
}

/// The owner's pid, if that number means the same process here: to kill 1, which every container
/// has, would be bad advice.
fn pid_of(owner: &str) -> Option<u32> {
    let mut words = owner.split_whitespace();
    let pid = words.next()?.parse().ok()?;
    (words.next().unwrap_or_default() == pid_namespace()).then_some(pid)
}

/// The PID namespace of this process, as the kernel names it; nothing where there are none.
fn pid_namespace() -> String {
    let name = fs::read_link("/proc/self/ns/pid");
    name.map(|name| name.display().to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(dir: &tempfile::TempDir) -> File {
        super::super::directory::Directory::shared(dir.path())
            .and_then(|directory| directory.write("lock", BYTES_MAX))
            .unwrap()
    }

    #[test]
    fn one_owner_which_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let lock = Lock::take(file(&dir)).unwrap();
        let me = std::process::id();
        let held = Lock::take(file(&dir)).unwrap_err();
        assert!(matches!(held, LockError::Held { pid: Some(pid) } if pid == me), "{held}");
        drop(lock);
        Lock::take(file(&dir)).unwrap();
    }

    #[test]
    fn one_that_leaves_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let lock = Lock::take(file(&dir)).unwrap();
        lock.leave();
        let (about_to_wait, waits) = std::sync::mpsc::channel();
        let next = file(&dir);
        let next = thread::spawn(move || {
            about_to_wait.send(()).unwrap();
            Lock::take(next).map(drop)
        });
        waits.recv().unwrap();
        // Longer than one that has not said that it leaves is waited for.
        thread::sleep(PATIENCE + Duration::from_millis(100));
        drop(lock);
        next.join().unwrap().unwrap();
    }

    #[test]
    fn an_agent_of_another_pid_namespace_has_no_number_here() {
        assert_eq!(pid_of(&format!("7 {}\n", pid_namespace())), Some(7));
        assert_eq!(pid_of(&format!("7 {} {LEAVING}", pid_namespace())), Some(7));
        for owner in ["1 pid:[1]\n", "1\n", ""] {
            assert_eq!(pid_of(owner), None, "{owner:?}");
        }
    }
}
