//! An agent that does what a test says: it grants, stays silent, loses, restarts.

use std::convert::Infallible;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::pin::Pin;
use std::process::{Output, Stdio};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use hyper::body::Frame;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tenure::page;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::UnixListener;
use tokio::process::{Child, ChildStdout, Command};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use uuid::Uuid;

/// Nothing here takes longer unless it is broken.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the fake was told and has seen.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Answers that a waiting acquire gets: granted, or refused with this problem.
    pub(crate) grant: bool,
    pub(crate) refusal: Option<Value>,
    /// Renews every third of the ttl.
    pub(crate) renew: bool,
    pub(crate) ttl_ms: u64,
    pub(crate) valid_until: u64,
    pub(crate) renewals: u64,
    pub(crate) registered: Vec<Value>,
    pub(crate) acquired: Vec<Value>,
    pub(crate) released: Vec<Value>,
    pub(crate) asked: u64,
    pub(crate) streams: u64,
    /// What an examination of the upstream finds.
    pub(crate) checks: Vec<Value>,
}

/// The agent.
pub(crate) struct Fake {
    dir: tempfile::TempDir,
    seen: watch::Sender<Seen>,
    streams: Mutex<Vec<mpsc::Sender<Bytes>>>,
    pub(crate) session: Uuid,
    pub(crate) hold: Uuid,
    page: Option<File>,
}

impl Fake {
    /// Grants at once and renews; listens.
    pub(crate) fn start(ttl_ms: u64) -> (Arc<Fake>, Listening) {
        Fake::start_with(ttl_ms, true)
    }

    /// Without a page, holds are told of in `/v1/status` only.
    pub(crate) fn start_with(ttl_ms: u64, with_page: bool) -> (Arc<Fake>, Listening) {
        let dir = tempfile::tempdir().expect("a directory");
        let session = Uuid::from_u128(7);
        let page = with_page.then(|| {
            let page = File::create(dir.path().join("page")).expect("a page");
            page.set_len(page::SIZE as u64).expect("its size");
            let put = |bytes: &[u8], at: usize| page.write_all_at(bytes, at as u64).expect("put");
            put(&page::MAGIC, 0);
            put(&page::VERSION.to_le_bytes(), page::VERSION_AT);
            put(&(page::SLOTS as u32).to_le_bytes(), page::SLOTS_AT);
            put(session.as_bytes(), page::SESSION_AT);
            page
        });
        let seen = Seen { grant: true, renew: true, ttl_ms, ..Seen::default() };
        let fake = Arc::new(Fake {
            dir,
            seen: watch::Sender::new(seen),
            streams: Mutex::default(),
            session,
            hold: Uuid::from_u128(9),
            page,
        });
        let renewing = fake.clone();
        tokio::spawn(async move {
            loop {
                #[expect(clippy::disallowed_methods, reason = "the pace of a fake")]
                sleep(Duration::from_millis(ttl_ms / 3)).await;
                let seen = renewing.seen.borrow();
                let due = seen.renew && seen.valid_until != 0;
                drop(seen);
                if due {
                    renewing.renew();
                }
            }
        });
        let listening = fake.listen();
        (fake, listening)
    }

