//! Directories, and the files in them, opened relative to a descriptor of the directory and never
//! through a link.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File, Metadata, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::dir::Dir;
use nix::fcntl::{OFlag, openat, renameat};
use nix::sys::stat::{Mode, mkdirat};
use nix::unistd::{UnlinkatFlags, geteuid, unlinkat};

const GROUP_OR_OTHERS_WRITE: u32 = 0o022;
const OTHERS_WRITE: u32 = 0o002;
/// Users who may write to such a directory remove and rename only what is their own.
const STICKY: u32 = 0o1000;

/// Why a directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// The system refused.
    #[error("cannot use directory {}", .path.display())]
    System {
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Somebody else could put files into it, or take them out.
    #[error("directory {} {reason}: others could put files into it", .path.display())]
    NotOurs {
        path: PathBuf,
        /// The rule that it breaks.
        reason: String,
    },
}

/// An open directory. Files in it are named by one path component.
///
/// Invariant: no name is followed through a link, and a file is used only if it is a regular one
/// of the agent's own user with no other name.
#[derive(Debug, Clone)]
pub struct Directory(Arc<Open>);

#[derive(Debug)]
struct Open {
    descriptor: OwnedFd,
    path: PathBuf,
    /// The mode in which it is made, again if need be.
    mode: u32,
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.descriptor.as_fd()
    }
}

impl Directory {
    /// Opens a directory that nobody but the agent's user and root can write to, and makes it, with
    /// its parents, if it is missing.
    ///
    /// In a place where everybody may write it must be the agent's own, and is made for the agent
    /// alone. A file system that is mounted there is taken as it is: the volume of a container may
    /// be shared on purpose.
    ///
    /// # Errors
    ///
    /// See [`DirectoryError`].
    pub fn private(path: &Path, mode: u32) -> Result<Directory, DirectoryError> {
        let fail = |source| DirectoryError::System { path: path.to_owned(), source };
        let refuse = |reason: String| DirectoryError::NotOurs { path: path.to_owned(), reason };
        let is_public =
            |path: &Path| fs::metadata(path).is_ok_and(|it| it.mode() & OTHERS_WRITE != 0);
        let in_public = path.parent().is_some_and(is_public);
        create(path, if in_public { 0o700 } else { mode }).map_err(fail)?;
        let named = fs::symlink_metadata(path).map_err(fail)?;
        let me = geteuid().as_raw();
        if named.is_symlink() && (in_public || (named.uid() != 0 && named.uid() != me)) {
            return Err(refuse("is a symbolic link".to_owned()));
        }
        let descriptor = open(path).map_err(fail)?;
        let directory = Directory(Arc::new(Open { descriptor, path: path.to_owned(), mode }));
        if !is_mounted(path) {
            let found = directory.metadata().map_err(fail)?;
            check_directory(&found, !in_public).map_err(refuse)?;
        }
        Ok(directory)
    }

