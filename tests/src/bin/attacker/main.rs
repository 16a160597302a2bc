//! Clients that take all that the agent gives, and the one beside them that must not notice. A test or
//! the benchmark starts them as users of their own.
//!
//! `attacker SOCKET DEED [NUMBER…]` gets ready, says so in a line of JSON, and begins when it is sent a line.
//! With the next line it says what it saw, and goes on; it ends with its standard input.

mod connection;
mod leases;

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, BufRead as _};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use connection::{Connection, get, post};
use leases::Leases;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::{Value, json};
use tenure_tests::harness::boottime_ns;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::mpsc::{Receiver, channel};
use tokio::task::{LocalSet, spawn_local};

/// Requests that are sent before the first answer is read: few enough to fit into the socket.
const AT_ONCE: usize = 32;
/// As long as a name may be, with a number in front.
const NAME_LENGTH: usize = 200;
/// Most holds of a process.
const HOLDS_MAX: usize = 100_000;
/// Between two tries at a door that is closed.
const RETRY: Duration = Duration::from_millis(20);
/// Most statuses and errors that are told apart.
const SORTS_MAX: usize = 32;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let socket = PathBuf::from(arguments.next().context("usage: attacker SOCKET DEED [NUMBER…]")?);
    let deed = arguments.next().context("usage: attacker SOCKET DEED [NUMBER…]")?;
    let numbers: Vec<usize> = arguments.map(|it| it.parse()).collect::<Result<_, _>>()?;
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, run(&socket, &deed, &numbers))
}

async fn run(socket: &Path, deed: &str, numbers: &[usize]) -> anyhow::Result<()> {
    let scene = Rc::new(Scene { socket: socket.to_owned(), seen: std::cell::RefCell::default() });
    let mut orders = orders();
    let number = |at: usize| numbers.get(at).copied().context("a number is missing");
    if deed == "victim" {
        return victim(&scene, &mut orders).await;
    }
    let mut ready = Ready::default();
    let mut attack: Attack = match deed {
        "hog" => Attack::Hog,
        "project" => Attack::Project { sessions: number(0)? },
        "listeners" => {
            for _ in 0..number(0)? {
                let session =
                    scene.session(&json!({"project": "web", "tether": "process"})).await?;
                spawn_local(Rc::clone(&scene).listen(session));
            }
            Attack::Come
        }
        "status" | "routes" | "standing" => {
            ready = scene.fill(deed, number(0)?, number(1)?).await?;
            Attack::Unread { request: get(page_of(deed), 8), connections: number(2)? }
        }
        "observer" => {
            ready = scene.fill("standing", number(0)?, number(1)?).await?;
            Attack::Observe
        }
        "dashboards" => {
            ready = scene.fill("status", number(0)?, number(1)?).await?;
            Attack::Read { connections: number(2)? }
        }
        "bodies" => {
            let head = "POST /v1/register HTTP/1.1\r\nhost: a\r\ncontent-length: 65000\r\n\r\n";
            let request = format!("{head}{{\"name\":\"{}", "a".repeat(60_000)).into_bytes();
            Attack::Unread { request, connections: number(0)? }
        }
        "heads" => {
            let head = "GET /healthz HTTP/1.1\r\nhost: a\r\nx: ";
            let request = format!("{head}{}", "a".repeat(16 * 1024 - 100)).into_bytes();
            Attack::Unread { request, connections: number(0)? }
        }
        "openapi" => Attack::Unread { request: get("/openapi.json", 8), connections: number(0)? },
        "churn" => Attack::Churn { connections: number(0)? },
        "leases" => {
            let connection = scene.connect().await;
            let mut leases = Leases {
                scene: Rc::clone(&scene),
                connection,
                holds: number(0)?,
                taken: VecDeque::new(),
            };
            while leases.take().await {}
            Attack::Refill(Some(leases))
        }
        "log" => Attack::Pairs,
        other => anyhow::bail!("there is no deed {other:?}"),
    };
    say(&json!({"ready": true, "sessions": ready.sessions.len(), "holds": ready.holds.len()}));
    let Some(()) = orders.recv().await else { return Ok(()) };
    attack.begin(&scene, &mut ready).await?;
    while orders.recv().await.is_some() {
        say(&json!({"seen": *scene.seen.borrow()}));
    }
    Ok(())
}