    /// Opens the socket; dropping the result closes it and every connection.
    pub(crate) fn listen(self: &Arc<Fake>) -> Listening {
        let _old = std::fs::remove_file(self.socket());
        let listener = UnixListener::bind(self.socket()).expect("bound");
        let routes = Router::new()
            .route("/v1/register", post(register))
            .route("/v1/acquire", post(acquire))
            .route("/v1/release", post(release))
            .route("/v1/events", get(events))
            .route("/v1/status", get(status))
            .route("/v1/doctor", get(doctor))
            .route("/readyz", get(async || ()))
            .with_state(self.clone());
        // A runtime of its own, so that its end is the end of every connection.
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let listener = listener.into_std().expect("a listener");
        let _serving: JoinHandle<()> = runtime.spawn(async move {
            let listener = UnixListener::from_std(listener).expect("a listener");
            axum::serve(listener, routes).await.expect("served");
        });
        Listening { runtime: Some(runtime) }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("api.sock")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Changes what the fake does.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Seen)) {
        self.seen.send_modify(change);
    }

    /// Waits until the fake has seen something.
    pub(crate) async fn until(&self, what: &str, seen: impl FnMut(&Seen) -> bool) {
        let mut receiver = self.seen.subscribe();
        let waited = timeout(PATIENCE, receiver.wait_for(seen)).await;
        assert!(matches!(waited, Ok(Ok(_))), "never: {what}: {:?}", self.seen.borrow());
    }

    pub(crate) fn seen<T>(&self, look: impl FnOnce(&Seen) -> T) -> T {
        look(&self.seen.borrow())
    }

    /// Sends an event to every open stream.
    pub(crate) fn tell(&self, event: &str, mut data: Value) {
        if event != "snapshot" && event != "shutdown" {
            data["hold"] = json!(self.hold);
            data["kind"] = json!("leader");
            data["name"] = json!("cleanup");
            data["token"] = json!(17);
        }
        let frame = Bytes::from(format!("event: {event}\ndata: {data}\n\n"));
        for stream in self.streams.lock().expect("unpoisoned").iter() {
            let _full = stream.try_send(frame.clone());
        }
    }

    /// Loses the hold as the agent does for a guarded session: the page first, then the event.
    pub(crate) fn lose(&self, reason: &str) {
        self.change(|seen| seen.renew = false);
        self.put_valid_until(0);
        self.tell("lost", json!({ "reason": reason }));
    }

    fn renew(&self) {
        let ttl = self.seen(|seen| seen.ttl_ms);
        let valid_until = page::boottime_ns() + ttl * 1_000_000;
        self.put_valid_until(valid_until);
        self.change(|seen| {
            seen.valid_until = valid_until;
            seen.renewals += 1;
        });
    }

    fn put_valid_until(&self, valid_until: u64) {
        if let Some(page) = &self.page {
            let put = |bytes: &[u8], at: usize| {
                let at = (page::SLOT_SIZE + at) as u64;
                page.write_all_at(bytes, at).expect("put");
            };
            put(self.hold.as_bytes(), page::HOLD_AT);
            put(&valid_until.to_le_bytes(), page::VALID_UNTIL_AT);
        }
    }

    fn view(&self, state: &str) -> Value {
        self.seen(|seen| {
            let left = seen.valid_until.saturating_sub(page::boottime_ns());
            json!({"hold": self.hold, "kind": "leader", "name": "cleanup", "state": state,
                "token": 17, "ttl_ms": seen.ttl_ms, "valid_ms": left / 1_000_000,
                "valid_until_boottime_ns": seen.valid_until, "slot": 0})
        })
    }

    /// `tenure` with this fake as its agent.
    pub(crate) fn tenure(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
        command
            .arg("--socket")
            .arg(self.socket())
            .args(arguments)
            .env_remove("TENURE_SOCKET")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    /// `tenure run --leader cleanup …`, started.
    pub(crate) fn run(&self, arguments: &[&str]) -> Running {
        let mut command = self.tenure(&["run", "--leader", "cleanup"]);
        Running { child: command.args(arguments).spawn().expect("started"), lines: None }
    }
}

/// Ends with every connection when dropped.
pub(crate) struct Listening {
    runtime: Option<tokio::runtime::Runtime>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// A started command.
pub(crate) struct Running {
    child: Child,
    lines: Option<BufReader<ChildStdout>>,
}

impl Running {
    /// The next line that it prints.
    pub(crate) async fn line(&mut self) -> String {
        let child = &mut self.child;
        let lines =
            self.lines.get_or_insert_with(|| BufReader::new(child.stdout.take().expect("piped")));
        let mut line = String::new();
        timeout(PATIENCE, lines.read_line(&mut line)).await.expect("in time").expect("a line");
        line.trim_end().to_owned()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = self.child.id().expect("running") as i32;
        kill(Pid::from_raw(pid), signal).expect("sent");
    }

    /// Its exit status (or minus the signal that ended it), and what it said on stderr.
    pub(crate) async fn end(self) -> (i32, String) {
        let Output { status, stderr, .. } = self.output().await;
        let signal = std::os::unix::process::ExitStatusExt::signal(&status);
        let code = status.code().unwrap_or_else(|| -signal.unwrap_or(0));
        (code, String::from_utf8_lossy(&stderr).into_owned())
    }