    /// True if the path still leads to this directory: somebody may have removed the directory, or put another one in its
    /// place. True also if the system does not tell.
    pub fn is_in_place(&self) -> bool {
        let named = match fs::metadata(&self.0.path) {
            Ok(named) => named,
            Err(error) => {
                return !matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                );
            }
        };
        let Ok(own) = self.metadata() else { return true };
        (named.dev(), named.ino()) == (own.dev(), own.ino())
    }

    /// Opens what is at the path now, as [`Directory::private`] does: another directory, if this one was removed. The parent must
    /// be there, and nobody but this user and root may be able to exchange what is in the parent: at a start an administrator
    /// sees what happens, and now nobody does.
    ///
    /// # Errors
    ///
    /// See [`DirectoryError`].
    pub fn again(&self) -> Result<Directory, DirectoryError> {
        let parent = self.0.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        let fail = |source| DirectoryError::System { path: parent.to_owned(), source };
        let found = fs::metadata(parent).map_err(fail)?;
        let is_sticky = found.mode() & STICKY != 0;
        let owned = check_owner(&found, true);
        let safe = if is_sticky { owned } else { check_directory(&found, true) };
        safe.map_err(|reason| DirectoryError::NotOurs { path: parent.to_owned(), reason })?;
        Directory::private(&self.0.path, self.0.mode)
    }

    /// Has everybody who uses this directory use another one from now on.
    ///
    /// # Errors
    ///
    /// Those of the system; it is as before then.
    pub fn replace_by(&self, other: &Directory) -> io::Result<()> {
        let (from, to) = (other.as_fd().as_raw_fd(), self.as_fd().as_raw_fd());
        // SAFETY: both descriptors are open and stay so, each with its owner. The kernel has the second mean another directory in one
        // step; whoever uses it meanwhile means the one or the other.
        #[cfg(target_os = "linux")]
        let replaced = unsafe { libc::dup3(from, to, libc::O_CLOEXEC) };
        // SAFETY: as above, and the flag is set on a descriptor that is open.
        #[cfg(not(target_os = "linux"))]
        let replaced = unsafe {
            match libc::dup2(from, to) {
                -1 => -1,
                to => libc::fcntl(to, libc::F_SETFD, libc::FD_CLOEXEC),
            }
        };
        nix::errno::Errno::result(replaced)?;
        Ok(())
    }

    /// Opens a directory whoever may write to it.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn shared(path: &Path) -> io::Result<Directory> {
        let descriptor = open(path)?;
        Ok(Directory(Arc::new(Open { descriptor, path: path.to_owned(), mode: 0 })))
    }

    /// Opens a directory of the agent's own within this one, and makes it if it is missing.
    ///
    /// # Errors
    ///
    /// See [`DirectoryError`].
    pub fn child(&self, name: &str, mode: u32) -> Result<Directory, DirectoryError> {
        let path = self.join(name);
        let fail = |source: io::Error| DirectoryError::System { path: path.clone(), source };
        let is_new = match mkdirat(self, name, Mode::from_bits_truncate(mode as libc::mode_t)) {
            Ok(()) => true,
            Err(nix::Error::EEXIST) => false,
            Err(error) => return Err(fail(error.into())),
        };
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let descriptor = openat(self, name, flags, Mode::empty()).map_err(|error| match error {
            nix::Error::ENOTDIR | nix::Error::ELOOP => DirectoryError::NotOurs {
                path: path.clone(),
                reason: "is a link or a file".to_owned(),
            },
            error => fail(error.into()),
        })?;
        let child = Directory(Arc::new(Open { descriptor, path: path.clone(), mode }));
        let found = child.metadata().map_err(fail)?;
        check_directory(&found, false)
            .map_err(|reason| DirectoryError::NotOurs { path: path.clone(), reason })?;
        if is_new && mode & 0o077 != 0 {
            // The mode, independent of the umask. Only where it differs: it would end the inheritance of a group.
            child.set_mode(mode).map_err(fail)?;
        }
        Ok(child)
    }

    /// Device and inode of a directory in this one, if nobody but this user can write to it: [`Directory::child`] opens no
    /// other.
    pub fn identity_of_child(&self, name: &str) -> Option<(u64, u64)> {
        let found = self.join(name).symlink_metadata().ok()?;
        let is_ours = found.is_dir() && check_directory(&found, false).is_ok();
        is_ours.then(|| (found.dev(), found.ino()))
    }

    /// Its path, for messages and for other programs.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// The path of something in it, for messages and for other programs.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.path.join(name)
    }

    /// True if what is written to it may have to wait for a disk; `None` where the system does not tell.
    #[cfg(target_os = "linux")]
    pub fn is_on_disk(&self) -> Option<bool> {
        use nix::sys::statfs::{FsType, TMPFS_MAGIC, fstatfs};
        const RAMFS: FsType = FsType(0x8584_58f6);
        let of = fstatfs(self.as_fd()).ok()?.filesystem_type();
        Some(of != TMPFS_MAGIC && of != RAMFS)
    }

    /// The same for other systems, which have no directories in memory.
    #[cfg(not(target_os = "linux"))]
    pub fn is_on_disk(&self) -> Option<bool> {
        None
    }

    /// The metadata of the directory itself.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn metadata(&self) -> io::Result<Metadata> {
        File::from(self.0.descriptor.try_clone()?).metadata()
    }

    fn set_mode(&self, mode: u32) -> io::Result<()> {
        let file = File::from(self.0.descriptor.try_clone()?);
        file.set_permissions(Permissions::from_mode(mode))
    }

    /// Opens a file to read.
    ///
    /// # Errors
    ///
    /// `NotFound`; also when it is no file of the agent's own, or has more than `bytes_max`.
    pub fn read(&self, name: impl AsRef<OsStr>, bytes_max: u64) -> io::Result<File> {
        self.open(name.as_ref(), OFlag::O_RDONLY, 0, bytes_max)
    }

    /// Opens a file to read and write, and makes it with mode 0600 if it is missing.
    ///
    /// # Errors
    ///
    /// When it is no file of the agent's own, or has more than `bytes_max`.
    pub fn write(&self, name: impl AsRef<OsStr>, bytes_max: u64) -> io::Result<File> {
        self.open(name.as_ref(), OFlag::O_RDWR | OFlag::O_CREAT, 0o600, bytes_max)
    }

    /// Makes a file to read and write.
    ///
    /// # Errors
    ///
    /// `AlreadyExists`, and those of the system.
    pub fn create(&self, name: impl AsRef<OsStr>, mode: u32) -> io::Result<File> {
        let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_EXCL;
        self.open(name.as_ref(), flags, mode, u64::MAX)
    }

    fn open(&self, name: &OsStr, flags: OFlag, mode: u32, bytes_max: u64) -> io::Result<File> {
        one_component(name)?;
        // Nonblocking, because a named pipe would be waited for.
        let flags = flags | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let mode = Mode::from_bits_truncate(mode as libc::mode_t);
        let opened = openat(self, name, flags, mode).map_err(|error| match error {
            nix::Error::ELOOP => refusal("it is a symbolic link; remove it"),
            error => error.into(),
        })?;
        let file = File::from(opened);
        check_file(&file.metadata()?, bytes_max)?;
        Ok(file)
    }

    /// Removes a file, or a link to one. Whether there was one.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn remove(&self, name: impl AsRef<OsStr>) -> io::Result<bool> {
        one_component(name.as_ref())?;
        match unlinkat(self, name.as_ref(), UnlinkatFlags::NoRemoveDir) {
            Ok(()) => Ok(true),
            Err(nix::Error::ENOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Gives a file another name, in place of what has that name.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn rename(&self, from: impl AsRef<OsStr>, to: impl AsRef<OsStr>) -> io::Result<()> {
        one_component(from.as_ref())?;
        one_component(to.as_ref())?;
        Ok(renameat(self, from.as_ref(), self, to.as_ref())?)
    }

    /// The names of everything in it.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn names(&self) -> io::Result<Vec<OsString>> {
        // A descriptor of its own, because copies of one share the directory's position.
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let mut open = Dir::openat(self, ".", flags, Mode::empty())?;
        let mut names = Vec::new();
        for entry in open.iter() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(OsStr::from_bytes(name).to_owned());
            }
        }
        Ok(names)
    }
}

