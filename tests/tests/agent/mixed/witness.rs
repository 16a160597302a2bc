//! The witness whom contenders tell that they are inside. It knows nothing of agents.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use serde::Deserialize;
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// The holders of a kind that there may be at once.
pub(crate) fn limit_of(kind: &str) -> usize {
    if kind == "semaphore" { 3 } else { 1 }
}

/// A contender's word.
#[derive(Deserialize)]
pub(crate) struct Word {
    pub(crate) kind: String,
    /// A name for each process that waits; for each of several threads or tasks `NAME#NUMBER`.
    pub(crate) name: String,
    pub(crate) pid: Option<u32>,
    /// As text: JavaScript's numbers end at 2^53.
    pub(crate) token: Option<String>,
}

/// The end of a wait.
pub(crate) struct Outcome {
    pub(crate) kind: String,
    pub(crate) name: String,
    /// `None` when it was given up.
    pub(crate) token: Option<u64>,
}

/// Waiters in their order, as a standing showed them. How many outcomes were known before it was asked
/// for, and after.
pub(crate) struct Queue {
    pub(crate) kind: &'static str,
    pub(crate) waiters: Vec<String>,
    pub(crate) before: usize,
    pub(crate) after: usize,
}

/// More were inside at once than may be, as they said.
struct Crowd {
    kind: String,
    what: String,
    /// Those of them who have not looked at their holds since.
    inside: Vec<String>,
    /// Those who have, and whose hold was valid still.
    valid: usize,
}

/// The one who judges.
#[derive(Default)]
pub(crate) struct Judge {
    inside: BTreeMap<String, Vec<(String, u32)>>,
    crowds: Vec<Crowd>,
    tokens: BTreeMap<String, BTreeSet<u64>>,
    pub(crate) outcomes: Vec<Outcome>,
    pub(crate) queues: Vec<Queue>,
    pub(crate) faults: Vec<String>,
    /// Holds that were lost while somebody was inside.
    pub(crate) losses: usize,
}

impl Judge {
    /// Somebody is inside. Only who can still act counts, so that `lives` is asked of everybody.
    pub(crate) fn enter(
        &mut self,
        kind: &str,
        name: &str,
        pid: u32,
        token: u64,
        lives: impl Fn(u32) -> bool,
    ) {
        let inside = self.inside.entry(kind.to_owned()).or_default();
        inside.retain(|(_, pid)| lives(*pid));
        if !lives(pid) {
            return;
        }
        let is_crowd = inside.len() >= limit_of(kind);
        inside.push((name.to_owned(), pid));
        if is_crowd {
            self.crowds.push(Crowd {
                kind: kind.to_owned(),
                what: format!("{name} (token {token}) is inside with others: {inside:?}"),
                inside: inside.iter().map(|(name, _)| name.clone()).collect(),
                valid: 0,
            });
        }
        let tokens = self.tokens.entry(kind.to_owned()).or_default();
        let last = tokens.last().copied().unwrap_or(0);
        if !tokens.insert(token) || (limit_of(kind) == 1 && token < last) {
            self.faults.push(format!("{kind}: {name} has token {token} after {last}"));
        }
        self.outcomes.push(Outcome { kind: kind.into(), name: name.into(), token: Some(token) });
    }

    /// Somebody is not inside any more, and had a valid hold to the last. A crowd of these alone is one too many: the hold
    /// of any other may have ended before the crowd came together.
    pub(crate) fn leave(&mut self, kind: &str, name: &str) {
        self.inside.entry(kind.to_owned()).or_default().retain(|(inside, _)| inside != name);
        for crowd in self.crowds.iter_mut().filter(|crowd| crowd.kind == kind) {
            let before = crowd.inside.len();
            crowd.inside.retain(|inside| inside != name);
            crowd.valid += before - crowd.inside.len();
            if before > crowd.inside.len() && crowd.valid > limit_of(kind) {
                self.faults.push(format!("{kind}: {}", crowd.what));
            }
        }
    }

    /// Somebody is not inside any more: the hold was lost.
    pub(crate) fn lost(&mut self, kind: &str, name: &str) {
        self.inside.entry(kind.to_owned()).or_default().retain(|(inside, _)| inside != name);
        for crowd in self.crowds.iter_mut().filter(|crowd| crowd.kind == kind) {
            crowd.inside.retain(|inside| inside != name);
        }
        self.losses += 1;
    }

    /// Somebody does not wait any more.
    pub(crate) fn gave_up(&mut self, kind: &str, name: &str) {
        self.outcomes.push(Outcome { kind: kind.into(), name: name.into(), token: None });
    }

