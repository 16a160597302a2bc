//! The API's socket file: one agent per path, and no moment in which a stranger can connect. Or the
//! socket that the service manager made.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use nix::fcntl::{AtFlags, renameat};
use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr};
use nix::sys::stat::{FchmodatFlags, Mode, SFlag, fchmodat, fstatat};
use nix::unistd::{UnlinkatFlags, fchownat, unlinkat};
use uuid::Uuid;

use super::directory::{self, Directory};
use super::lock::{self, Lock, LockError};

/// The group whose members may use the agent of a whole host.
const GROUP: &str = "tenured";
/// The socket's name until it is ready, in a directory of its own.
const UNREADY: &str = "s";

#[cfg(target_os = "linux")]
const PATH_BYTES_MAX: usize = 107;
#[cfg(not(target_os = "linux"))]
const PATH_BYTES_MAX: usize = 103;

/// The users that the agent serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Audience {
    /// The whole host, through the group `tenured`: mode 0660.
    Host,
    /// Its own user: mode 0600.
    User,
}

/// Why the socket could not be bound.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// sun_path is short.
    #[error(
        "socket path {} has {} bytes, at most {PATH_BYTES_MAX} are possible; choose a shorter one with --socket",
        .0.display(), .0.as_os_str().len()
    )]
    TooLong(PathBuf),
    /// Not a path of a file in a directory.
    #[error("socket path {} names no file; give one such as /run/tenured/api.sock", .0.display())]
    NoFile(PathBuf),
    /// Another agent has it.
    #[error(
        "another agent{} serves {}; stop it{}, or choose another path with --socket",
        lock::with(*.pid), .path.display(), lock::kill(*.pid)
    )]
    Taken {
        /// The socket.
        path: PathBuf,
        /// The other agent, where it can be found out.
        pid: Option<u32>,
    },
    /// Not what the API can be served on.
    #[error(
        "the descriptor \"api\" that the service manager handed over is not a listening Unix stream \
         socket with a path; let the socket unit have ListenStream=/run/tenured/api.sock, and Accept=no"
    )]
    NotAListener,
    /// Something else is there, and is not ours to remove.
    #[error("{} exists and is not a socket; remove it, or choose another path with --socket", .0.display())]
    NotASocket(PathBuf),
    /// The system refused.
    #[error("cannot {what} {}: check the rights of its directory, or choose another path with --socket", .path.display())]
    System {
        /// The attempted action.
        what: &'static str,
        /// With what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

/// A bound socket's place in the file system, and the right to it.
#[derive(Debug)]
pub struct Place {
    path: PathBuf,
    /// `None` if the file is the service manager's, which listens there when no agent does.
    own: Option<Own>,
    /// Held for life.
    lock: Option<Lock>,
}

/// The file of a socket that the agent made.
#[derive(Debug)]
struct Own {
    directory: Directory,
    name: OsString,
    audience: Audience,
    identity: Identity,
}

/// Device and inode.
type Identity = (u64, u64);

impl Place {
    /// The path that clients connect to.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Tells a next agent that it is worth waiting for the end of this one.
    pub fn leave(&self) {
        if let Some(lock) = &self.lock {
            lock.leave();
        }
    }

    /// Looks whether clients still find the socket, and makes it again if its file is gone, as after
    /// somebody has cleaned up its directory.
    ///
    /// # Errors
    ///
    /// When it cannot be made again.
    pub fn look(&mut self) -> Result<Look, BindError> {
        let Some(own) = &self.own else {
            return Ok(if self.path.exists() { Look::Same } else { Look::Gone });
        };
        // By path, because the directory may be gone, too.
        match fs::symlink_metadata(&self.path) {
            Ok(found) if (found.dev(), found.ino()) == own.identity => return Ok(Look::Same),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            _ => return Ok(Look::Replaced),
        }
        let directory = open_parent(&self.path)?;
        if !self.lock.as_ref().is_some_and(|lock| is_at(lock, &directory, &own.name)) {
            self.lock = Some(take_lock(&directory, &own.name, &self.path)?);
        }
        let (name, audience) = (own.name.clone(), own.audience);
        let (listener, identity) = make(&directory, &name, audience).map_err(|source| {
            BindError::System { what: "bind socket", path: self.path.clone(), source }
        })?;
        self.own = Some(Own { directory, name, audience, identity });
        Ok(Look::Renewed(listener))
    }

    /// Removes the socket, so that clients see at once that nobody serves it; but not the service
    /// manager's, nor what somebody else has put in its place. Without this call the socket stays for
    /// the next agent to take over.
    pub fn remove(self) {
        if let Some(own) = &self.own
            && look(&own.directory, &own.name).is_ok_and(|there| there.identity == own.identity)
        {
            // A socket that cannot be removed is replaced by the next agent.
            let _ = own.directory.remove(&own.name);
        }
    }
}

/// The state of a socket's file.
#[derive(Debug)]
pub enum Look {
    /// It is there.
    Same,
    /// It was gone, and there is a new one, which is to be served in place of the old one.
    Renewed(UnixListener),
    /// It is gone, and making it is the service manager's.
    Gone,
    /// Something else is there.
    Replaced,
}

/// A file with a name.
struct There {
    identity: Identity,
    is_socket: bool,
}

/// # Errors
///
/// `NotFound`, and those of the system.
fn look(directory: &Directory, name: &OsStr) -> io::Result<There> {
    let found = fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW)?;
    let kind = SFlag::from_bits_truncate(found.st_mode & SFlag::S_IFMT.bits());
    #[allow(clippy::unnecessary_cast, reason = "a device has another type on macOS")]
    let identity = (found.st_dev as u64, found.st_ino as u64);
    Ok(There { identity, is_socket: kind == SFlag::S_IFSOCK })
}

