//! Clients that take all that the agent gives, and the one beside them that must not notice. A test or
//! the benchmark starts them as users of their own.
//!
//! `attacker SOCKET ATTACK [NUMBER…]` gets ready, says so in a line of JSON, and begins when it is sent a line.
//! With the next line it says what it saw, and goes on; it ends with its standard input.

mod connection;
mod leases;
mod requests;
mod rounds;
mod target;
mod victim;

use std::collections::VecDeque;
use std::io::{self, BufRead as _};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::Context as _;
use connection::get;
use leases::Leases;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use requests::page_of;
use rounds::{call_once, come, pairs, project, read_status};
use serde_json::{Value, json};
use target::{Ready, Target};
use tenure_tests::harness::boottime_ns;
use tokio::sync::mpsc::{Receiver, channel};
use tokio::task::{LocalSet, spawn_local};
use victim::victim;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let socket =
        PathBuf::from(arguments.next().context("usage: attacker SOCKET ATTACK [NUMBER…]")?);
    let name = arguments.next().context("usage: attacker SOCKET ATTACK [NUMBER…]")?;
    let numbers: Vec<usize> = arguments.map(|it| it.parse()).collect::<Result<_, _>>()?;
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, run(&socket, &name, &numbers))
}

async fn run(socket: &Path, name: &str, numbers: &[usize]) -> anyhow::Result<()> {
    let target = Rc::new(Target { socket: socket.to_owned(), seen: std::cell::RefCell::default() });
    let mut orders = orders();
    let number = |at: usize| numbers.get(at).copied().context("a number is missing");
    if name == "victim" {
        return victim(&target, &mut orders).await;
    }
    let mut ready = Ready::default();
    let mut attack: Attack = match name {
        "hog" => Attack::Hog,
        "project" => Attack::Project { sessions: number(0)? },
        "listeners" => {
            for _ in 0..number(0)? {
                let session =
                    target.session(&json!({"project": "web", "tether": "process"})).await?;
                spawn_local(Rc::clone(&target).listen(session));
            }
            Attack::Come
        }
        "status" | "routes" | "standing" => {
            ready = target.fill(name, number(0)?, number(1)?).await?;
            Attack::Unread { request: get(page_of(name), 8), connections: number(2)? }
        }
        "observer" => {
            ready = target.fill("standing", number(0)?, number(1)?).await?;
            Attack::Observe
        }
        "dashboards" => {
            ready = target.fill("status", number(0)?, number(1)?).await?;
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
            let connection = target.connect().await;
            let mut leases = Leases {
                target: Rc::clone(&target),
                connection,
                holds: number(0)?,
                taken: VecDeque::new(),
            };
            while leases.take().await {}
            Attack::Refill(Some(leases))
        }
        "log" => Attack::Pairs,
        other => anyhow::bail!("there is no attack {other:?}"),
    };
    say(&json!({"ready": true, "sessions": ready.sessions.len(), "holds": ready.holds.len()}));
    let Some(()) = orders.recv().await else { return Ok(()) };
    attack.begin(&target, &mut ready).await?;
    while orders.recv().await.is_some() {
        say(&json!({"seen": *target.seen.borrow()}));
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
    async fn begin(&mut self, target: &Rc<Target>, ready: &mut Ready) -> anyhow::Result<()> {
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
                spawn_local(Rc::clone(target).forever(project, *sessions));
            }
            Attack::Come => {
                spawn_local(Rc::clone(target).forever(come, 0));
            }
            Attack::Unread { request, connections } => {
                let request: Rc<[u8]> = Rc::from(request.as_slice());
                for _ in 0..*connections {
                    spawn_local(Rc::clone(target).unread(Rc::clone(&request)));
                }
            }
            Attack::Observe => {
                let request = get("/v1/observe?kind=semaphore&name=big", 1);
                spawn_local(Rc::clone(target).unread(Rc::from(request.as_slice())));
                spawn_local(Rc::clone(target).release_all(std::mem::take(&mut ready.holds)));
            }
            Attack::Read { connections } => {
                for _ in 0..*connections {
                    spawn_local(Rc::clone(target).forever(read_status, 0));
                }
            }
            Attack::Churn { connections } => {
                for _ in 0..*connections {
                    spawn_local(Rc::clone(target).forever(call_once, 0));
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
                spawn_local(Rc::clone(target).forever(pairs, 0));
            }
        }
        Ok(())
    }
}