    pub(crate) async fn output(self) -> Output {
        let ended = timeout(PATIENCE, self.child.wait_with_output());
        ended.await.expect("in time").expect("ended")
    }
}

/// Waits until a process is gone, or a zombie that its new parent has not reaped.
pub(crate) async fn until_dead(pid: i32) {
    let stat = format!("/proc/{pid}/stat");
    let gone = || match std::fs::read_to_string(&stat) {
        Err(_) => true,
        Ok(text) => text.rsplit(')').next().is_some_and(|rest| rest.starts_with(" Z")),
    };
    let waited = timeout(PATIENCE, async {
        while !gone() {
            tokio::task::yield_now().await;
        }
    });
    assert!(waited.await.is_ok(), "process {pid} lives on");
}

async fn register(State(fake): State<Arc<Fake>>, body: Bytes) -> Response {
    let request: Value = serde_json::from_slice(&body).expect("JSON");
    let resumed = request.get("resume").is_some();
    fake.change(|seen| seen.registered.push(request));
    let reply = json!({"session": fake.session, "secret": "00", "ttl_ms": 90_000,
        "beat_ms": 30_000, "page": fake.path("page"), "boot_id": Uuid::nil(), "resumed": resumed,
        "agent": {"version": "0", "host_id": "h", "upstream": "fake", "guarantee": "none"}});
    (StatusCode::CREATED, axum::Json(reply)).into_response()
}

async fn acquire(State(fake): State<Arc<Fake>>, body: Bytes) -> Response {
    let request: Value = serde_json::from_slice(&body).expect("JSON");
    fake.change(|seen| seen.acquired.push(request));
    let mut seen = fake.seen.subscribe();
    let refusal = {
        let decided = seen.wait_for(|seen| seen.grant || seen.refusal.is_some()).await;
        decided.expect("open").refusal.clone()
    };
    if let Some(problem) = refusal {
        return (StatusCode::CONFLICT, axum::Json(problem)).into_response();
    }
    fake.renew();
    axum::Json(fake.view("held")).into_response()
}

async fn release(State(fake): State<Arc<Fake>>, body: Bytes) -> Response {
    let request: Value = serde_json::from_slice(&body).expect("JSON");
    fake.change(|seen| seen.released.push(request));
    axum::Json(json!({"released": true})).into_response()
}

async fn status(State(fake): State<Arc<Fake>>) -> Response {
    fake.change(|seen| seen.asked += 1);
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("this boot");
    axum::Json(json!({
        "agent": {"version": "0", "pid": 1, "host_id": "h", "host": "web-1",
            "boot_id": boot.trim(), "uptime_ms": 1, "sessions": 1, "holds": 1, "waiters": 0},
        "upstream": {"kind": "fake", "state": "up", "guarantee": "none",
            "beat_lateness": {"beats": 0, "max_us": 0, "p50_us": 0, "p999_us": 0}},
        "sessions": [{"session": fake.session, "name": "x", "surface": "cli", "tenant": "default",
            "project": "default", "uid": 0, "tether": "connection", "role": "none", "streams": 1,
            "holds": [fake.view("held")]}]
    }))
    .into_response()
}

async fn doctor(State(fake): State<Arc<Fake>>) -> Response {
    axum::Json(json!({"checks": fake.seen(|seen| seen.checks.clone())})).into_response()
}

/// Counts an open stream.
struct Open(Arc<Fake>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.change(|seen| seen.streams -= 1);
    }
}

async fn events(State(fake): State<Arc<Fake>>) -> Response {
    let (sender, frames) = mpsc::channel::<Bytes>(64);
    // The first stream is told of a time before the grant.
    let held = fake.seen(|seen| seen.valid_until != 0 && seen.registered.len() > 1);
    let holds = if held { vec![fake.view("held")] } else { vec![] };
    let snapshot = json!({"session": fake.session, "role": "none", "holds": holds});
    let first = format!("event: snapshot\ndata: {snapshot}\n\n");
    sender.try_send(Bytes::from(first)).expect("room");
    fake.streams.lock().expect("unpoisoned").push(sender);
    fake.change(|seen| seen.streams += 1);
    let body = Body::new(EventBody { frames, _counted: Open(fake) });
    ([(header::CONTENT_TYPE, "text/event-stream")], body).into_response()
}

struct EventBody {
    frames: mpsc::Receiver<Bytes>,
    _counted: Open,
}

impl hyper::body::Body for EventBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.frames.poll_recv(context).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}
