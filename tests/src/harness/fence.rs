//! A resource that is guarded by tokens, and those who work on it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Granted, Http, PageFile, Session, boottime_ns, until};

/// Between two writes of a worker, and between two tries when its agent does not answer.
const BREATH: Duration = Duration::from_millis(2);

/// A write to the resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Write {
    /// The token that the writer showed.
    pub token: u64,
    /// CLOCK_BOOTTIME, ns.
    pub at_ns: u64,
}

/// Takes writes of whoever believes to hold it, and refuses those with a lower token than one that
/// it has seen.
#[derive(Default)]
pub struct Fence {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    last: Option<Write>,
    writes: u64,
    refused: Vec<(Write, Write)>,
}

impl Fence {
    /// Writes, if `believes` says that the writer still holds the resource.
    ///
    /// The question is asked while nobody else can write: whoever is refused held it, by its own
    /// knowledge, together with somebody else.
    pub fn write(&self, token: u64, believes: impl FnOnce() -> bool) -> bool {
        let mut state = self.state.lock().expect("no thread panics with it");
        if !believes() {
            return false;
        }
        let write = Write { token, at_ns: boottime_ns() };
        match state.last {
            Some(last) if last.token > token => state.refused.push((write, last)),
            _ => {
                state.last = Some(write);
                state.writes += 1;
            }
        }
        true
    }

    /// How many writes it took.
    pub fn writes(&self) -> u64 {
        self.state.lock().expect("no thread panics with it").writes
    }

    #[track_caller]
    pub fn refused_nobody(&self) {
        let state = self.state.lock().expect("no thread panics with it");
        assert!(state.refused.is_empty(), "late writes, and what came before: {:?}", state.refused);
    }
}

/// Acquires, writes for a while, and releases, again and again, whatever happens to its agent.
pub struct Worker {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    socket: PathBuf,
    ask: Value,
    fence: Arc<Fence>,
    stay: Duration,
    grants: AtomicU64,
    stop: AtomicBool,
}

impl Worker {
    /// Starts one at the agent on that socket. `ask` has the fields of the acquire.
    pub fn start(socket: &Path, ask: &Value, fence: &Arc<Fence>, stay: Duration) -> Worker {
        let shared = Arc::new(Shared {
            socket: socket.to_owned(),
            ask: ask.clone(),
            fence: Arc::clone(fence),
            stay,
            grants: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        });
        let thread = std::thread::spawn({
            let shared = Arc::clone(&shared);
            move || shared.work()
        });
        Worker { shared, thread: Some(thread) }
    }

    /// How often it was granted the resource.
    pub fn grants(&self) -> u64 {
        self.shared.grants.load(Ordering::Relaxed)
    }

    /// Waits until it has been granted the resource once more.
    #[track_caller]
    pub fn gets_another_turn(&self) {
        let before = self.grants();
        until("another grant to a worker", || self.grants() > before);
    }

    /// Waits until it has ended its session.
    #[track_caller]
    pub fn finish(mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("it finishes once");
        thread.join().expect("the worker panicked");
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // A test that failed does not wait for it.
        self.shared.stop.store(true, Ordering::Relaxed);
    }
}

impl Shared {
    fn work(&self) {
        let mut http = Http::new(&self.socket);
        let mut session = None;
        let mut attempts = 0;
        while !self.stopped() {
            let Some(own) = session.take().or_else(|| register(&mut http)) else {
                std::thread::sleep(BREATH);
                continue;
            };
            // With an id of its own, an attempt can be made again after the agent was killed before it
            // could answer: the hold would be there, and nobody would know.
            match self.acquire(&mut http, &own, attempts) {
                Ok(granted) => {
                    attempts += 1;
                    self.grants.fetch_add(1, Ordering::Relaxed);
                    self.use_it(&own, &granted);
                    let body = json!({"session": own.session, "hold": granted.hold});
                    // Until somebody has heard it.
                    while call(&mut http, "/v1/release", &body).is_none() && !self.stopped() {
                        std::thread::sleep(BREATH);
                    }
                    // So that whoever looks only now and then finds it free at times.
                    std::thread::sleep(self.stay / 2);
                    session = Some(own);
                }
                Err(Refusal::SessionGone) => {}
                Err(refusal) => {
                    std::thread::sleep(BREATH);
                    attempts += u64::from(matches!(refusal, Refusal::Anew));
                    session = Some(own);
                }
            }
        }
        if let Some(own) = session {
            // The session's keepalive ends it if the agent cannot be told.
            call(&mut http, "/v1/release", &json!({"session": own.session}));
        }
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn acquire(&self, http: &mut Http, own: &Session, attempt: u64) -> Result<Granted, Refusal> {
        let mut ask = self.ask.clone();
        ask["session"] = json!(own.session);
        ask["wait"] = json!("block");
        ask["request"] = json!(attempt.to_string());
        // So that it looks now and then whether it is to stop.
        ask["timeout_ms"] = json!(1000);
        match call(http, "/v1/acquire", &ask) {
            Some((200, body)) => serde_json::from_value(body).map_err(|_| Refusal::Anew),
            Some((_, body))
                if body["code"] == "session_unknown" || body["code"] == "session_lost" =>
            {
                Err(Refusal::SessionGone)
            }
            Some(_) => Err(Refusal::Anew),
            None => Err(Refusal::Again),
        }
    }

    fn use_it(&self, own: &Session, granted: &Granted) {
        let page = PageFile::open(Path::new(&own.page));
        let until_ns =
            boottime_ns() + u64::try_from(self.stay.as_nanos()).expect("a stay is short");
        let held = || {
            let slot = page.slot(granted.slot);
            slot.hold == granted.hold && boottime_ns() < slot.valid_until_ns
        };
        while boottime_ns() < until_ns && !self.stopped() && self.fence.write(granted.token, held) {
            std::thread::sleep(BREATH);
        }
    }
}

enum Refusal {
    SessionGone,
    /// It is over; try another time.
    Anew,
    /// There was no answer.
    Again,
}

fn register(http: &mut Http) -> Option<Session> {
    let (status, body) =
        call(http, "/v1/register", &json!({"name": "worker", "tether": "process"}))?;
    (status == 201).then(|| serde_json::from_value(body).ok())?
}

/// Status and body; `None` when there is no agent.
fn call(http: &mut Http, path: &str, body: &Value) -> Option<(u16, Value)> {
    let answer = http.try_call("POST", path, body.to_string().as_bytes()).ok()?;
    Some((answer.status, serde_json::from_slice(&answer.body).ok()?))
}
