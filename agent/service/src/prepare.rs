//! Preparations before a daemon serves: its directories and their locks.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::sys::stat::{Mode, umask};
use tenure_host::directory::{Directory, DirectoryError};
use tenure_host::lock::{self, Lock, LockError};
use tenure_host::machine;
use tracing::{info, warn};

/// The lock of a directory. No socket's lock has this name: those end with `.lock`.
const LOCK_NAME: &str = "lock";
/// With fewer, opening a database or starting a thread fails, and says something else.
const DESCRIPTORS_MIN: u64 = 64;

/// Why a daemon cannot start.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// A directory cannot be made, or is not safe.
    #[error("{refusal}; mend it (chown, chmod go-w), or choose another with {flag}")]
    NotOurs {
        /// The flag that names it.
        flag: &'static str,
        refusal: DirectoryError,
    },
    /// The system refuses a directory.
    #[error("cannot use directory {}: choose another with {flag}", .path.display())]
    Directory {
        path: PathBuf,
        /// The flag that names it.
        flag: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// Nothing could be served.
    #[error(
        "the limit of open files is {limit}, and the {daemon} needs {DESCRIPTORS_MIN} at least: raise it \
         (ulimit -n, LimitNOFILE=)"
    )]
    FewDescriptors { daemon: &'static str, limit: u64 },
    /// Another daemon uses a directory.
    #[error(
        "another {daemon}{} uses {}; give this one --runtime-dir and --state-dir of its own, or stop \
         that one{}",
        lock::with(*.pid), .path.display(), lock::kill(*.pid)
    )]
    Taken {
        daemon: &'static str,
        path: PathBuf,
        /// The other one, where it can be found out.
        pid: Option<u32>,
    },
}

/// Things that must be there before anything is opened.
#[derive(Debug)]
pub struct Prepared {
    /// Descriptors of this process at most; `None` where the system does not tell.
    pub descriptors: Option<u64>,
    /// `--runtime-dir`.
    pub runtime_dir: Directory,
    /// `--state-dir`.
    pub state_dir: Directory,
    /// The right to both.
    pub locks: Locks,
}

/// The right to a daemon's directories. Kept until the process ends.
#[derive(Debug)]
pub struct Locks(Vec<Lock>);

impl Locks {
    /// Tells a next daemon that it is worth waiting for the end of this one.
    pub fn leave(&self) {
        self.0.iter().for_each(Lock::leave);
    }

    /// True if the lock of the runtime directory is still in it: whoever empties that takes the lock, too. True also if the system does
    /// not tell.
    pub fn is_in_place(&self, directory: &Directory) -> bool {
        let own = self.0.first().and_then(|lock| lock.identity().ok());
        match directory.join(LOCK_NAME).symlink_metadata() {
            Ok(found) => own.is_none_or(|own| own == (found.dev(), found.ino())),
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        }
    }

    /// Locks the runtime directory that is now where the locked one was, and has the users of that use it.
    ///
    /// # Errors
    ///
    /// When there is none and none can be made, or another daemon has it. Everything is as before then.
    pub fn renew(&mut self, directory: &Directory, state: &Directory) -> Result<(), RenewError> {
        if directory.is_in_place() {
            // The lock alone is gone.
            let lock = Lock::take_now(directory.write(LOCK_NAME, lock::BYTES_MAX)?)?;
            if let Some(runtime) = self.0.first_mut() {
                *runtime = lock;
            }
            return Ok(());
        }
        // Both may be one, or the second lie in the first.
        let [runtime, _state] = &mut self.0[..] else { return Err(RenewError::LostState) };
        if !state.is_in_place() {
            return Err(RenewError::LostState);
        }
        let made = directory.again()?;
        let lock = Lock::take_now(made.write(LOCK_NAME, lock::BYTES_MAX)?)?;
        directory.replace_by(&made)?;
        // This lets go of the lock before: a directory that comes back is locked anew.
        *runtime = lock;
        Ok(())
    }
}

