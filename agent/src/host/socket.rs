//! The API's socket file: one agent per path, and no moment in which a stranger can connect. Or the
//! socket that the service manager made.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr};

/// The group whose members may use the agent of a whole host.
const GROUP: &str = "tenured";
/// A name for the socket until it is ready; shorter than any sensible name.
const UNREADY: &str = ".s";

#[cfg(target_os = "linux")]
const PATH_BYTES_MAX: usize = 107;
#[cfg(not(target_os = "linux"))]
const PATH_BYTES_MAX: usize = 103;

/// Whom the agent serves.
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
        with(*.pid), .path.display(), kill(*.pid)
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
        /// What was tried.
        what: &'static str,
        /// With what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

fn with(pid: Option<u32>) -> String {
    pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default()
}

fn kill(pid: Option<u32>) -> String {
    pid.map(|pid| format!(" (kill {pid})")).unwrap_or_default()
}

/// The right to a socket's path. The file stays when the agent ends: if it were removed, one agent
/// could lock the old file while another makes a new one.
#[derive(Debug)]
struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing alone would leave the lock to a child that was forked and has not exec'd yet.
        let _ = self.0.unlock();
    }
}

/// A bound socket's place in the file system, and the right to it.
#[derive(Debug)]
pub struct Place {
    path: PathBuf,
    /// Whether the file is the service manager's, which listens there when no agent does.
    is_handed: bool,
    /// Held for life.
    _lock: Option<Lock>,
}

impl Place {
    /// Where clients connect.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the socket, so that clients see at once that nobody serves it; but not the service
    /// manager's. Without this call the socket stays for the next agent to take over.
    pub fn remove(self) {
        if self.is_handed {
            return;
        }
        // A socket that cannot be removed is replaced by the next agent.
        let _ = fs::remove_file(&self.path);
    }
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
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(BindError::NoFile(path.to_owned()));
    };
    if path.as_os_str().len().max(directory.as_os_str().len() + 1 + UNREADY.len()) > PATH_BYTES_MAX
    {
        return Err(BindError::TooLong(path.to_owned()));
    }
    if !directory.as_os_str().is_empty() {
        create_directory(directory, 0o755).map_err(fail("create directory", directory))?;
    }

    let lock = lock(&beside(path), path)?;
    match fs::symlink_metadata(path) {
        Ok(there) if !there.file_type().is_socket() => {
            return Err(BindError::NotASocket(path.to_owned()));
        }
        Ok(_) => {
            if let Ok(other) = UnixStream::connect(path) {
                let pid = listener_pid(&other);
                return Err(BindError::Taken { path: path.to_owned(), pid });
            }
        }
        Err(_) => {}
    }

    // Not named after us alone: two sockets may share a directory.
    let mut unready = std::ffi::OsString::from(UNREADY);
    if path.as_os_str().len() + UNREADY.len() <= PATH_BYTES_MAX {
        unready.push(name);
    }
    let unready = path.with_file_name(unready);
    let listener = listen(&unready, audience).map_err(fail("bind socket", path))?;
    fs::rename(&unready, path).map_err(fail("bind socket", path))?;
    Ok((listener, Place { path: path.to_owned(), is_handed: false, _lock: Some(lock) }))
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
    let lock = match lock(&beside(&path), &path) {
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
    Ok((listener, Place { path, is_handed: true, _lock: lock }))
}

/// Where a listening stream socket can be connected to; `None` for anything else.
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

/// The lock of a socket.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".lock");
    path.with_file_name(name)
}

/// Creates a directory that is missing, with its parents, in that mode whatever the umask.
///
/// # Errors
///
/// Those of the system; also when something other than a directory is there.
pub fn create_directory(path: &Path, mode: u32) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        create_directory(parent, 0o755)?;
    }
    match DirBuilder::new().mode(mode).create(path) {
        Ok(()) => fs::set_permissions(path, Permissions::from_mode(mode)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Err(error) => Err(error),
    }
}

/// Locked by us, with our pid in it.
fn lock(path: &Path, socket: &Path) -> Result<Lock, BindError> {
    let fail = |source| BindError::System { what: "lock", path: path.to_owned(), source };
    // 0600, because whoever may read a file may lock it, and keep the agent from starting.
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)
        .map_err(fail)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(fs::TryLockError::WouldBlock) => {
            let mut pid = String::new();
            let pid = file.read_to_string(&mut pid).ok().and_then(|_| pid.trim().parse().ok());
            return Err(BindError::Taken { path: socket.to_owned(), pid });
        }
        Err(fs::TryLockError::Error(error)) => return Err(fail(error)),
    }
    let mut lock = Lock(file);
    let written = lock.0.set_len(0).and_then(|()| writeln!(lock.0, "{}", std::process::id()));
    written.map_err(fail)?;
    Ok(lock)
}