    /// The process of that name, while it is inside.
    pub(crate) fn insider(&self, name: &str) -> Option<u32> {
        let mut inside = self.inside.values().flatten();
        inside.find_map(|(inside, pid)| (process_of(inside) == name).then_some(*pid))
    }

    /// Whoever stood before another in a queue has the smaller token. Returns how many were compared.
    pub(crate) fn check_order(&mut self) -> usize {
        let mut compared = 0;
        for queue in &self.queues {
            let same =
                |outcome: &&Outcome, name: &str| outcome.kind == queue.kind && outcome.name == name;
            let meanwhile = &self.outcomes[queue.before..queue.after];
            let later = &self.outcomes[queue.after..];
            let mut last: Option<(&str, u64)> = None;
            for name in &queue.waiters {
                // It may be its wait of before that had ended.
                if meanwhile.iter().any(|outcome| same(&outcome, name)) {
                    continue;
                }
                let outcome = later.iter().find(|outcome| same(outcome, name));
                let Some(token) = outcome.and_then(|outcome| outcome.token) else { continue };
                if let Some((earlier, before)) = last {
                    compared += 1;
                    if token < before {
                        self.faults.push(format!(
                            "{}: {name} (token {token}) overtook {earlier} (token {before})",
                            queue.kind
                        ));
                    }
                }
                last = Some((name, token));
            }
        }
        compared
    }
}

fn process_of(name: &str) -> &str {
    name.split_once('#').map_or(name, |(process, _)| process)
}

/// The judge behind a Unix socket.
pub(crate) struct Witness {
    judge: Arc<Mutex<Judge>>,
    dir: TempDir,
    _runtime: Runtime,
}

type Shared = State<Arc<Mutex<Judge>>>;

impl Witness {
    pub(crate) fn start() -> Witness {
        let dir = TempDir::with_prefix("witness-").expect("a temporary directory");
        let judge = Arc::new(Mutex::new(Judge::default()));
        let runtime = Runtime::new().expect("a runtime");
        let listener =
            runtime.block_on(async { tokio::net::UnixListener::bind(dir.path().join("socket")) });
        let listener = listener.expect("a socket in an empty directory");
        let router = Router::new()
            .route("/enter", post(enter))
            .route("/leave", post(leave))
            .route("/lost", post(lost))
            .route("/gave_up", post(gave_up))
            .with_state(Arc::clone(&judge));
        runtime.spawn(async move { axum::serve(listener, router).await });
        Witness { judge, dir, _runtime: runtime }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("socket")
    }

    pub(crate) fn judge(&self) -> MutexGuard<'_, Judge> {
        self.judge.lock().expect("no judge panics")
    }
}

async fn enter(State(judge): Shared, Json(word): Json<Word>) -> StatusCode {
    let token = word.token.and_then(|token| token.parse().ok());
    let (Some(pid), Some(token)) = (word.pid, token) else { return StatusCode::BAD_REQUEST };
    judge.lock().expect("no judge panics").enter(&word.kind, &word.name, pid, token, lives);
    StatusCode::OK
}

async fn leave(State(judge): Shared, Json(word): Json<Word>) -> StatusCode {
    judge.lock().expect("no judge panics").leave(&word.kind, &word.name);
    StatusCode::OK
}

async fn lost(State(judge): Shared, Json(word): Json<Word>) -> StatusCode {
    judge.lock().expect("no judge panics").lost(&word.kind, &word.name);
    StatusCode::OK
}

async fn gave_up(State(judge): Shared, Json(word): Json<Word>) -> StatusCode {
    judge.lock().expect("no judge panics").gave_up(&word.kind, &word.name);
    StatusCode::OK
}

/// True if a process can still act: it is there, does not end, and has no SIGKILL on its way. An agent learns
/// of a death only after that.
fn lives(pid: u32) -> bool {
    /// Of a process that ends: `PF_EXITING` of the kernel's `include/linux/sched.h`.
    const EXITING: u64 = 0x4;
    const SIGKILL: u64 = 1 << 8;
    let read =
        |file: &str| std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join(file));
    let (Ok(stat), Ok(status)) = (read("stat"), read("status")) else { return false };
    let Some((_, fields)) = stat.rsplit_once(')') else { return false };
    let mut fields = fields.split_whitespace();
    let state = fields.next();
    let flags: u64 = fields.nth(5).and_then(|flags| flags.parse().ok()).unwrap_or(EXITING);
    let killed = ["SigPnd:", "ShdPnd:"].iter().any(|key| {
        let mask = status.lines().find_map(|line| line.strip_prefix(key));
        mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
            .is_none_or(|mask| mask & SIGKILL != 0)
    });
    !killed && flags & EXITING == 0 && !matches!(state, Some("Z" | "X"))
}
