//! Errors of calls.

use std::error::Error as StdError;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::socket::{SERVICE_SOCKET, looked_at_besides};
use crate::session::SessionGone;
use crate::wire::{Code, Problem};

/// Why a call to the agent failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The agent understood and said no; [`Problem::code`] says why.
    #[error("{0}")]
    Refused(Box<Problem>),
    /// The agent could not be asked, or went away before it answered.
    ///
    /// It is then unknown whether it acted; calls that may be repeated have been.
    #[error("{}", unreachable(path, source))]
    Unreachable {
        /// The socket.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The agent took the call but gave no answer in time. Whether it acted is unknown.
    #[error(
        "the agent at {} gave no answer within {after:?}: it may be stopped; see `tenure doctor`",
        path.display()
    )]
    TimedOut {
        /// The socket.
        path: PathBuf,
        /// How long the call waited.
        after: Duration,
    },
    /// The answer is not one of an agent.
    #[error("{} does not answer like an agent: {what}; is it the socket of another program?", path.display())]
    Protocol {
        /// The socket.
        path: PathBuf,
        /// The difference.
        what: String,
        /// The cause, where there is one.
        #[source]
        source: Option<Box<dyn StdError + Send + Sync>>,
    },
    /// The session has ended, or belongs to the process that this one was forked from: the agent was not asked.
    #[error(transparent)]
    SessionGone(#[from] SessionGone),
    /// The name of the socket is none.
    #[error("{value:?} does not name a socket: {rule}")]
    BadSocket {
        /// The given value.
        value: String,
        /// The rule that it breaks.
        rule: &'static str,
    },
}

impl CallError {
    /// The agent's code, if it refused the call.
    pub fn code(&self) -> Option<Code> {
        match self {
            CallError::Refused(problem) => Some(problem.code),
            _ => None,
        }
    }

    /// The agent's problem, if it refused the call.
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            CallError::Refused(problem) => Some(problem),
            _ => None,
        }
    }

    /// True if the same call may succeed a little later without anybody doing anything: the agent
    /// restarts, or its upstream is not available.
    pub fn is_transient(&self) -> bool {
        match self {
            CallError::Refused(problem) => {
                matches!(problem.code, Code::UpstreamUnavailable | Code::Stopping)
            }
            CallError::Unreachable { .. } | CallError::TimedOut { .. } => true,
            CallError::Protocol { .. }
            | CallError::SessionGone(_)
            | CallError::BadSocket { .. } => false,
        }
    }

    /// True if there is no such session any more.
    pub fn is_session_gone(&self) -> bool {
        matches!(self, CallError::SessionGone(_))
            || matches!(self.code(), Some(Code::SessionUnknown | Code::SessionLost))
    }

    pub(crate) fn protocol(path: &Path, what: impl Into<String>) -> CallError {
        CallError::Protocol { path: path.to_owned(), what: what.into(), source: None }
    }

    pub(crate) fn garbled(
        path: &Path,
        what: impl Into<String>,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> CallError {
        CallError::Protocol {
            path: path.to_owned(),
            what: what.into(),
            source: Some(source.into()),
        }
    }
}

fn unreachable(path: &Path, source: &io::Error) -> String {
    let besides = || -> String {
        let besides = looked_at_besides(path);
        besides.iter().map(|place| format!(", nor at {}", place.display())).collect()
    };
    let shown = path.display();
    if matches!(source.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) {
        return format!(
            "the agent at {shown} was not asked: this process may open no more files: raise `ulimit -n`"
        );
    }
    match source.kind() {
        io::ErrorKind::NotFound => format!(
            "there is no agent socket at {shown}{}: start the agent with `tenured` \
             (as a service: `systemctl start tenured`), or name its socket in TENURE_SOCKET",
            besides()
        ),
        io::ErrorKind::ConnectionRefused if is_no_socket(path) => format!(
            "{shown} is not a socket: name the agent's own, such as {SERVICE_SOCKET}; `tenure socket` \
             finds it"
        ),
        io::ErrorKind::ConnectionRefused => {
            format!(
                "no agent listens at {shown} any more: start it again with `tenured` \
                 (as a service: `systemctl restart tenured`)"
            )
        }
        io::ErrorKind::PermissionDenied => format!(
            "you may not open the agent's socket at {shown}: `tenure doctor` says how to be let in; \
             or start an agent of your own and name its socket in TENURE_SOCKET"
        ),
        io::ErrorKind::InvalidInput => {
            format!("{shown} cannot be a socket: its path must be shorter than 108 bytes")
        }
        io::ErrorKind::WouldBlock => format!(
            "the agent at {shown} has too many connections waiting to be taken: try again, and see \
             who makes them with `ss -xp`"
        ),
        _ => format!("the agent at {shown} went away before it answered: try again"),
    }
}

/// True if something else has the path. The kernel says of both that nobody listens.
fn is_no_socket(path: &Path) -> bool {
    path.metadata().is_ok_and(|metadata| !metadata.file_type().is_socket())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_the_path_and_the_way_out() {
        let check = |kind: io::ErrorKind, way_out: &str| {
            let error = CallError::Unreachable { path: "/x.sock".into(), source: kind.into() };
            let text = error.to_string();
            assert!(text.contains("/x.sock") && text.contains(way_out), "{text}");
        };
        check(io::ErrorKind::NotFound, "start the agent");
        check(io::ErrorKind::ConnectionRefused, "start it again");
        let source = io::Error::from_raw_os_error(libc::EMFILE);
        let error = CallError::Unreachable { path: "/x.sock".into(), source };
        assert!(error.to_string().contains("raise `ulimit -n`"), "{error}");
        let error = CallError::Unreachable {
            path: "/etc/passwd".into(),
            source: io::ErrorKind::ConnectionRefused.into(),
        };
        assert!(error.to_string().starts_with("/etc/passwd is not a socket: "), "{error}");
        // Not to join a group: that of the socket may be root.
        check(io::ErrorKind::PermissionDenied, "`tenure doctor` says how");
        check(io::ErrorKind::InvalidInput, "shorter");
        check(io::ErrorKind::WouldBlock, "too many connections");
        check(io::ErrorKind::ConnectionReset, "try again");
    }
}