/// Why a directory that was removed is not there again.
#[derive(Debug, thiserror::Error)]
pub enum RenewError {
    /// The state directory went with it.
    #[error("the state directory went with it, and what that kept is lost: restart the daemon")]
    LostState,
    /// It cannot be made or used.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// Another daemon has what is there now.
    #[error(transparent)]
    Lock(#[from] lock::LockError),
    /// The system refused.
    #[error(transparent)]
    System(#[from] std::io::Error),
}

/// Directories that a daemon wants, and their modes.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// What people call the daemon.
    pub daemon: &'static str,
    pub runtime_dir: (&'a Path, u32),
    pub state_dir: (&'a Path, u32),
    /// True if the runtime directory is the default.
    pub is_default: bool,
}

/// Makes and locks the directories, and raises the limit of open files. Nothing in the directories is
/// touched before they are locked: it may be another daemon's, and in use.
///
/// # Errors
///
/// See [`PrepareError`].
pub fn prepare(wanted: Wanted<'_>) -> Result<Prepared, PrepareError> {
    let daemon = wanted.daemon;
    // Whatever is created without a mode of its own, such as databases with the secrets of
    // sessions, is for the daemon alone.
    umask(Mode::from_bits_truncate(0o077));
    let descriptors = machine::raise_descriptor_limit();
    if let Ok(limit) = descriptors
        && limit < DESCRIPTORS_MIN
    {
        return Err(PrepareError::FewDescriptors { daemon, limit });
    }
    let runtime_dir = directory(wanted.runtime_dir, "--runtime-dir")?;
    let state_dir = directory(wanted.state_dir, "--state-dir")?;
    let locks = lock_all(daemon, [(&runtime_dir, "--runtime-dir"), (&state_dir, "--state-dir")])?;
    if runtime_dir.is_on_disk() == Some(true) {
        let path = runtime_dir.path().display();
        let advice = "beats and answers wait while that is slow; use a directory in memory (tmpfs), such as one in /run";
        // A default is no reason for a warning.
        match wanted.is_default {
            true => info!("runtime_dir {path}, the default, lies on a disk: {advice}"),
            false => warn!("runtime_dir {path} lies on a disk: {advice}"),
        }
    }
    let descriptors = descriptors
        .inspect_err(|error| warn!(%error, "the limit of open files cannot be raised"))
        .ok();
    Ok(Prepared { descriptors, runtime_dir, state_dir, locks })
}

fn directory((path, mode): (&Path, u32), flag: &'static str) -> Result<Directory, PrepareError> {
    Directory::private(path, mode).map_err(|error| match error {
        DirectoryError::System { path, source } => PrepareError::Directory { path, flag, source },
        refusal @ DirectoryError::NotOurs { .. } => PrepareError::NotOurs { flag, refusal },
    })
}

fn lock_all(
    daemon: &'static str,
    directories: [(&Directory, &'static str); 2],
) -> Result<Locks, PrepareError> {
    let mut locks = Vec::new();
    let mut locked = Vec::new();
    for (directory, flag) in directories {
        let path = directory.path().to_owned();
        let fail = |source| PrepareError::Directory { path: path.clone(), flag, source };
        let found = directory.metadata().map_err(fail)?;
        let identity = (found.dev(), found.ino());
        // One directory may serve as both.
        if locked.contains(&identity) {
            continue;
        }
        locked.push(identity);
        let file = directory.write(LOCK_NAME, lock::BYTES_MAX).map_err(fail)?;
        let lock = Lock::take(file).map_err(|error| match error {
            LockError::Held { pid } => PrepareError::Taken { daemon, path: path.clone(), pid },
            LockError::System(source) => fail(source),
        })?;
        locks.push(lock);
    }
    Ok(Locks(locks))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_used_by_one_agent() {
        let dir = tempfile::tempdir().unwrap();
        let open = |name| directory((&dir.path().join(name), 0o700), "--state-dir").unwrap();
        let lock = |runtime, state| {
            lock_all("agent", [(&open(runtime), "--runtime-dir"), (&open(state), "--state-dir")])
        };
        let _first = lock("run", "state").unwrap();
        for (runtime, state, named) in
            [("run", "other", "run"), ("other", "state", "state"), ("state", "state", "state")]
        {
            let pid = std::process::id();
            let path = dir.path().join(named);
            let expected = format!(
                "another agent (pid {pid}) uses {}; give this one --runtime-dir and --state-dir of \
                 its own, or stop that one (kill {pid})",
                path.display()
            );
            assert_eq!(lock(runtime, state).unwrap_err().to_string(), expected);
        }
        lock("both", "both").unwrap();
        lock("both", "other").unwrap();
    }

    #[test]
    fn what_is_wrong_with_a_directory_and_the_way_out() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        let error = directory((&file, 0o700), "--state-dir").unwrap_err();
        assert!(error.to_string().ends_with("choose another with --state-dir"), "{error}");

        use std::os::unix::fs::PermissionsExt;
        let open = dir.path().join("open");
        std::fs::create_dir(&open).unwrap();
        std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
        let error = directory((&open, 0o755), "--runtime-dir").unwrap_err();
        let expected = "is writable for its group or for everybody (mode 777): others could put files \
                        into it; mend it (chown, chmod go-w), or choose another with --runtime-dir";
        assert!(error.to_string().ends_with(expected), "{error}");
    }

    #[test]
    fn few_descriptors_are_named() {
        let error = PrepareError::FewDescriptors { daemon: "agent", limit: 16 }.to_string();
        assert!(error.contains("open files is 16, and the agent needs 64 at least"), "{error}");
    }
}
