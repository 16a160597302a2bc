//! The server: an engine, a clock that the corpus sets, and faults.

use std::future::pending;
use std::os::unix::net::UnixListener as StdListener;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;
use tenure_core::engine::{Effect, Engine, EngineSettings, TokenRange};
use tenure_core::model::{Answer, Change, Request};
use tenure_core::time::Boottime;
use tenure_stores::Upstream;
use tenure_stores::remote::{Dialer, Driver, NoChores};
use tenure_wire::Kind;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::Builder;
use tokio::sync::{broadcast, watch};
use tokio::time::timeout;

use super::client::Trial;
use super::{Ask, Told};
use crate::allowances::Allowance;
use crate::client::Installation;
use tenure_harness::random::Random;

/// The time that a call of a client waits for its answer.
const TIMEOUT: Duration = Duration::from_secs(10);
const TOKENS: TokenRange = TokenRange { first: 1501, last: 1_000_000_000 };
/// The clock at the beginning of a run.
const UP: Duration = Duration::from_secs(60);
/// Changes that a connection may be behind; beyond that it is broken.
const BEHIND_MAX: usize = 1024;
/// The longest that a reply is held back, µs.
const LATE_US: u64 = 2000;

/// A running server. Ends when this is dropped.
pub(crate) struct Server {
    dir: TempDir,
    state: Arc<Mutex<State>>,
    /// Each new number breaks all connections.
    breaks: watch::Sender<u64>,
}

struct State {
    engine: Engine,
    now: Boottime,
    random: Random,
    changes: broadcast::Sender<Change>,
}

impl Server {
    pub(super) fn start() -> Server {
        let dir = tempfile::tempdir().expect("a directory");
        let listener = StdListener::bind(dir.path().join("socket")).expect("a socket");
        listener.set_nonblocking(true).expect("a socket that does not block");
        let state = State {
            engine: Engine::new(EngineSettings::default(), TOKENS),
            now: Boottime::ZERO + UP,
            random: Random::new(1),
            changes: broadcast::channel(BEHIND_MAX).0,
        };
        let state = Arc::new(Mutex::new(state));
        let (breaks, broken) = watch::channel(0);
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(accept(listener, shared, broken));
        });
        Server { dir, state, breaks }
    }
}

impl Installation for Server {
    fn allowances(&self) -> &'static [Allowance] {
        &[Allowance::NoHints, Allowance::NoVersionHints, Allowance::TellsInTime]
    }

    fn wipe(&mut self) {
        let mut state = lock(&self.state);
        state.engine = Engine::new(EngineSettings::default(), TOKENS);
        state.now = Boottime::ZERO + UP;
        state.random = Random::new(1);
    }

    fn set_clock(&mut self, us: u64) {
        let mut state = lock(&self.state);
        // Whole ms, as the clock of the plan, so that the same falls into one step.
        state.now = Boottime::ZERO + UP + Duration::from_millis(us / 1000);
        state.settle();
    }

    fn break_connections(&mut self) {
        self.breaks.send_modify(|number| *number += 1);
    }

    fn connect(&self) -> Box<dyn Upstream> {
        let trial = Trial::at(self.dir.path().join("socket"));
        let dialer = Arc::new(Dialer::new(trial.clone()));
        Box::new(Driver::open(&dialer, trial, NoChores, TIMEOUT))
    }
}

impl State {
    /// How late the reply to a request is; whether the connection breaks before the request takes effect, and
    /// whether before the reply leaves.
    fn fate(&mut self, request: &Request) -> (Duration, bool, bool) {
        let late = if self.random.per_mille(60) { self.random.below(LATE_US) } else { 0 };
        // The answer to a repetition is another one: what ended is not there any more, and a limit that was
        // changed has changed.
        let once = match request {
            Request::Release { .. } | Request::EndSession { .. } | Request::Revoke { .. } => true,
            Request::Claim(claim) => claim.resource.kind == Kind::Semaphore,
            _ => false,
        };
        let reply_is_lost = !once && self.random.per_mille(2);
        (Duration::from_micros(late), self.random.per_mille(2), reply_is_lost)
    }

    fn answer(&mut self, request: Request) -> Answer {
        let answer = self.engine.handle(self.now, request);
        self.settle();
        answer
    }

    /// Does what is due. A step does no more as long as effects of earlier ones wait.
    fn settle(&mut self) {
        loop {
            while let Some(effect) = self.engine.poll_effect() {
                if let Effect::Change(change) = effect {
                    // Fails if nobody listens.
                    let _ = self.changes.send(change);
                }
            }
            if self.engine.poll_timeout().is_none_or(|due| due > self.now) {
                return;
            }
            self.engine.handle_timeout(self.now);
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().expect("no test has failed within")
}

async fn accept(listener: StdListener, state: Arc<Mutex<State>>, mut broken: watch::Receiver<u64>) {
    let listener = UnixListener::from_std(listener).expect("a socket");
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { return };
                tokio::spawn(serve(stream, Arc::clone(&state), broken.clone()));
            }
            changed = broken.changed() => if changed.is_err() { return },
        }
    }
}

/// Serves a connection until it breaks.
async fn serve(stream: UnixStream, state: Arc<Mutex<State>>, mut broken: watch::Receiver<u64>) {
    broken.mark_unchanged();
    let (reader, mut writer) = stream.into_split();
    let mut lines = BufReader::new(reader).lines();
    let mut changes: Option<broadcast::Receiver<Change>> = None;
    loop {
        let told = tokio::select! {
            _ = broken.changed() => return,
            line = lines.next_line() => {
                let Ok(Some(line)) = line else { return };
                let (number, ask): (u64, Ask) = serde_json::from_str(&line).expect("our client's");
                let answer = match ask {
                    Ask::Ping => None,
                    Ask::Listen => {
                        changes = Some(lock(&state).changes.subscribe());
                        None
                    }
                    Ask::Do(request) => {
                        let (late, is_lost, reply_is_lost) = lock(&state).fate(&request);
                        if is_lost {
                            return;
                        }
                        let answer = lock(&state).answer(*request);
                        let _ = timeout(late, pending::<()>()).await;
                        if reply_is_lost {
                            return;
                        }
                        Some(Box::new(answer))
                    }
                };
                Told::Reply(number, answer)
            }
            change = async {
                match &mut changes {
                    Some(changes) => changes.recv().await,
                    None => pending().await,
                }
            } => match change {
                Ok(change) => Told::Change(change),
                // It is too far behind.
                Err(_) => return,
            },
        };
        let mut line = serde_json::to_vec(&told).expect("it can be written");
        line.push(b'\n');
        if writer.write_all(&line).await.is_err() {
            return;
        }
    }
}