/// Binds the socket. What a dead agent left is replaced in one step: a client that connects in the
/// meantime is refused, or served by this agent, but never finds nothing.
///
/// # Errors
///
/// See [`BindError`].
pub fn bind(path: &Path, audience: Audience) -> Result<(UnixListener, Place), BindError> {
    let fail = |what, path: &Path| {
        let path = path.to_owned();
        move |source: io::Error| BindError::System { what, path, source }
    };
    let Some(name) = path.file_name() else {
        return Err(BindError::NoFile(path.to_owned()));
    };
    if path.as_os_str().len() > PATH_BYTES_MAX {
        return Err(BindError::TooLong(path.to_owned()));
    }
    let directory = open_parent(path)?;
    let lock = take_lock(&directory, name, path)?;
    if let Ok(there) = look(&directory, name) {
        if !there.is_socket {
            return Err(BindError::NotASocket(path.to_owned()));
        }
        if let Ok(other) = UnixStream::connect(path) {
            let pid = listener_pid(&other);
            return Err(BindError::Taken { path: path.to_owned(), pid });
        }
    }
    let (listener, identity) =
        make(&directory, name, audience).map_err(fail("bind socket", path))?;
    let own = Own { directory, name: name.to_owned(), audience, identity };
    Ok((listener, Place { path: path.to_owned(), own: Some(own), lock: Some(lock) }))
}

/// The directory of a socket, made if it is missing.
fn open_parent(path: &Path) -> Result<Directory, BindError> {
    let Some(parent) = path.parent() else { return Err(BindError::NoFile(path.to_owned())) };
    let fail = |what| {
        let path = parent.to_owned();
        move |source: io::Error| BindError::System { what, path, source }
    };
    if !parent.as_os_str().is_empty() {
        directory::create(parent, 0o755).map_err(fail("create directory"))?;
    }
    Directory::shared(parent).map_err(fail("open directory"))
}

