//! An agent that does what a test says: grants, takes away, stays silent, loses replies, restarts.

pub(crate) mod page;
mod serve;
mod state;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tenure::wire::{Event, HoldEvent, HoldState, LostEvent, LostReason};
use tenure::{Agent, Session};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub(crate) use state::State;

/// Longer than anything takes that a test waits for.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

pub(crate) struct FakeAgent {
    directory: tempfile::TempDir,
    shared: Arc<Shared>,
    /// Ends the listener and every connection.
    running: CancellationToken,
}

pub(crate) struct Shared {
    state: Mutex<State>,
    changed: watch::Sender<()>,
    /// Replies leave only while this is true.
    pub(crate) replies: watch::Sender<bool>,
}

impl Shared {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        // Whoever looks may have changed it.
        self.changed.send_replace(());
        self.state.lock().expect("no test panics while it has the lock")
    }
}

impl FakeAgent {
    pub(crate) async fn start() -> FakeAgent {
        let directory = tempfile::tempdir().expect("a directory");
        let shared = Arc::new(Shared {
            state: Mutex::new(State::new(directory.path().to_owned())),
            changed: watch::Sender::new(()),
            replies: watch::Sender::new(true),
        });
        let mut agent = FakeAgent { directory, shared, running: CancellationToken::new() };
        agent.start_again();
        agent
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("api.sock")
    }

    pub(crate) async fn session(&self) -> Session {
        let agent = Agent::connect_to(self.path()).await.expect("an agent");
        agent.session().name("test").open().await.expect("a session")
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state()
    }

    /// As by SIGKILL: every connection breaks.
    pub(crate) fn kill(&mut self) {
        self.running.cancel();
        std::fs::remove_file(self.path()).expect("the socket");
        self.state().streams.clear();
    }

    pub(crate) fn start_again(&mut self) {
        self.running = CancellationToken::new();
        let listener = std::os::unix::net::UnixListener::bind(self.path()).expect("a socket");
        listener.set_nonblocking(true).expect("a socket");
        let listener = tokio::net::UnixListener::from_std(listener).expect("a socket");
        tokio::spawn(serve::serve(listener, Arc::clone(&self.shared), self.running.clone()));
    }

    /// The next so many requests are carried out, but their connections break without a reply.
    pub(crate) fn lose_replies(&self, count: u32) {
        self.state().replies_to_lose = count;
    }

    /// Carries requests out, but replies only once told to.
    pub(crate) fn hold_replies(&self, hold: bool) {
        self.shared.replies.send_replace(!hold);
    }

    /// Takes a resource away.
    pub(crate) fn lose(&self, name: &str, reason: LostReason) {
        let mut state = self.state();
        let hold = state.end(name, HoldState::Held, tenure::page::STATE_LOST).expect("a hold");
        let of = HoldEvent { hold: hold.id, kind: hold.kind, name: hold.name };
        state.tell(Event::Lost(LostEvent { of, token: hold.token, reason }));
    }

    /// Waits until the agent's state is as wanted.
    pub(crate) async fn until(&self, what: &str, wanted: impl Fn(&State) -> bool) {
        let mut changed = self.shared.changed.subscribe();
        let reached = async {
            loop {
                changed.borrow_and_update();
                if wanted(&self.shared.state.lock().expect("a state")) {
                    return;
                }
                // Looked at again after a while too: a change shows before it is made.
                let _ = tokio::time::timeout(Duration::from_millis(5), changed.changed()).await;
            }
        };
        if tokio::time::timeout(DEADLINE, reached).await.is_err() {
            panic!("not reached: {what}");
        }
    }
}

impl Drop for FakeAgent {
    fn drop(&mut self) {
        self.running.cancel();
    }
}

/// Waits for something that must come.
pub(crate) async fn soon<T>(what: &str, coming: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, coming).await.unwrap_or_else(|_| panic!("not soon: {what}"))
}

/// How many requests came on that path.
pub(crate) fn asked(state: &State, path: &str) -> usize {
    state.requests.iter().filter(|asked| *asked == path).count()
}