fn open(path: &Path) -> io::Result<OwnedFd> {
    // A relative path of one component has an empty parent.
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    Ok(nix::fcntl::open(path, flags, Mode::empty())?)
}

fn one_component(name: &OsStr) -> io::Result<()> {
    if name.is_empty() || name == "." || name == ".." || name.as_bytes().contains(&b'/') {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not the name of a file"));
    }
    Ok(())
}

/// Checks that nobody but this user, and root if it may, can write to a directory; the error is the
/// rule that it breaks.
fn check_directory(found: &Metadata, may_be_root_s: bool) -> Result<(), String> {
    check_owner(found, may_be_root_s)?;
    if found.mode() & GROUP_OR_OTHERS_WRITE != 0 {
        let mode = found.mode() & 0o7777;
        return Err(format!("is writable for its group or for everybody (mode {mode:o})"));
    }
    Ok(())
}

fn check_owner(found: &Metadata, may_be_root_s: bool) -> Result<(), String> {
    let me = geteuid().as_raw();
    match found.uid() {
        owner if owner == me || (may_be_root_s && owner == 0) => Ok(()),
        owner => Err(format!("belongs to uid {owner}, not {me}")),
    }
}

/// Checks that a file is a regular one of the agent's own user with no other name and of plausible
/// size.
fn check_file(found: &Metadata, bytes_max: u64) -> io::Result<()> {
    let me = geteuid().as_raw();
    if !found.is_file() {
        return Err(refusal("it is not a regular file; remove it"));
    }
    if found.uid() != me {
        let owner = found.uid();
        return Err(refusal(format!("it belongs to uid {owner}, not {me}; remove it")));
    }
    if found.nlink() != 1 {
        return Err(refusal("it has another name, too (a hard link); remove it"));
    }
    if found.len() > bytes_max {
        let bytes = found.len();
        return Err(refusal(format!(
            "it has {bytes} bytes, and the agent never writes more than {bytes_max}; remove it"
        )));
    }
    Ok(())
}

fn refusal(reason: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, reason.into())
}

/// Makes a directory that is missing, with its parents, in that mode whatever the umask.
///
/// # Errors
///
/// Those of the system; also when something other than a directory is there.
pub fn create(path: &Path, mode: u32) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        create(parent, 0o755)?;
    }
    match DirBuilder::new().mode(mode).create(path) {
        Ok(()) => Directory::shared(path)?.set_mode(mode),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Err(error) => Err(error),
    }
}

/// True if another file system than that of its directory begins there.
fn is_mounted(path: &Path) -> bool {
    let device = |path| fs::symlink_metadata(path).map(|found: Metadata| found.dev()).ok();
    device(path).zip(path.parent().and_then(device)).is_some_and(|(own, above)| own != above)
}

#[cfg(test)]
mod tests;
