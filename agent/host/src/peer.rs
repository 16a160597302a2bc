//! The peer of a connection, by the kernel's word.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use nix::sys::socket::{getsockopt, sockopt};
use tenure_core::model::{Peer, Process, Quota};
use tenure_core::time::Boottime;
use tokio::net::UnixStream;

use super::clock;
use super::process;

/// The fate of the bytes that were written to a peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// The peer has read them all.
    Read,
    /// Some are still there to be read.
    Unread,
    /// The peer has closed its end without reading them all.
    Dropped,
    /// This system does not tell.
    Unknown,
}

/// Asks the kernel what has become of what was written.
///
/// The peer's end of a Unix socket that is closed with something unread leaves an error on the
/// other end. A read or a write there takes that error away: who saw one need not ask.
pub fn written_to(stream: &UnixStream) -> Written {
    let unread = unread_bytes(stream);
    // After the bytes: a peer that closes first leaves the error, and then throws them away.
    let error = getsockopt(stream, sockopt::SocketError).unwrap_or(libc::ECONNRESET);
    match unread {
        _ if error != 0 => Written::Dropped,
        Some(0) => Written::Read,
        Some(_) => Written::Unread,
        None => Written::Unknown,
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn unread_bytes(stream: &UnixStream) -> Option<u32> {
    let mut unread: libc::c_int = 0;
    // SAFETY: the request writes one int through the pointer, which lives until the call returns.
    // JUSTIFICATION: nothing in nix or std wraps it.
    let done = unsafe { libc::ioctl(stream.as_raw_fd(), libc::TIOCOUTQ, &raw mut unread) };
    if done == 0 { u32::try_from(unread).ok() } else { None }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn unread_bytes(_: &UnixStream) -> Option<u32> {
    None
}

/// The peer, and the kernel's handle on the calling process if there is one.
#[derive(Debug, Clone)]
pub struct Caller {
    /// The peer as the keeper knows it.
    pub peer: Peer,
    /// A pidfd; readable when the process has ended.
    pub pidfd: Option<Arc<OwnedFd>>,
}

/// The number of users that have none here (`/proc/sys/kernel/overflowuid`).
const NOBODY: u32 = 65_534;

/// Why a session cannot be tied to a process that its caller names.
#[derive(Debug, thiserror::Error)]
pub enum TieError {
    /// The caller sees other numbers than the agent.
    #[error("the agent is in another PID namespace, where processes have other numbers")]
    OtherNamespace,
    /// It cannot be told what numbers the caller sees.
    #[error("/proc does not show the agent your process (hidepid=, ProtectProc=)")]
    Hidden,
    /// There is none of that number any more.
    #[error("no such process runs")]
    Ended,
    /// It is another user's.
    #[error("that process is another user's")]
    Foreign,
    /// The system refused.
    #[error("it cannot be watched: {0}")]
    System(#[from] io::Error),
}

/// The user and process that connected.
///
/// It names the process that called connect(2); a child that inherited the connection goes by the
/// same identity. It costs no descriptor: a handle on the process is asked for when a session may
/// be tied to it, and the kernel remembers until then which process it was.
#[derive(Debug)]
pub struct Identity {
    uid: u32,
    gid: u32,
    /// `None` for a process of another PID namespace, which the kernel calls 0.
    pid: Option<u32>,
    accepted_at: Boottime,
}

impl Identity {
    /// Asks the kernel; one system call.
    ///
    /// # Errors
    ///
    /// When the kernel does not name the peer's user. Without that nothing can be allowed.
    pub fn of(stream: &UnixStream) -> io::Result<Identity> {
        let credentials = stream.peer_cred()?;
        let pid = credentials.pid().and_then(|pid| u32::try_from(pid).ok()).filter(|&pid| pid != 0);
        Ok(Identity {
            uid: credentials.uid(),
            gid: credentials.gid(),
            pid,
            accepted_at: clock::now(),
        })
    }

    /// The user.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// The user's group.
    pub fn gid(&self) -> u32 {
        self.gid
    }

    /// The process's number, where it can be seen from here.
    pub fn pid(&self) -> Option<u32> {
        self.pid
    }

    /// The caller of anything but a registration: without its process.
    pub fn caller(&self) -> Caller {
        self.with(None, None)
    }

    /// The caller of a registration, with the process that its session may be tied to, unless that
    /// has ended. `stream` is the connection that this is the identity of.
    pub fn registrant(&self, stream: &UnixStream) -> Caller {
        let pidfd = process::of_peer(stream, self.pid, self.uid, self.accepted_at);
        let start_ticks = self.pid.and_then(process::start_ticks);
        // If the process still runs now, the number was its own a moment ago.
        let pidfd = pidfd.filter(|pidfd| !process::has_exited(pidfd)).map(Arc::new);
        let process = pidfd.as_ref().and(self.pid).zip(start_ticks);
        self.with(process.map(|(pid, start_ticks)| Process { pid, start_ticks }), pidfd)
    }

    /// The caller of a registration whose session is to be tied to another process.
    ///
    /// # Errors
    ///
    /// See [`TieError`].
    pub fn registrant_for(&self, pid: u32) -> Result<Caller, TieError> {
        // The caller's numbers are others in a namespace of its own.
        match self.pid.map(process::has_our_numbers) {
            Some(Some(true)) => {}
            None | Some(Some(false)) => return Err(TieError::OtherNamespace),
            Some(None) => return Err(TieError::Hidden),
        }
        let Some((pidfd, owner, start_ticks)) = process::named(pid)? else {
            return Err(TieError::Ended);
        };
        // All users without a number in this user namespace have one together.
        if self.uid != 0 && (owner != self.uid || owner == NOBODY) {
            return Err(TieError::Foreign);
        }
        Ok(self.with(Some(Process { pid, start_ticks }), Some(Arc::new(pidfd))))
    }

    fn with(&self, process: Option<Process>, pidfd: Option<Arc<OwnedFd>>) -> Caller {
        let peer = Peer {
            uid: self.uid,
            gid: self.gid,
            process,
            watchable: pidfd.is_some(),
            quota: Quota::default(),
        };
        Caller { peer, pidfd }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn names_this_very_process() {
        let (one, _other) = UnixStream::pair().unwrap();
        let identity = Identity::of(&one).unwrap();
        assert_eq!(identity.uid(), nix::unistd::geteuid().as_raw());
        assert_eq!(identity.gid(), nix::unistd::getegid().as_raw());
        assert_eq!(identity.pid(), Some(std::process::id()));

        assert_eq!(identity.caller().peer.process, None, "not asked for");
        let registrant = identity.registrant(&one);
        #[cfg(target_os = "linux")]
        {
            let process = registrant.peer.process.unwrap();
            assert_eq!(process.pid, std::process::id());
            assert_eq!(Some(process.start_ticks), process::start_ticks(process.pid));
            assert!(registrant.peer.watchable && !process::has_exited(&registrant.pidfd.unwrap()));
        }
        #[cfg(not(target_os = "linux"))]
        assert!(!registrant.peer.watchable);
    }

    #[cfg(target_os = "linux")]
    mod gone {
        use std::io::{Read, Write};
        use std::os::unix::net;
        use std::process::Command;

        use nix::sys::wait::{Id, WaitPidFlag, waitid};
        use nix::unistd::Pid;
        use tokio::net::UnixListener;

        use super::*;

        const SOCKET: &str = "TENURED_TEST_SOCKET";

        /// Run by the other test as a process of its own: connects, and ends when it is told.
        #[test]
        fn connects() {
            let Some(path) = std::env::var_os(SOCKET) else { return };
            let mut stream = net::UnixStream::connect(path).unwrap();
            stream.read_exact(&mut [0]).unwrap();
        }

        #[tokio::test]
        async fn a_process_that_has_ended_cannot_be_watched() {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("socket");
            let listener = UnixListener::bind(&path).unwrap();
            #[expect(clippy::zombie_processes, reason = "waited for at the end")]
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "peer::tests::gone::connects"])
                .env(SOCKET, &path)
                .stdout(std::process::Stdio::null())
                .spawn()
                .unwrap();
            let accepted =
                tokio::time::timeout(std::time::Duration::from_secs(20), listener.accept());
            let (stream, _) = accepted.await.unwrap().unwrap();
            let identity = Identity::of(&stream).unwrap();
            let alive = identity.registrant(&stream);
            assert_eq!(alive.peer.process.unwrap().pid, child.id());
            assert!(alive.peer.watchable);

            let stream = stream.into_std().unwrap();
            (&stream).write_all(b"x").unwrap();
            let stream = UnixStream::from_std(stream).unwrap();
            let pid = Pid::from_raw(child.id().try_into().unwrap());
            waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT).unwrap();
            for reaped in [false, true] {
                if reaped {
                    child.wait().unwrap();
                }
                let ended = identity.registrant(&stream);
                assert!(ended.pidfd.is_none() && !ended.peer.watchable, "reaped: {reaped}");
                assert_eq!(ended.peer.process, None, "reaped: {reaped}");
                assert_eq!(ended.peer.uid, identity.uid());
            }
        }
    }
}
