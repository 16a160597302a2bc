//! The programs that are called: an agent and a gateway, with keys and an audit trail.

use std::path::PathBuf;

use tempfile::TempDir;
use tenure_stores::gateway::scope::Mark;

use crate::harness::{Agent, Gateway, Key, Postgres, RedisServer, SharedStore, free_port};

/// The store of the gateways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Store {
    Embedded,
    Redis,
    Postgres,
    Cluster,
}

impl std::str::FromStr for Store {
    type Err = String;

    fn from_str(text: &str) -> Result<Store, String> {
        match text {
            "embedded" => Ok(Store::Embedded),
            "redis" => Ok(Store::Redis),
            "postgres" => Ok(Store::Postgres),
            "cluster" => Ok(Store::Cluster),
            _ => Err(format!("{text:?} is no store: use embedded, redis, postgres or cluster")),
        }
    }
}

/// For whom logs are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Logs {
    Human,
    Json,
}

impl Logs {
    pub(super) fn word(self) -> &'static str {
        match self {
            Logs::Human => "human",
            Logs::Json => "json",
        }
    }
}

/// The server of a store, which ends with this.
#[expect(dead_code, reason = "they are kept")]
enum Server {
    None,
    Redis(RedisServer),
    Postgres(Postgres),
}

/// Principals, among whom the callers are divided.
const PRINCIPALS: usize = 8;

/// An agent, a gateway and its store.
pub(super) struct Servers {
    pub logs: Logs,
    pub agent: Agent,
    pub gateway: Gateway,
    keys: Vec<(Key, Mark)>,
    trail: TempDir,
    _server: Server,
}

impl Servers {
    pub(super) fn start(store: Store, logs: Logs) -> Servers {
        let config = format!("log_format = {:?}\n", logs.word());
        let agent = Agent::setup().config(&config).start();
        let key = |number: usize| {
            let principal = format!("caller-{number}");
            (Key::within(&principal, &["--right", "all"]), Mark::of(&principal))
        };
        let keys: Vec<_> = (0..PRINCIPALS).map(key).collect();
        let (upstream, server) = match store {
            Store::Embedded => ("embedded:".to_owned(), Server::None),
            Store::Cluster => ("cluster:".to_owned(), Server::None),
            Store::Redis => {
                let server = RedisServer::start();
                (server.url(), Server::Redis(server))
            }
            Store::Postgres => {
                let server = Postgres::begin();
                (server.url(), Server::Postgres(server))
            }
        };
        let trail = TempDir::with_prefix("tenured-trail-").expect("a temporary directory");
        let mut args = vec![
            format!("--log-format={}", logs.word()),
            format!("--audit={}", trail.path().join("audit.jsonl").display()),
        ];
        if store == Store::Cluster {
            args.push(format!("--cluster-listen=127.0.0.1:{}", free_port()));
        }
        let let_in: Vec<&Key> = keys.iter().map(|(key, _)| key).collect();
        let gateway = Gateway::start_by(&upstream, &let_in, &args);
        if store == Store::Cluster {
            gateway.cluster(&["init"]);
        }
        Servers { logs, agent, gateway, keys, trail, _server: server }
    }

    /// The key of a caller, and the end of its ids.
    pub(super) fn key(&self, number: usize) -> (&str, Mark) {
        let (key, mark) = &self.keys[number % PRINCIPALS];
        (&key.text, *mark)
    }

    pub(super) fn gateway_port(&self) -> u16 {
        self.gateway.port()
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.agent.socket()
    }

    /// All files of the trail.
    pub(super) fn trails(&self) -> Vec<PathBuf> {
        let files = std::fs::read_dir(self.trail.path()).into_iter().flatten().flatten();
        files.map(|file| file.path()).collect()
    }
}
