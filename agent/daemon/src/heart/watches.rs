//! Watches on the processes behind sessions.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use tenure_core::model::{Process, SessionId};
use tenure_host::process;
use tenure_host::service_manager::Notifier;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::telemetry::Repeats;

/// A watched process has ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Exit {
    pub(super) session: SessionId,
    /// The exit code, or 128 + the signal, where the kernel tells.
    pub(super) status: Option<i32>,
}

/// One small task per watched process; each sends one [`Exit`] and ends. As many wait in the channel
/// as there are sessions at most.
///
/// The service manager keeps the handles for the next agent.
pub(super) struct Watches {
    tasks: HashMap<SessionId, AbortHandle>,
    exits: mpsc::UnboundedSender<Exit>,
    notifier: Notifier,
    /// Handles that the service manager kept for the last agent, until its sessions are adopted.
    kept: HashMap<SessionId, OwnedFd>,
    /// Bounds the log of failures: without descriptors every watch fails.
    errors: Repeats,
    /// Sessions whose process cannot be watched, to be told to the keeper.
    pub(super) unwatched: Vec<SessionId>,
}

impl Watches {
    /// `kept` is what the service manager kept for this agent.
    pub(super) fn new(
        notifier: Notifier,
        kept: HashMap<SessionId, OwnedFd>,
    ) -> (Watches, mpsc::UnboundedReceiver<Exit>) {
        #[expect(
            clippy::disallowed_methods,
            reason = "one per watched process at most, and sessions are bounded"
        )]
        let (exits, exits_out) = mpsc::unbounded_channel();
        let (tasks, unwatched) = (HashMap::new(), Vec::new());
        let errors = Repeats::new();
        (Watches { tasks, exits, notifier, kept, errors, unwatched }, exits_out)
    }

    /// Watches the process behind a pidfd, and has that kept.
    pub(super) fn watch(&mut self, session: SessionId, pidfd: Arc<OwnedFd>) {
        self.begin(session, &pidfd);
        self.notifier.keep(session, pidfd);
    }

    fn begin(&mut self, session: SessionId, pidfd: &OwnedFd) {
        self.stop(session);
        match process::exited(pidfd) {
            Ok(exited) => {
                let exits = self.exits.clone();
                let task = tokio::spawn(async move {
                    let status = exited.await;
                    // Fails only when the heart has ended.
                    let _ = exits.send(Exit { session, status });
                });
                self.tasks.insert(session, task.abort_handle());
            }
            Err(error) => self.cannot_watch(session, &error),
        }
    }

    /// Watches a process that was watched before this agent started. If it has ended meanwhile,
    /// that is told at once.
    pub(super) fn watch_again(&mut self, session: SessionId, process: Option<Process>) {
        let kept = self.kept.remove(&session);
        match (kept, process) {
            (Some(pidfd), process) if process.is_none_or(|process| is_of(&pidfd, process)) => {
                self.begin(session, &pidfd);
            }
            (kept, Some(process)) => match process::reopen(process) {
                Ok(Some(pidfd)) => self.watch(session, Arc::new(pidfd)),
                Ok(None) => match kept.filter(process::has_exited) {
                    // It may tell how.
                    Some(pidfd) => self.begin(session, &pidfd),
                    // Fails only when the heart has ended.
                    None => drop(self.exits.send(Exit { session, status: None })),
                },
                Err(error) => self.cannot_watch(session, &error),
            },
            // A process of another PID namespace has no number to find it by.
            (_, None) => {
                tracing::info!(%session, "cannot watch the session's process again: it has no number here");
                self.unwatched.push(session);
            }
        }
    }

    fn cannot_watch(&mut self, session: SessionId, error: &std::io::Error) {
        if let Some(withheld) = self.errors.admit() {
            tracing::warn!(%session, %error, withheld, "cannot watch the session's process");
        }
        self.unwatched.push(session);
    }

    /// Has forgotten what was kept for sessions that have not been adopted; says how many.
    pub(super) fn forget_strays(&mut self) -> usize {
        let strays = std::mem::take(&mut self.kept);
        strays.keys().for_each(|session| self.notifier.forget(*session));
        strays.len()
    }

    pub(super) fn unwatch(&mut self, session: SessionId) {
        self.stop(session);
        self.notifier.forget(session);
    }

    fn stop(&mut self, session: SessionId) {
        if let Some(task) = self.tasks.remove(&session) {
            task.abort();
        }
    }
}

/// True if what was kept is a handle on a session's process: an agent that was killed when another
/// process took up the session may not have told of that.
fn is_of(kept: &OwnedFd, process: Process) -> bool {
    match process::number(kept) {
        Some(pid) => pid == process.pid,
        None => !process::has_exited(kept),
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use std::process::{Child, Command, Stdio};
    use std::time::Duration;

    use uuid::Uuid;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    /// A process that ends with its input, and a handle on it.
    fn child() -> (Child, Process, OwnedFd) {
        let mut command = Command::new("sh");
        let child =
            command.args(["-c", "read line; exit 7"]).stdin(Stdio::piped()).spawn().unwrap();
        let pid = child.id();
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let numbers = stat.rsplit_once(')').unwrap().1;
        let start_ticks = numbers.split_ascii_whitespace().nth(19).unwrap().parse().unwrap();
        let process = Process { pid, start_ticks };
        (child, process, process::reopen(process).unwrap().unwrap())
    }

    async fn next(exits: &mut mpsc::UnboundedReceiver<Exit>) -> Exit {
        tokio::time::timeout(PATIENCE, exits.recv()).await.unwrap().unwrap()
    }

    #[tokio::test]
    async fn what_was_kept_is_watched_unless_it_is_another_process() {
        let [one, two, three] = [1, 2, 3].map(|number| SessionId(Uuid::from_u128(number)));
        let ((mut dead, _, of_dead), (mut living, process, of_living)) = (child(), child());
        dead.kill().unwrap();
        dead.wait().unwrap();
        let again = of_dead.try_clone().unwrap();
        let kept = HashMap::from([(one, of_dead), (two, again), (three, of_living)]);
        let (mut watches, mut exits) = Watches::new(Notifier::silent(), kept);

        // The process that the journal names; without a number there is nothing to compare.
        watches.watch_again(one, Some(process));
        watches.watch_again(two, None);
        assert_eq!(next(&mut exits).await.session, two);

        drop(living.stdin.take());
        living.wait().unwrap();
        assert_eq!(next(&mut exits).await.session, one, "not the dead one's handle");
        watches.watch_again(three, Some(process));
        assert_eq!(next(&mut exits).await.session, three);

        assert_eq!(watches.forget_strays(), 0);
        watches.watch_again(three, Some(process));
        assert_eq!(next(&mut exits).await.status, None, "nobody can tell any more");
        watches.watch_again(three, None);
        assert_eq!(watches.unwatched, [three]);
    }
}
