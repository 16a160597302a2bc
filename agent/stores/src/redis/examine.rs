//! A thorough look at a Redis: what of it breaks, or will break, what Tenure promises.

mod clocks;
mod info;
mod judge;
mod rights;
mod tracking;

use std::time::Duration;

pub(super) use info::Info;
use judge::{Denial, judge};
use redis::{Cmd, FromRedisValue, Pipeline, RedisError, Value, pipe};
pub use rights::rules as acl_rules;
use rights::{Need, grant};
use tenure_wire::{Check, Verdict};
use tokio::time::timeout;

use super::connection::Connection;
use super::layout::Layout;

/// Names of checks: stable, since programs look for them.
mod names {
    pub(super) const SERVER: &str = "redis.server";
    pub(super) const TOPOLOGY: &str = "redis.topology";
    pub(super) const DATABASE: &str = "redis.database";
    pub(super) const EVICTION: &str = "redis.eviction";
    pub(super) const MEMORY: &str = "redis.memory";
    pub(super) const REPLICATION: &str = "redis.replication";
    pub(super) const PERSISTENCE: &str = "redis.persistence";
    pub(super) const CLIENTS: &str = "redis.clients";
    pub(super) const RIGHTS: &str = "redis.rights";
    pub(super) const TENANT_RIGHTS: &str = "redis.tenant_rights";
    pub(super) const TRACKING: &str = "redis.tracking";
    pub(super) const KEYSPACE_EVENTS: &str = "redis.keyspace_events";
    pub(super) const LATENCY: &str = "redis.latency";
    pub(super) const CLOCK: &str = "redis.clock";
    pub(super) const SCORES: &str = "redis.scores";
    pub(super) const INFO: &str = "redis.info";
}

/// Its finding names semaphores.
pub const NAMING_CHECK: &str = names::SCORES;

/// How long one question may take.
const ANSWER_MAX: Duration = Duration::from_millis(1000);

/// Looks at everything over that connection, which must not be one that listens to pushes. Changes
/// nothing on the server, but that `ACL LOG` tells of what was denied.
pub(super) async fn look(connection: Connection, layout: &Layout, checks: &mut Vec<Check>) {
    let asker = &mut Asker { connection };
    let client = Client::ask(asker).await;
    checks.push(client.database());
    match asker.ask::<String>(&["INFO"]).await {
        Ok(info) => {
            let info = Info::parse(&info);
            let policy = match info.text("maxmemory_policy") {
                Some(_) => None,
                None => asker.setting("maxmemory-policy").await.ok(),
            };
            checks.extend(info.checks(policy.as_deref()));
        }
        Err(why) => {
            checks.push(Check::unknown(
                names::INFO,
                format!("version, memory, replicas, persistence and clients: {why}"),
                grant(&client.user, "+info"),
            ));
            let policy = asker.setting("maxmemory-policy").await.ok();
            checks.push(info::eviction(policy.as_deref(), None));
        }
    }
    checks.extend(rights(asker, layout, &client.user).await);
    checks.extend(tracking::look(asker, layout, &client.user).await);
    checks.extend(clocks::look(asker, layout, &client.user).await);
}

/// As whom and where this connection is.
struct Client {
    user: String,
    db: Option<u32>,
}

impl Client {
    async fn ask(asker: &mut Asker) -> Client {
        let client: String = asker.ask(&["CLIENT", "INFO"]).await.unwrap_or_default();
        let field = |name: &str| {
            client.split_whitespace().find_map(|field| field.strip_prefix(name)?.strip_prefix('='))
        };
        let db = field("db").and_then(|db| db.parse().ok());
        let user = match field("user") {
            Some(user) => user.to_owned(),
            None => asker.ask(&["ACL", "WHOAMI"]).await.unwrap_or_else(|_| "NAME".to_owned()),
        };
        Client { user, db }
    }

    fn database(&self) -> Check {
        match self.db {
            Some(db) => {
                let detail =
                    format!("number {db}; agents and programs meet only if they use the same one");
                Check::ok(names::DATABASE, detail)
            }
            None => Check::unknown(
                names::DATABASE,
                "the server does not say which database this is",
                grant(&self.user, "+client|info +acl|whoami"),
            ),
        }
    }
}

/// The rights that the user of that connection lacks, in words.
pub(super) async fn lacks(connection: Connection, layout: &Layout) -> Option<String> {
    let asker = &mut Asker { connection };
    let client = Client::ask(asker).await;
    let checks = rights(asker, layout, &client.user).await;
    let is_lack = |check: &Check| check.name == names::RIGHTS && check.verdict == Verdict::Failure;
    checks.into_iter().find(is_lack).map(|check| check.detail)
}

