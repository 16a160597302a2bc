//! A contender that uses the Rust SDK: acquires, stays inside for a while, and releases, again and again.
//!
//! One wait of four is impatient, and is given up; none where several tasks contend. Half of these share a session, and
//! each other one has its own. They ask for the leader or for a permit of the semaphore, by chance, if the kind is
//! `either`.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};
use tenure::client::CallError;
use tenure::wire::Code;
use tenure::{AcquireError, Agent, ReleaseError, Resource, Session};
use tenure_tests::harness::Http;
use uuid::Uuid;

const USAGE: &str = "usage: contender SOCKET WITNESS KIND LIMIT NAME [TASKS]";

/// The agent had no processor for a second: as `tenure run` ends then.
const NO_ANSWER: u8 = 69;

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let Err(error) = contend().await else { return Ok(ExitCode::SUCCESS) };
    match error.downcast_ref::<AcquireError>() {
        Some(AcquireError::Call(CallError::TimedOut { .. })) => Ok(NO_ANSWER.into()),
        _ => Err(error),
    }
}

async fn contend() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [socket, witness, kind, limit, name, tasks @ ..] = &arguments[..] else {
        anyhow::bail!(USAGE)
    };
    let agent = Agent::connect_to(socket).await?;
    let contender = async |shared: Option<&Session>, name: &str| {
        let session = match shared {
            Some(shared) => shared.clone(),
            None => agent.session().name(name).project("mixed").open().await?,
        };
        anyhow::Ok(Contender {
            kind: kind.clone(),
            name: name.to_owned(),
            is_patient: !tasks.is_empty(),
            leader: session.leader("mixed"),
            semaphore: session.semaphore("mixed", limit.parse()?),
            master: session.master(),
            witness: Http::new(Path::new(witness)),
        })
    };
    let Some(tasks) = tasks.first() else { return contender(None, name).await?.contend().await };
    let tasks: usize = tasks.parse()?;
    let shared = agent.session().name(name).project("mixed").open().await?;
    let mut all = tokio::task::JoinSet::new();
    for task in 0..tasks {
        let shared = (task < tasks / 2).then_some(&shared);
        all.spawn(contender(shared, &format!("{name}#{task}")).await?.contend());
    }
    all.join_next().await.context(USAGE)??
}

struct Contender {
    kind: String,
    name: String,
    is_patient: bool,
    leader: Resource,
    semaphore: Resource,
    master: Resource,
    witness: Http,
}

impl Contender {
    async fn contend(mut self) -> anyhow::Result<()> {
        loop {
            let (kind, resource) = match (self.kind.as_str(), chance(2)) {
                ("leader", _) | ("either", 0) => ("leader", &self.leader),
                ("semaphore", _) | ("either", _) => ("semaphore", &self.semaphore),
                ("master", _) => ("master", &self.master),
                _ => anyhow::bail!(USAGE),
            };
            let own = json!({"kind": kind, "name": self.name});
            let Some(hold) = acquire(resource, self.is_patient).await? else {
                // Its place is given back in the background, and must not be taken for that of its next wait.
                while resource.standing().await?.waiters.iter().any(|it| it.name == self.name) {
                    tokio::task::yield_now().await;
                }
                tell(&mut self.witness, "/gave_up", &own)?;
                continue;
            };
            let mut entry = own.clone();
            entry["pid"] = json!(std::process::id());
            entry["token"] = json!(hold.token().to_string());
            tell(&mut self.witness, "/enter", &entry)?;
            #[expect(clippy::disallowed_methods, reason = "a stay of some ms")]
            let stay = tokio::time::sleep(Duration::from_millis(chance(20)));
            if hold.guard(stay).await.is_err() {
                tell(&mut self.witness, "/lost", &own)?;
                continue;
            }
            tell(&mut self.witness, "/leave", &own)?;
            match hold.release().await {
                Ok(()) | Err(ReleaseError::Lost(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

async fn acquire(
    resource: &Resource,
    is_patient: bool,
) -> Result<Option<tenure::Hold>, AcquireError> {
    if is_patient || chance(4) > 0 {
        return resource.acquire().await.map(Some);
    }
    match resource.acquire_timeout(Duration::from_millis(50)).await {
        Err(AcquireError::TimedOut { .. }) => Ok(None),
        // So short a wait may be over before the store has answered.
        Err(AcquireError::Call(error)) if error.code() == Some(Code::UpstreamUnavailable) => {
            Ok(None)
        }
        other => other.map(Some),
    }
}

/// A random number below `n`.
fn chance(n: u64) -> u64 {
    Uuid::new_v4().as_u64_pair().1 % n
}

fn tell(witness: &mut Http, path: &str, facts: &Value) -> anyhow::Result<()> {
    let answer = witness.try_once("POST", path, facts.to_string().as_bytes())?;
    anyhow::ensure!(answer.status == 200, "the witness says {}", answer.status);
    Ok(())
}