/// A new listening socket with that name, in place of what has it.
///
/// Its rights are given in a directory of the agent alone, where nobody can put a link in its place,
/// and before anybody can connect.
fn make(
    directory: &Directory,
    name: &OsStr,
    audience: Audience,
) -> io::Result<(UnixListener, Identity)> {
    let temporary = format!(".{}", Uuid::new_v4().simple());
    let made = directory.child(&temporary, 0o700).map_err(io::Error::other).and_then(|private| {
        let listener = listen(&private, audience)?;
        let identity = look(&private, OsStr::new(UNREADY))?.identity;
        renameat(&private, UNREADY, directory, name)?;
        Ok((listener, identity))
    });
    if made.is_err() {
        let _ = unlinkat(
            directory,
            Path::new(&temporary).join(UNREADY).as_path(),
            UnlinkatFlags::NoRemoveDir,
        );
    }
    // One that is left over is in nobody's way.
    let _ = unlinkat(directory, temporary.as_str(), UnlinkatFlags::RemoveDir);
    made
}

/// Takes over a socket that the service manager made: its path, owner and mode are what that gave it,
/// and it stays when the agent ends. Clients that connected before are served.
///
/// `configured` is the path that clients may expect.
///
/// # Errors
///
/// See [`BindError`].
pub fn adopt(descriptor: OwnedFd, configured: &Path) -> Result<(UnixListener, Place), BindError> {
    let path = listening_at(&descriptor).ok_or(BindError::NotAListener)?;
    let identity = |path: &Path| fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    if path != configured
        && (identity(configured).is_none() || identity(configured) != identity(&path))
    {
        tracing::warn!(
            "serving {}, which the service manager handed over, although socket = {:?}: let both \
             name the same path",
            path.display(),
            configured.display().to_string()
        );
    }
    let lock = match lock_beside(&path) {
        Ok(lock) => Some(lock),
        // The service manager takes care that there is one agent.
        Err(BindError::System { source, path, .. })
            if matches!(
                source.kind(),
                io::ErrorKind::PermissionDenied
                    | io::ErrorKind::ReadOnlyFilesystem
                    | io::ErrorKind::NotFound
            ) =>
        {
            tracing::info!(error = %source, "serving without the lock {}", path.display());
            None
        }
        Err(error) => return Err(error),
    };
    let fail = |source| BindError::System { what: "serve", path: path.clone(), source };
    // launchd's are inherited by children.
    let close_on_exec = nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::FD_CLOEXEC);
    nix::fcntl::fcntl(&descriptor, close_on_exec).map_err(|error| fail(error.into()))?;
    let listener = UnixListener::from(descriptor);
    listener.set_nonblocking(true).map_err(fail)?;
    Ok((listener, Place { path, own: None, lock }))
}

/// The path of a listening stream socket; `None` for anything else.
fn listening_at(descriptor: &OwnedFd) -> Option<PathBuf> {
    use nix::sys::socket::{getsockname, getsockopt, sockopt};
    let address: UnixAddr = getsockname(descriptor.as_raw_fd()).ok()?;
    let is_stream = getsockopt(descriptor, sockopt::SockType).ok()? == SockType::Stream;
    let is_listening = is_listening(descriptor)?;
    (is_stream && is_listening).then(|| address.path().map(Path::to_owned))?
}

#[cfg(target_os = "linux")]
fn is_listening(descriptor: &OwnedFd) -> Option<bool> {
    nix::sys::socket::getsockopt(descriptor, nix::sys::socket::sockopt::AcceptConn).ok()
}

// macOS tells that of no socket; launchd makes no others.
#[cfg(not(target_os = "linux"))]
fn is_listening(_: &OwnedFd) -> Option<bool> {
    Some(true)
}

/// The lock of a socket in whatever directory.
fn lock_beside(path: &Path) -> Result<Lock, BindError> {
    let fail = |source| BindError::System { what: "lock", path: path.to_owned(), source };
    let directory = Directory::shared(path.parent().unwrap_or(path)).map_err(fail)?;
    take_lock(&directory, path.file_name().unwrap_or_default(), path)
}