/// Tries everything that is needed, without doing any of it.
async fn rights(asker: &mut Asker, layout: &Layout, user: &str) -> Vec<Check> {
    let needs = rights::needs(layout);
    let tried = match asker.dry_run(user, &needs).await {
        Ok(denials) => Ok(denials),
        Err(_) => asker.queue_only(&needs).await,
    };
    match tried {
        Ok(denials) => judge(layout, user, &needs, &denials),
        Err(why) => vec![Check::unknown(
            names::RIGHTS,
            format!("cannot be tried without doing harm: {why}"),
            grant(user, "+multi +discard"),
        )],
    }
}

/// Why a question has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum NoAnswer {
    /// The user may not ask it, or the command was renamed.
    #[error("the agent's user may not ask: {0}")]
    Forbidden(String),
    /// Another error.
    #[error("{0}")]
    Failed(String),
    /// It did not answer in time.
    #[error("no answer within {} ms", ANSWER_MAX.as_millis())]
    Silent,
}

impl From<RedisError> for NoAnswer {
    fn from(error: RedisError) -> NoAnswer {
        let text = words(&error);
        match Denial::read(&text) {
            Some(_) => NoAnswer::Forbidden(text),
            None => NoAnswer::Failed(text),
        }
    }
}

/// A server's error in the server's words.
fn words(error: &RedisError) -> String {
    let said = match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        _ => error.to_string(),
    };
    said.split(", with args beginning with").next().unwrap_or_default().to_owned()
}

/// Asks the server, with a deadline for each question.
struct Asker {
    connection: Connection,
}

impl Asker {
    async fn ask<T: FromRedisValue>(&mut self, words: &[&str]) -> Result<T, NoAnswer> {
        let command = command(words);
        let asked = timeout(ANSWER_MAX, command.query_async(&mut self.connection)).await;
        Ok(asked.map_err(|_| NoAnswer::Silent)??)
    }

    /// Answers, or errors, to each of several questions.
    async fn ask_all(
        &mut self,
        questions: &mut Pipeline,
    ) -> Result<Vec<Result<Value, RedisError>>, NoAnswer> {
        let asked = questions.ignore_errors().query_async(&mut self.connection);
        Ok(timeout(ANSWER_MAX, asked).await.map_err(|_| NoAnswer::Silent)??)
    }

    /// A setting as CONFIG tells it.
    async fn setting(&mut self, name: &str) -> Result<String, NoAnswer> {
        let pair: Vec<(String, String)> = self.ask(&["CONFIG", "GET", name]).await?;
        let value = pair.into_iter().next().map(|(_, value)| value);
        value.ok_or_else(|| NoAnswer::Failed(format!("there is no {name}")))
    }

    /// Has the server say what it would deny. Needs a right that few users have, and Redis 7.
    async fn dry_run(
        &mut self,
        user: &str,
        needs: &[Need],
    ) -> Result<Vec<Option<Denial>>, NoAnswer> {
        self.ask::<Value>(&["ACL", "DRYRUN", user, "PING"]).await?;
        let mut questions = pipe();
        for need in needs {
            questions.cmd("ACL").arg("DRYRUN").arg(user).arg(&need.words);
        }
        let answers = self.ask_all(&mut questions).await?;
        Ok(answers.into_iter().map(denial).collect())
    }

    /// Has the server queue everything for a transaction that is then discarded: it looks at rights
    /// when it queues.
    async fn queue_only(&mut self, needs: &[Need]) -> Result<Vec<Option<Denial>>, NoAnswer> {
        // Without the right to begin a transaction everything would be done.
        for answer in self.ask_all(pipe().cmd("MULTI").cmd("DISCARD")).await? {
            answer?;
        }
        let mut questions = pipe();
        // In one write: nothing of another user of this connection can come in between.
        questions.cmd("MULTI");
        for need in needs {
            questions.add_command(command(&need.words));
        }
        questions.cmd("DISCARD");
        let mut answers = self.ask_all(&mut questions).await?.into_iter();
        let begun = answers.next();
        debug_assert!(matches!(begun, Some(Ok(_))), "{begun:?}");
        Ok(answers.take(needs.len()).map(denial).collect())
    }
}

fn command(words: &[impl AsRef<str>]) -> Cmd {
    let mut command = Cmd::new();
    for word in words {
        command.arg(word.as_ref());
    }
    command
}

/// `OK` or `QUEUED`, an error, or the words of `ACL DRYRUN`.
fn denial(answer: Result<Value, RedisError>) -> Option<Denial> {
    match answer {
        Ok(Value::BulkString(text)) => Denial::read(&String::from_utf8_lossy(&text)),
        Ok(_) => None,
        Err(error) => Denial::read(&words(&error)),
    }
}