/// Lines of standard input, one order each; its end is the end.
fn orders() -> Receiver<()> {
    let (told, orders) = channel(1);
    std::thread::spawn(move || {
        for _ in io::stdin().lock().lines().map_while(Result::ok) {
            if told.blocking_send(()).is_err() {
                return;
            }
        }
    });
    orders
}

fn say(line: &Value) {
    // Flushed by its end; fails when nobody listens any more.
    println!("{line}");
}

/// Sessions and holds that an attack begins with.
#[derive(Default)]
struct Ready {
    sessions: Vec<String>,
    /// With their sessions.
    holds: Vec<(String, String)>,
}

enum Attack {
    /// Uses a core.
    Hog,
    /// Sessions with streams of one project, that come and go.
    Project { sessions: usize },
    /// Short sessions beside those that listen.
    Come,
    /// Sends something, and neither reads nor ends it.
    Unread { request: Vec<u8>, connections: usize },
    /// Watches a semaphore without reading, and changes it.
    Observe,
    /// Reads all pages of the status in a loop.
    Read { connections: usize },
    /// Connects, asks, and goes.
    Churn { connections: usize },
    /// Ends some leases and takes as many again.
    Refill(Option<Leases>),
    /// Acquires and releases.
    Pairs,
}

impl Attack {
    async fn begin(&mut self, scene: &Rc<Scene>, ready: &mut Ready) -> anyhow::Result<()> {
        match self {
            Attack::Hog => {
                // A thread, so that the orders are heard.
                std::thread::spawn(|| {
                    loop {
                        std::hint::black_box(boottime_ns());
                    }
                });
            }
            Attack::Project { sessions } => {
                spawn_local(Rc::clone(scene).forever(project, *sessions));
            }
            Attack::Come => {
                spawn_local(Rc::clone(scene).forever(come, 0));
            }
            Attack::Unread { request, connections } => {
                let request: Rc<[u8]> = Rc::from(request.as_slice());
                for _ in 0..*connections {
                    spawn_local(Rc::clone(scene).unread(Rc::clone(&request)));
                }
            }
            Attack::Observe => {
                let request = get("/v1/observe?kind=semaphore&name=big", 1);
                spawn_local(Rc::clone(scene).unread(Rc::from(request.as_slice())));
                spawn_local(Rc::clone(scene).release_all(std::mem::take(&mut ready.holds)));
            }
            Attack::Read { connections } => {
                for _ in 0..*connections {
                    spawn_local(Rc::clone(scene).forever(read_status, 0));
                }
            }
            Attack::Churn { connections } => {
                for _ in 0..*connections {
                    spawn_local(Rc::clone(scene).forever(call_once, 0));
                }
            }
            Attack::Refill(leases) => {
                if let Some(mut leases) = leases.take() {
                    spawn_local(async move {
                        loop {
                            if !leases.take().await {
                                leases.give_back().await;
                            }
                        }
                    });
                }
            }
            Attack::Pairs => {
                spawn_local(Rc::clone(scene).forever(pairs, 0));
            }
        }
        Ok(())
    }
}

/// The agent, and what came of it.
struct Scene {
    socket: PathBuf,
    seen: std::cell::RefCell<BTreeMap<String, u64>>,
}

impl Scene {
    fn saw(&self, sort: &str) {
        let mut seen = self.seen.borrow_mut();
        if seen.len() < SORTS_MAX || seen.contains_key(sort) {
            *seen.entry(sort.to_owned()).or_default() += 1;
        }
    }

    /// Connects, however long that takes.
    async fn connect(&self) -> Connection {
        loop {
            match UnixStream::connect(&self.socket).await {
                Ok(stream) => return Connection { stream, unread: Vec::new() },
                Err(error) => self.saw(&error.kind().to_string()),
            }
            pause(RETRY).await;
        }
    }

    async fn session(&self, with: &Value) -> anyhow::Result<String> {
        self.connect().await.register(with).await
    }