fn lock_name(socket: &OsStr) -> OsString {
    let mut name = socket.to_owned();
    name.push(".lock");
    name
}

/// True if a next agent would find that lock.
fn is_at(lock: &Lock, directory: &Directory, socket: &OsStr) -> bool {
    let there = look(directory, &lock_name(socket));
    lock.identity().is_ok_and(|own| there.is_ok_and(|there| there.identity == own))
}

/// The lock of the socket with that name.
fn take_lock(directory: &Directory, name: &OsStr, socket: &Path) -> Result<Lock, BindError> {
    let beside = lock_name(name);
    let fail = |source| BindError::System { what: "lock", path: directory.join(&beside), source };
    // 0600, because whoever may read a file may lock it, and keep the agent from starting.
    let file = directory.write(&beside, lock::BYTES_MAX).map_err(fail)?;
    Lock::take(file).map_err(|error| match error {
        LockError::Held { pid } => BindError::Taken { path: socket.to_owned(), pid },
        LockError::System(source) => fail(source),
    })
}

/// Listens at [`UNREADY`] in a directory that is the agent's alone.
fn listen(private: &Directory, audience: Audience) -> io::Result<UnixListener> {
    let socket =
        nix::sys::socket::socket(AddressFamily::Unix, SockType::Stream, SockFlag::empty(), None)?;
    // Not an argument of socket(2), because macOS has no such flag there.
    nix::fcntl::fcntl(&socket, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::FD_CLOEXEC))?;
    let address = UnixAddr::new(unready_path(private).as_os_str().as_bytes())?;
    nix::sys::socket::bind(socket.as_raw_fd(), &address)?;
    let mode = match audience {
        Audience::Host => {
            if nix::unistd::geteuid().is_root()
                && let Some(group) = nix::unistd::Group::from_name(GROUP)?
            {
                let flags = AtFlags::AT_SYMLINK_NOFOLLOW;
                fchownat(private, UNREADY, None, Some(group.gid), flags).map_err(|error| {
                    // A root without capabilities, as in a container, gets this.
                    io::Error::other(format!(
                        "it cannot be given to the group {GROUP}; be a member of it ({error})"
                    ))
                })?;
            }
            0o660
        }
        Audience::User => 0o600,
    };
    let mode = Mode::from_bits_truncate(mode);
    fchmodat(private, UNREADY, mode, FchmodatFlags::FollowSymlink)?;
    // Nobody can connect before this.
    nix::sys::socket::listen(&socket, Backlog::MAXCONN)?;
    let listener = UnixListener::from(socket);
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// A path through the descriptor, because bind(2) takes none: the directory may have been moved away.
#[cfg(target_os = "linux")]
fn unready_path(private: &Directory) -> PathBuf {
    use std::os::fd::AsFd;
    let descriptor = private.as_fd().as_raw_fd();
    PathBuf::from(format!("/proc/self/fd/{descriptor}/{UNREADY}"))
}

// A directory that was moved away shows when the rights are given.
#[cfg(not(target_os = "linux"))]
fn unready_path(private: &Directory) -> PathBuf {
    private.join(UNREADY)
}

#[cfg(target_os = "linux")]
fn listener_pid(stream: &UnixStream) -> Option<u32> {
    use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
    let pid = getsockopt(stream, PeerCredentials).ok()?.pid();
    u32::try_from(pid).ok().filter(|&pid| pid != 0)
}

#[cfg(not(target_os = "linux"))]
fn listener_pid(stream: &UnixStream) -> Option<u32> {
    use nix::sys::socket::{getsockopt, sockopt::LocalPeerPid};
    u32::try_from(getsockopt(stream, LocalPeerPid).ok()?).ok()
}

#[cfg(test)]
mod tests;
