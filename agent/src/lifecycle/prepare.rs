//! What must be there before the agent serves.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::sys::stat::{Mode, umask};
use tracing::warn;

use crate::config::{Config, Limits};
use crate::host::machine;
use crate::host::socket::create_directory;

/// Descriptors for everything but connections and sessions: databases, timers, logs.
const DESCRIPTORS_OTHER: u64 = 128;
/// A connection has its own, and a session one for its process.
const DESCRIPTORS_PER_CONNECTION: u64 = 2;

/// Why the agent cannot start.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// A directory cannot be made.
    #[error("cannot use directory {}: choose another with {flag}", .path.display())]
    Directory {
        /// Which.
        path: PathBuf,
        /// The flag that names it.
        flag: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// Somebody else could put things into a directory, or take them out.
    #[error(
        "directory {} lies where everybody may write, and {reason}; remove it, or choose another with {flag}",
        .path.display()
    )]
    NotOurs {
        /// Which.
        path: PathBuf,
        /// The flag that names it.
        flag: &'static str,
        /// What is wrong with it.
        reason: String,
    },
}

/// Makes the directories, and returns the limits that this process can keep: as configured, or with
/// fewer connections where there are not descriptors for all of them.
///
/// # Errors
///
/// See [`PrepareError`].
pub fn prepare(config: &Config) -> Result<Limits, PrepareError> {
    // Whatever is created without a mode of its own, such as databases with the secrets of
    // sessions, is for the agent alone.
    umask(Mode::from_bits_truncate(0o077));
    directory(&config.runtime_dir, "--runtime-dir", 0o755)?;
    directory(&config.state_dir, "--state-dir", 0o700)?;
    let limits = config.limits.clone();
    Ok(match machine::raise_descriptor_limit() {
        Ok(descriptors) => fit(limits, descriptors),
        Err(error) => {
            warn!(%error, "the limit of open files cannot be raised");
            limits
        }
    })
}

fn directory(path: &Path, flag: &'static str, mode: u32) -> Result<(), PrepareError> {
    let fail = |source| PrepareError::Directory { path: path.to_owned(), flag, source };
    let is_public = |path: &Path| fs::metadata(path).is_ok_and(|found| found.mode() & 0o002 != 0);
    // A volume of a container is nobody's to plant, and may be shared on purpose.
    let in_public = path.parent().is_some_and(is_public) && !is_mounted(path);
    // In /tmp, anybody may have made it before us, and have a foot in the door.
    let mode = if in_public { 0o700 } else { mode };
    create_directory(path, mode).map_err(fail)?;
    if !in_public {
        return Ok(());
    }
    let found = fs::symlink_metadata(path).map_err(fail)?;
    let me = nix::unistd::geteuid().as_raw();
    let reason = if !found.is_dir() {
        "is a symbolic link".to_owned()
    } else if found.uid() != me {
        format!("belongs to uid {}, not {me}", found.uid())
    } else if found.mode() & 0o022 != 0 {
        format!("others may write to it (mode {:o})", found.mode() & 0o7777)
    } else {
        return Ok(());
    };
    Err(PrepareError::NotOurs { path: path.to_owned(), flag, reason })
}

/// Whether another file system than that of its directory begins there.
fn is_mounted(path: &Path) -> bool {
    let device = |path| fs::symlink_metadata(path).map(|found: fs::Metadata| found.dev()).ok();
    device(path).zip(path.parent().and_then(device)).is_some_and(|(own, above)| own != above)
}

fn fit(limits: Limits, descriptors: u64) -> Limits {
    let possible = descriptors.saturating_sub(DESCRIPTORS_OTHER) / DESCRIPTORS_PER_CONNECTION;
    let possible = usize::try_from(possible).unwrap_or(usize::MAX).max(1);
    if limits.connections_max <= possible {
        return limits;
    }
    warn!(
        "only {possible} connections instead of limits.connections_max = {}: the limit of open files \
         is {descriptors}; raise it (ulimit -n, LimitNOFILE=)",
        limits.connections_max
    );
    Limits { connections_max: possible, ..limits }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().mode() & 0o7777
    }

    fn public() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o1777)).unwrap();
        dir
    }

    #[test]
    fn directories_have_their_modes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        directory(&path, "--runtime-dir", 0o755).unwrap();
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o755, 0o755));
        directory(&path, "--runtime-dir", 0o755).unwrap();

        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        let error = directory(&file, "--state-dir", 0o700).unwrap_err();
        assert!(error.to_string().ends_with("choose another with --state-dir"), "{error}");
    }

    #[test]
    fn where_everybody_writes_it_must_be_our_own() {
        let dir = public();
        let path = dir.path().join("tenured-7");
        directory(&path, "--runtime-dir", 0o755).unwrap();
        assert_eq!(mode(&path), 0o700);
        directory(&path, "--runtime-dir", 0o755).unwrap();

        let refused = |path: &Path, expected: &str| {
            let error = directory(path, "--runtime-dir", 0o755).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        fs::set_permissions(&path, fs::Permissions::from_mode(0o770)).unwrap();
        refused(&path, "others may write to it (mode 770)");
        let link = dir.path().join("link");
        symlink(&path, &link).unwrap();
        refused(&link, "is a symbolic link");
        if nix::unistd::geteuid().is_root() {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
            chown(&path, Some(65_534), None).unwrap();
            refused(&path, "belongs to uid 65534, not 0");
        }
    }

    #[test]
    fn what_is_mounted_where_everybody_writes_is_as_it_is() {
        assert!(is_mounted(Path::new("/proc")));
        assert!(!is_mounted(Path::new("/proc/self")) && !is_mounted(Path::new("/no such")));
        assert!(!is_mounted(Path::new("/")), "nothing is above it");
    }

    #[test]
    fn connections_fit_the_descriptors() {
        assert_eq!(fit(Limits::default(), 1_000_000), Limits::default());
        let fitted = fit(Limits::default(), 1024);
        assert_eq!(fitted, Limits { connections_max: 448, ..Limits::default() });
    }
}