fn listen(path: &Path, audience: Audience) -> io::Result<UnixListener> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let socket =
        nix::sys::socket::socket(AddressFamily::Unix, SockType::Stream, SockFlag::empty(), None)?;
    // Not an argument of socket(2), because macOS has no such flag there.
    nix::fcntl::fcntl(&socket, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::FD_CLOEXEC))?;
    nix::sys::socket::bind(socket.as_raw_fd(), &UnixAddr::new(path.as_os_str().as_bytes())?)?;
    // Nobody can connect before listen, so its rights are right from the first moment.
    let mode = match audience {
        Audience::Host => {
            if nix::unistd::geteuid().is_root()
                && let Some(group) = nix::unistd::Group::from_name(GROUP)?
            {
                nix::unistd::chown(path, None, Some(group.gid))?;
            }
            0o660
        }
        Audience::User => 0o600,
    };
    fs::set_permissions(path, Permissions::from_mode(mode))?;
    nix::sys::socket::listen(&socket, Backlog::MAXCONN)?;
    let listener = UnixListener::from(socket);
    listener.set_nonblocking(true)?;
    Ok(listener)
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
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o7777
    }

    /// Children that other tests fork keep a closed socket alive until they exec.
    #[expect(clippy::disallowed_methods, reason = "only for how long the test is patient")]
    fn until_refused(path: &Path) {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while UnixStream::connect(path).is_ok() {
            assert!(std::time::Instant::now() < deadline, "{} still accepts", path.display());
            std::thread::yield_now();
        }
    }

    #[test]
    fn binds_with_the_right_modes_and_removes_itself() {
        let dir = tempfile::tempdir().unwrap();
        for (audience, expected) in [(Audience::Host, 0o660), (Audience::User, 0o600)] {
            let path = dir.path().join("made/on demand/api.sock");
            let (_listener, place) = bind(&path, audience).unwrap();
            assert_eq!(mode(&path), expected);
            assert_eq!(mode(path.parent().unwrap()), 0o755);
            UnixStream::connect(&path).unwrap();
            let lock = path.with_file_name("api.sock.lock");
            assert_eq!(mode(&lock), 0o600);
            assert_eq!(fs::read_to_string(lock).unwrap().trim(), std::process::id().to_string());
            place.remove();
            assert!(!path.exists());
            assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "only the lock");
        }
    }

    #[test]
    fn a_live_agent_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("api.sock");
        let (listener, place) = bind(&path, Audience::User).unwrap();
        let me = std::process::id();
        let taken = bind(&path, Audience::User).unwrap_err();
        assert!(matches!(taken, BindError::Taken { pid: Some(pid), .. } if pid == me), "{taken}");
        assert_eq!(
            taken.to_string(),
            format!(
                "another agent (pid {me}) serves {}; stop it (kill {me}), or choose another path with --socket",
                path.display()
            )
        );

        // Also when it serves without our lock.
        drop(place);
        let taken = bind(&path, Audience::User).unwrap_err();
        assert!(matches!(taken, BindError::Taken { pid: Some(pid), .. } if pid == me), "{taken}");

        // A dead one is replaced.
        drop(listener);
        until_refused(&path);
        let (_listener, _place) = bind(&path, Audience::User).unwrap();
        UnixStream::connect(&path).unwrap();
    }

    #[test]
    fn removes_nothing_that_is_not_a_socket() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("precious");
        fs::write(&path, "data").unwrap();
        assert!(matches!(bind(&path, Audience::User), Err(BindError::NotASocket(_))));
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(matches!(bind(&link, Audience::User), Err(BindError::NotASocket(_))));
        assert_eq!(fs::read_to_string(&path).unwrap(), "data");

        // Nor is a lock file followed elsewhere.
        let socket = dir.path().join("api.sock");
        std::os::unix::fs::symlink(&path, dir.path().join("api.sock.lock")).unwrap();
        assert!(matches!(bind(&socket, Audience::User), Err(BindError::System { .. })));
        assert_eq!(fs::read_to_string(&path).unwrap(), "data");
    }

    #[test]
    fn says_what_is_wrong_with_a_path() {
        let long = Path::new("/tmp").join("x".repeat(PATH_BYTES_MAX));
        let error = bind(&long, Audience::User).unwrap_err();
        assert!(matches!(error, BindError::TooLong(_)));
        assert!(error.to_string().contains("has 112 bytes, at most 107"), "{error}");
        assert!(matches!(bind(Path::new("/"), Audience::User), Err(BindError::NoFile(_))));

        let dir = tempfile::tempdir().unwrap();
        let exact = PATH_BYTES_MAX - dir.path().as_os_str().len() - 1;
        let path = dir.path().join("y".repeat(exact));
        bind(&path, Audience::User).unwrap();
        until_refused(&path);
        assert!(path.exists(), "left for the next agent");
    }

    #[test]
    fn a_socket_of_the_service_manager_stays_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("api.sock");
        let handed = UnixListener::bind(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let before = fs::metadata(&path).unwrap();
        let early = UnixStream::connect(&path).unwrap();

        let copy = || OwnedFd::from(handed.try_clone().unwrap());
        let (listener, place) = adopt(copy(), Path::new("/elsewhere/api.sock")).unwrap();
        assert_eq!(place.path(), path);
        listener.accept().unwrap();
        assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(early);

        // One agent a path, whoever made the socket.
        assert!(matches!(adopt(copy(), &path), Err(BindError::Taken { pid: Some(_), .. })));
        assert!(matches!(bind(&path, Audience::User), Err(BindError::Taken { pid: Some(_), .. })));

        drop(listener);
        place.remove();
        let after = fs::metadata(&path).unwrap();
        assert_eq!((after.ino(), after.mode()), (before.ino(), before.mode()));
        UnixStream::connect(&path).unwrap();
        let (_listener, _place) = adopt(copy(), &path).unwrap();
    }

    #[test]
    fn only_a_listening_stream_socket_with_a_path_is_adopted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("api.sock");
        let refused = |descriptor: OwnedFd| {
            let error = adopt(descriptor, &path).unwrap_err();
            assert!(matches!(error, BindError::NotAListener), "{error}");
        };
        refused(File::open("/dev/null").unwrap().into());
        refused(UnixStream::pair().unwrap().0.into());
        refused(std::net::TcpListener::bind("127.0.0.1:0").unwrap().into());
        let datagrams = dir.path().join("datagrams");
        refused(std::os::unix::net::UnixDatagram::bind(datagrams).unwrap().into());
        let _listener = UnixListener::bind(&path).unwrap();
        refused(UnixStream::connect(&path).unwrap().into());
    }
}
