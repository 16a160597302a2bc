//! A fuzzer of all faces at once: the same requests, drawn from seeds by the types of their fields, go to every face of
//! agent and gateway that has a word for them, and are accepted or refused alike.
//!
//! `request` and `value` draw; `agent`, `upstream`, `sessions`, `people`, `mailboxes` and `commands` write what was drawn
//! in the words of a face; `rules` says what each must answer, `verdict` what it answered; `names` draws names and compares
//! what is said of them; `lane` is a caller,
//! `servers` are the programs that are called, `aftermath` is what they must not have written.

mod aftermath;
mod agent;
mod call;
mod commands;
pub mod document;
mod json;
mod lane;
mod mailboxes;
mod names;
mod people;
mod report;
mod request;
mod rules;
mod servers;
mod sessions;
mod terminal;
mod upstream;
mod value;
mod verdict;
mod wire;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_stores::gateway::scope::Mark;
use uuid::Uuid;

use self::call::Call;
use self::lane::Lane;
pub use self::report::Report;
use self::request::Request;
pub use self::servers::Store;
use self::servers::{Logs, Servers};
use crate::harness::boottime_ns;

/// A way in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Face {
    /// The agent's API.
    Agent,
    /// The gateway's, for agents.
    Upstream,
    /// The gateway's session plane.
    Sessions,
    /// The gateway's, for people.
    People,
    /// The gateway's control plane.
    Mailboxes,
    /// `tenured-gateway keys`.
    Keys,
    /// `tenure`.
    Command,
}

impl Face {
    pub const ALL: [Face; 7] = [
        Face::Agent,
        Face::Upstream,
        Face::Sessions,
        Face::People,
        Face::Mailboxes,
        Face::Keys,
        Face::Command,
    ];
}

impl fmt::Display for Face {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Face::Agent => "agent's API",
            Face::Upstream => "gateway for agents",
            Face::Sessions => "session plane",
            Face::People => "gateway for people",
            Face::Mailboxes => "gRPC",
            Face::Keys => "keys command",
            Face::Command => "tenure command",
        })
    }
}

/// A caller's session and mark.
#[derive(Debug, Clone)]
pub struct Own {
    /// Its session at the agent.
    pub agent_session: String,
    /// The end of its ids at the gateway.
    pub mark: Mark,
}

impl Own {
    /// The id that a request has of its own, if nothing is wrong with it.
    fn id(&self, request: &Request) -> String {
        self.mark.scoped(Uuid::from_u128(request.id)).to_string()
    }
}

/// A request in the words of every face that has some for it.
fn calls(request: &Request, own: &Own) -> Vec<Call> {
    let of_all = [
        agent::call(request, own),
        upstream::call(request, own),
        sessions::call(request, own),
        people::call(request),
        mailboxes::call(request),
        commands::call(request),
    ];
    of_all.into_iter().flatten().collect()
}

/// Settings of a run.
#[derive(Debug, Clone)]
pub struct Options {
    pub requests: u64,
    /// Of the first request; the others follow.
    pub seed: u64,
    /// Callers at once.
    pub lanes: usize,
    pub store: Store,
    /// Each request is one about a name, in every operation that has it.
    pub names: bool,
    /// Shows the calls and the answers of each request.
    pub shows: bool,
    /// A reply that took longer than [`SLOW`] is a failure.
    pub strict: bool,
}

impl Options {
    /// What is drawn.
    fn what(&self) -> &'static str {
        if self.names { "names" } else { "requests" }
    }
}

/// No reply takes longer, on a machine that is not busy with something else.
pub const SLOW: Duration = Duration::from_secs(1);
/// Time between two lines of progress.
const PROGRESS_EVERY: Duration = Duration::from_secs(10);

/// Sends the requests to all faces, and looks at what they left.
pub fn run(options: &Options) -> Report {
    let report = Arc::new(Mutex::new(Report::new(options)));
    // Half of the callers each: one set writes its logs for people, the other for machines.
    let servers = [Logs::Human, Logs::Json].map(|logs| Servers::start(options.store, logs));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("threads can be started");
    let began = boottime_ns();
    let next = Arc::new(AtomicU64::new(0));
    runtime.block_on(async {
        let mut lanes = tokio::task::JoinSet::new();
        for number in 0..options.lanes {
            let lane = Lane::open(&servers[number % servers.len()], number).await;
            let (next, report) = (Arc::clone(&next), Arc::clone(&report));
            lanes.spawn(work(lane, next, report, options.clone()));
        }
        let mut ticks = tokio::time::interval(PROGRESS_EVERY);
        ticks.tick().await;
        loop {
            tokio::select! {
                ended = lanes.join_next() => match ended {
                    Some(ended) => ended.expect("a lane ends by itself"),
                    None => break,
                },
                _ = ticks.tick() => {
                    let seconds = (boottime_ns() - began) / 1_000_000_000;
                    let done = next.load(Ordering::Relaxed).min(options.requests);
                    println!("{done} of {} {}, {seconds} s", options.requests, options.what());
                }
            }
        }
    });
    let mut report = std::mem::replace(&mut *lock(&report), Report::new(options));
    report.took = Duration::from_nanos(boottime_ns() - began);
    for servers in servers {
        aftermath::look(servers, &runtime, &mut report);
    }
    report
}

async fn work(mut lane: Lane, next: Arc<AtomicU64>, report: Arc<Mutex<Report>>, options: Options) {
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= options.requests || lock(&report).is_enough() {
            return;
        }
        let seed = options.seed.wrapping_add(number);
        match options.names {
            true => lane.ask_of_name(&names::draw(seed), &report, options.shows).await,
            false => lane.ask_of_all(&Request::draw(seed), &report, options.shows).await,
        }
    }
}

fn lock(report: &Mutex<Report>) -> std::sync::MutexGuard<'_, Report> {
    report.lock().expect("nothing panics with it")
}