    /// Sessions, each with so many holds or places in a queue.
    async fn fill(&self, of: &str, sessions: usize, holds: usize) -> anyhow::Result<Ready> {
        let mut ready = Ready::default();
        let mut connection = self.connect().await;
        // Names that no other process takes.
        let first = std::process::id() as usize * HOLDS_MAX;
        ensure!(sessions * holds <= HOLDS_MAX, "more than {HOLDS_MAX} holds");
        for number in 0..sessions {
            let with =
                json!({"name": long_name(number), "tether": "process", "holds": holds.max(63)});
            let session = connection.register(&with).await?;
            let asks: Vec<_> =
                (0..holds).map(|at| ask(of, &session, first + number * holds + at)).collect();
            for answer in connection.exchange_all(&asks).await? {
                ensure!(matches!(answer.status, 200 | 202), "not granted: {}", answer.text());
                ready.holds.push((session.clone(), answer.field("hold")?));
            }
            ready.sessions.push(session);
        }
        Ok(ready)
    }

    async fn forever(
        self: Rc<Self>,
        deed: impl AsyncFn(&Scene, usize) -> anyhow::Result<()>,
        size: usize,
    ) {
        loop {
            match deed(&self, size).await {
                Ok(()) => self.saw("done"),
                Err(error) => {
                    self.saw(&error.root_cause().to_string());
                    pause(RETRY).await;
                }
            }
        }
    }

    /// Reads a session's events until the agent ends the stream.
    async fn listen(self: Rc<Self>, session: String) {
        let mut connection = self.connect().await;
        let open = get(&format!("/v1/events?session={session}"), 1);
        let mut scrap = vec![0; 64 * 1024];
        if connection.stream.write_all(&open).await.is_ok() {
            while connection.stream.read(&mut scrap).await.is_ok_and(|read| read > 0) {}
        }
        self.saw("listener cut off");
    }

    /// Sends that and waits, without reading, until the agent has had enough.
    async fn unread(self: Rc<Self>, request: Rc<[u8]>) {
        loop {
            let mut connection = self.connect().await;
            let sent = connection.stream.write_all(&request).await;
            if sent.is_ok() {
                self.saw("sent");
                // Ends when the other side has closed it, whatever there is to read.
                let _ = connection.closed().await;
                let status = connection.status().await;
                self.saw(&status.map_or("closed".to_owned(), |status| status.to_string()));
            } else {
                self.saw("not sent");
            }
            pause(RETRY).await;
        }
    }

    async fn release_all(self: Rc<Self>, holds: Vec<(String, String)>) {
        let mut connection = self.connect().await;
        for (session, hold) in holds {
            let release = post("/v1/release", &json!({"session": session, "hold": hold}));
            match connection.exchange(&release).await {
                Ok(answer) => self.saw(&answer.status.to_string()),
                Err(error) => self.saw(&error.to_string()),
            }
        }
        self.saw("nothing left");
    }
}

/// Sessions of one project, each with a stream that is opened and closed; then all of them end.
async fn project(scene: &Scene, sessions: usize) -> anyhow::Result<()> {
    let mut connection = scene.connect().await;
    let mut begun = Vec::new();
    for number in 0..sessions {
        let with = json!({"name": long_name(number), "project": "p", "tether": "process"});
        let session = connection.register(&with).await?;
        let mut stream = scene.connect().await;
        stream.stream.write_all(&get(&format!("/v1/events?session={session}"), 1)).await?;
        stream.more().await?;
        begun.push(session);
    }
    for session in begun {
        connection.exchange(&post("/v1/release", &json!({"session": session}))).await?;
    }
    Ok(())
}

/// A session that comes and goes, as of a short job.
async fn come(scene: &Scene, _: usize) -> anyhow::Result<()> {
    let mut connection = scene.connect().await;
    for _ in 0..10 {
        let session = connection.register(&json!({"project": "web", "tether": "process"})).await?;
        connection.exchange(&post("/v1/release", &json!({"session": session}))).await?;
    }
    Ok(())
}

async fn read_status(scene: &Scene, _: usize) -> anyhow::Result<()> {
    let mut connection = scene.connect().await;
    let mut path = page_of("status").to_owned();
    loop {
        let answer = connection.exchange(&get(&path, 1)).await?;
        scene.saw(&answer.status.to_string());
        ensure!(answer.status == 200, "{}", answer.sort());
        let Ok(cursor) = answer.field("cursor") else { return Ok(()) };
        path = format!("{}&cursor={cursor}", page_of("status"));
    }
}

