//! An agent that takes connections and answers nobody: the process behind its socket.

use std::path::Path;
use std::time::Duration;

use tenure::wire::Check;
use tokio::net::UnixStream;
use tokio::time::{sleep, timeout};

/// The time after which somebody looks for the cause of silence. A later answer is none the worse.
const SILENT_FOR: Duration = Duration::from_millis(300);
/// The longest time to connect: the kernel does it, also for a stopped process.
const CONNECT_MAX: Duration = Duration::from_millis(300);

/// The process behind a socket.
pub(super) struct Process {
    pid: i32,
    name: String,
    /// The letter of `ps`.
    state: char,
}

impl Process {
    /// The one that made the socket, as far as it can be seen.
    async fn behind(path: &Path) -> Option<Process> {
        let stream = timeout(CONNECT_MAX, UnixStream::connect(path)).await.ok()?.ok()?;
        let pid = stream.peer_cred().ok()?.pid()?;
        let stat = super::process::stat(pid)?;
        let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
        let state = rest.trim_start().chars().next()?;
        Some(Process { pid, name: name.to_owned(), state })
    }

    /// Its state and the way out, in a line.
    pub(super) fn line(&self) -> String {
        let Process { pid, name, .. } = self;
        format!("{name}, pid {pid}, is stopped: kill -CONT {pid}")
    }
}

/// The process behind a socket, once it has been silent for a moment and is seen to be stopped; never, if it is
/// not.
pub(super) async fn stopped(path: &Path) -> Process {
    #[expect(clippy::disallowed_methods, reason = "a machine that sleeps looks later")]
    sleep(SILENT_FOR).await;
    match Process::behind(path).await {
        Some(process) if matches!(process.state, 'T' | 't') => process,
        _ => std::future::pending().await,
    }
}

/// Looks for what keeps the process behind a socket from answering.
pub(super) async fn check(path: &Path) -> Check {
    let detail = |what: &str| format!("takes connections but does not answer: {what}");
    match Process::behind(path).await {
        Some(Process { pid, name, state: 'T' | 't' }) => Check::failure(
            "agent",
            detail(&format!("{name}, pid {pid}, is stopped")),
            format!("kill -CONT {pid}; holds whose time is over by then are lost"),
        ),
        Some(Process { pid, name, state: 'D' }) => Check::failure(
            "agent",
            detail(&format!("{name}, pid {pid}, waits for a disk or a device")),
            "look at `dmesg`, and at the file systems of its runtime_dir and state_dir",
        ),
        // The process that made the socket need not be the one that serves it.
        Some(Process { pid, name, state }) if name == "tenured" => Check::failure(
            "agent",
            detail(&format!("pid {pid} is in state {state}")),
            format!(
                "look into its log, and start it again (`systemctl restart tenured`, or kill -9 \
                 {pid} and `tenured`): holds survive that"
            ),
        ),
        _ => Check::failure(
            "agent",
            detail("its process is not to be seen from here"),
            "look for it with `systemctl status tenured` or `ps -C tenured -o pid,stat,args`: one in \
             state T goes on with kill -CONT",
        ),
    }
}
