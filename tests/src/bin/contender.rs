//! A contender that uses the Rust SDK: acquires, stays inside for a while, and releases, again and again.
//!
//! One wait of four is impatient, and is given up.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};
use tenure::client::CallError;
use tenure::{AcquireError, Agent, Resource};
use tenure_tests::harness::Http;
use uuid::Uuid;

const USAGE: &str = "usage: contender SOCKET WITNESS KIND LIMIT NAME";

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
    let [socket, witness, kind, limit, name] = &arguments[..] else { anyhow::bail!(USAGE) };
    let agent = Agent::connect_to(socket).await?;
    let session = agent.session().name(name).project("mixed").open().await?;
    let resource = match kind.as_str() {
        "leader" => session.leader("mixed"),
        "semaphore" => session.semaphore("mixed", limit.parse()?),
        "master" => session.master(),
        _ => anyhow::bail!(USAGE),
    };
    let own = json!({"kind": kind, "name": name});
    let mut witness = Http::new(Path::new(witness));
    loop {
        let Some(hold) = acquire(&resource).await? else {
            // Its place is given back in the background, and must not be taken for that of its next wait.
            while resource.standing().await?.waiters.iter().any(|waiter| waiter.name == *name) {
                tokio::task::yield_now().await;
            }
            tell(&mut witness, "/gave_up", &own)?;
            continue;
        };
        let mut entry = own.clone();
        entry["pid"] = json!(std::process::id());
        entry["token"] = json!(hold.token().to_string());
        tell(&mut witness, "/enter", &entry)?;
        #[expect(clippy::disallowed_methods, reason = "a stay of some ms")]
        let stay = tokio::time::sleep(Duration::from_millis(chance(20)));
        hold.guard(stay).await?;
        tell(&mut witness, "/leave", &own)?;
        hold.release().await?;
    }
}

async fn acquire(resource: &Resource) -> Result<Option<tenure::Hold>, AcquireError> {
    if chance(4) > 0 {
        return resource.acquire().await.map(Some);
    }
    match resource.acquire_timeout(Duration::from_millis(50)).await {
        Err(AcquireError::TimedOut { .. }) => Ok(None),
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