async fn call_once(scene: &Scene, _: usize) -> anyhow::Result<()> {
    let answer = scene.connect().await.exchange(&get("/healthz", 1)).await?;
    scene.saw(&answer.status.to_string());
    Ok(())
}

/// A session with as many permits as make the longest lines in a log.
async fn pairs(scene: &Scene, _: usize) -> anyhow::Result<()> {
    let mut connection = scene.connect().await;
    loop {
        let session =
            connection.register(&json!({"name": long_name(0), "tether": "process"})).await?;
        let mut requests: Vec<_> = (0..63).map(|at| ask("permits", &session, at)).collect();
        requests.push(post("/v1/release", &json!({"session": session})));
        for answer in connection.exchange_all(&requests).await? {
            scene.saw(&answer.sort());
        }
    }
}

/// Holds a leader with a short ttl, and acquires and releases all the time. Tells with each order how that went
/// since the one before.
async fn victim(scene: &Rc<Scene>, orders: &mut Receiver<()>) -> anyhow::Result<()> {
    const BETWEEN: Duration = Duration::from_millis(4);
    let mut connection = scene.connect().await;
    let session = connection.register(&json!({"name": "victim", "tether": "process"})).await?;
    let claim = json!({"session": session, "kind": "leader", "name": "victim", "ttl_ms": 2000});
    let granted = connection.exchange(&post("/v1/acquire", &claim)).await?;
    ensure!(granted.status == 200, "not granted: {}", granted.text());
    say(&json!({"ready": true}));
    let acquire = json!({"session": session, "kind": "semaphore", "name": "victim", "limit": 4});
    let acquire = post("/v1/acquire", &acquire);
    let look = post("/v1/checkpoint", &json!({"session": session}));
    let mut times_ms = Vec::new();
    loop {
        let ordered = tokio::time::timeout(BETWEEN, orders.recv()).await;
        if let Ok(order) = ordered {
            if order.is_none() {
                return Ok(());
            }
            let held = connection.exchange(&look).await.map(|answer| answer.text());
            let held = held.is_ok_and(|text| text.contains(r#""state":"held""#));
            let times_ms = std::mem::take(&mut times_ms);
            let failures = std::mem::take(&mut *scene.seen.borrow_mut());
            say(&json!({"times_ms": times_ms, "held": held, "failures": failures}));
        }
        let began_ns = boottime_ns();
        let pair = async {
            let granted = connection.exchange(&acquire).await?;
            ensure!(granted.status == 200, "{}", granted.sort());
            let hold = granted.field("hold")?;
            let release = post("/v1/release", &json!({"session": session, "hold": hold}));
            anyhow::Ok(connection.exchange(&release).await?)
        };
        if let Err(error) = pair.await {
            scene.saw(&error.root_cause().to_string());
            connection = scene.connect().await;
        }
        times_ms.push((boottime_ns() - began_ns) as f64 / 1e6);
    }
}

#[expect(clippy::disallowed_methods, reason = "the pace of a load, no deadline")]
async fn pause(length: Duration) {
    tokio::time::sleep(length).await;
}

fn long_name(number: usize) -> String {
    format!("{number:n<NAME_LENGTH$}")
}

fn page_of(deed: &str) -> &'static str {
    match deed {
        "status" => "/v1/status?limit=1000",
        "routes" => "/v1/routes?limit=1000",
        _ => "/v1/standing?kind=semaphore&name=big",
    }
}

fn ask(of: &str, session: &str, number: usize) -> Vec<u8> {
    let name = long_name(number);
    let ask = match of {
        "routes" => {
            // 399 bytes: the sum is bounded.
            let long = "a".repeat(133);
            let attributes = json!({"address": long, "proxy_id": long, "status": long});
            json!({"kind": "lease", "name": name, "ttl_ms": 86_400_000, "attributes": attributes})
        }
        "standing" => {
            json!({"kind": "semaphore", "name": "big", "limit": 1, "wait": "queue", "ttl_ms": 600_000})
        }
        "permits" => json!({"kind": "semaphore", "name": name, "limit": 1000}),
        _ => json!({"kind": "leader", "name": name, "ttl_ms": 600_000}),
    };
    let mut ask = ask;
    ask["session"] = json!(session);
    post("/v1/acquire", &ask)
}
