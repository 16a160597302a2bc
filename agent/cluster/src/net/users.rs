//! The users of this host with whose processes a node without certificates talks: over loopback every user could reach it.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::FutureExt as _;
use tenure_host::tcp;
use tokio::net::TcpStream;
use tokio::time::timeout;

const ROOT: u32 = 0;
/// The time between two looks for the process that accepts a connection.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Users whose processes may talk with each other: root, the one of this process, and more that are configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Users {
    own: u32,
    more: Vec<u32>,
    /// Nodes elsewhere are talked with too, as far as they let everybody in.
    leaves_host: bool,
}

/// The other end is not let in, in words for its user.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Stranger(String);

impl Users {
    /// Root, the user of this process, and these.
    pub fn with(more: &[u32]) -> Users {
        Users { own: tcp::own_user(), more: more.to_vec(), leaves_host: false }
    }

    /// The same, for a command that may be about a cluster elsewhere.
    pub(crate) fn for_commands(more: &[u32]) -> Users {
        Users { leaves_host: true, ..Users::with(more) }
    }

    pub(super) fn leave_host(&self) -> bool {
        self.leaves_host
    }

    fn have(&self, uid: u32) -> bool {
        let is_named = uid == ROOT || uid == self.own || self.more.contains(&uid);
        // Several users without a number of their own go by the same one.
        is_named && !tcp::is_nobody_in_particular(uid)
    }

    fn words(&self) -> String {
        let mut all = vec![self.own];
        all.extend(self.more.iter().filter(|uid| ![ROOT, self.own].contains(*uid)));
        let all: Vec<_> = all.iter().map(u32::to_string).collect();
        format!("user {} or root", all.join(", "))
    }

    /// Looks who has connected. Without the kernel's word nobody is let in.
    pub(super) fn admit(&self, stream: &TcpStream) -> Result<(), Stranger> {
        let found = ends(stream).and_then(|(near, far)| tcp::user_at(near, far));
        let told = match found {
            Ok(Some(uid)) if self.have(uid) => return Ok(()),
            Ok(Some(uid)) => format!("this process is of user {uid}"),
            Ok(None) => "the process that connected has gone".to_owned(),
            Err(error) => format!("the system does not say of which user this process is: {error}"),
        };
        Err(Stranger(format!(
            "this node has no certificates and lets in processes of {} alone; {told}: run it as the user of the gateway, \
             or as root (cluster.uids names more users)",
            self.words()
        )))
    }

    /// Looks whose process listens there, once it has accepted the connection. Its caller has a deadline.
    pub(super) async fn recognize(&self, stream: &TcpStream) -> io::Result<()> {
        let (near, far) = ends(stream)?;
        loop {
            // Before the look: bytes, or an end, come from a process that has accepted.
            let has_said = stream.peek(&mut [0]).now_or_never().transpose()?.is_some();
            match tcp::user_at(near, far)? {
                Some(uid) if self.have(uid) => return Ok(()),
                Some(uid) => {
                    let cause = format!(
                        "user {uid} listens at {far}, who is not trusted: without certificates the process there must be \
                         of {} (cluster.uids names more users)",
                        self.words()
                    );
                    return Err(io::Error::new(io::ErrorKind::PermissionDenied, cause));
                }
                // It has closed its end, perhaps with a reason. Nobody hears what is sent there.
                None if has_said => return Ok(()),
                // Sleep of the machine does no harm.
                None => drop(timeout(LOOK_EVERY, std::future::pending::<()>()).await),
            }
        }
    }
}

fn ends(stream: &TcpStream) -> io::Result<(SocketAddr, SocketAddr)> {
    Ok((stream.local_addr()?, stream.peer_addr()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_root_the_own_one_and_those_that_are_configured() {
        let users = Users { own: 998, more: vec![1000, 0], leaves_host: false };
        let have: Vec<u32> =
            [0, 1, 998, 999, 1000].into_iter().filter(|it| users.have(*it)).collect();
        assert_eq!(have, [0, 998, 1000]);
        assert_eq!(users.words(), "user 998, 1000 or root");
    }
}
