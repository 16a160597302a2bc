//! Who is at the other end of a connection, by the kernel's word.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, OnceLock};

use tokio::net::UnixStream;

use super::process;
use crate::model::{Peer, Process, Quota};

/// Who calls, and the kernel's handle on the calling process where there is one.
#[derive(Debug, Clone)]
pub struct Caller {
    /// What the keeper knows of it.
    pub peer: Peer,
    /// A pidfd; readable when the process has ended.
    pub pidfd: Option<Arc<OwnedFd>>,
}

/// The user and process that connected.
///
/// It names the process that called connect(2); a child that inherited the connection goes by the
/// same identity.
#[derive(Debug)]
pub struct Identity {
    uid: u32,
    gid: u32,
    /// `None` for a process of another PID namespace, which the kernel calls 0.
    pid: Option<u32>,
    pidfd: Option<Arc<OwnedFd>>,
    process: OnceLock<Option<Process>>,
}

impl Identity {
    /// Asks the kernel; two system calls.
    ///
    /// # Errors
    ///
    /// When the kernel does not name the peer's user. Without that nothing can be allowed.
    pub fn of(stream: &UnixStream) -> io::Result<Identity> {
        let credentials = stream.peer_cred()?;
        let pid = credentials.pid().and_then(|pid| u32::try_from(pid).ok()).filter(|&pid| pid != 0);
        let pidfd = process::of_peer(stream, pid, credentials.uid()).map(Arc::new);
        Ok(Identity {
            uid: credentials.uid(),
            gid: credentials.gid(),
            pid,
            pidfd,
            process: OnceLock::new(),
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

    /// The caller of anything but a registration: without the start time of its process, which it
    /// takes three system calls to find out.
    pub fn caller(&self) -> Caller {
        self.with(self.process.get().copied().flatten())
    }

    /// The caller of a registration, with the process that its session may be tied to.
    pub fn registrant(&self) -> Caller {
        let process = *self.process.get_or_init(|| {
            let pid = self.pid?;
            let start_ticks = process::start_ticks(pid)?;
            // If the process still runs now, the number was its own a moment ago.
            let alive = self.pidfd.as_ref().is_none_or(|pidfd| !process::has_exited(pidfd));
            alive.then_some(Process { pid, start_ticks })
        });
        self.with(process)
    }

    fn with(&self, process: Option<Process>) -> Caller {
        let peer = Peer {
            uid: self.uid,
            gid: self.gid,
            process,
            watchable: self.pidfd.is_some(),
            quota: Quota::default(),
        };
        Caller { peer, pidfd: self.pidfd.clone() }
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

        assert_eq!(identity.caller().peer.process, None, "not asked for yet");
        let registrant = identity.registrant();
        let process = registrant.peer.process.unwrap();
        assert_eq!(process.pid, std::process::id());
        assert_eq!(Some(process.start_ticks), process::start_ticks(process.pid));
        assert_eq!(identity.caller().peer.process, Some(process), "kept");

        #[cfg(target_os = "linux")]
        assert!(registrant.peer.watchable && !process::has_exited(&registrant.pidfd.unwrap()));
    }
}
