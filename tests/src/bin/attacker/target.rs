//! The agent that is attacked, what clients do to it one by one, and what came of that.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use anyhow::ensure;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::connection::{Connection, get, post};
use super::requests::{ask, long_name};

/// Most holds of a process.
const HOLDS_MAX: usize = 100_000;
/// Between two tries at a door that is closed.
pub(super) const RETRY: Duration = Duration::from_millis(20);
/// Most statuses and errors that are told apart.
const SORTS_MAX: usize = 32;

/// Sessions and holds that an attack begins with.
#[derive(Default)]
pub(super) struct Ready {
    pub(super) sessions: Vec<String>,
    /// With their sessions.
    pub(super) holds: Vec<(String, String)>,
}

/// The agent, and what came of it.
pub(super) struct Target {
    pub(super) socket: PathBuf,
    pub(super) seen: std::cell::RefCell<BTreeMap<String, u64>>,
}

impl Target {
    pub(super) fn saw(&self, sort: &str) {
        let mut seen = self.seen.borrow_mut();
        if seen.len() < SORTS_MAX || seen.contains_key(sort) {
            *seen.entry(sort.to_owned()).or_default() += 1;
        }
    }

    /// Connects, however long that takes.
    pub(super) async fn connect(&self) -> Connection {
        loop {
            match UnixStream::connect(&self.socket).await {
                Ok(stream) => return Connection { stream, unread: Vec::new() },
                Err(error) => self.saw(&error.kind().to_string()),
            }
            pause(RETRY).await;
        }
    }

    pub(super) async fn session(&self, with: &Value) -> anyhow::Result<String> {
        self.connect().await.register(with).await
    }

    /// Sessions, each with so many holds or places in a queue.
    pub(super) async fn fill(
        &self,
        of: &str,
        sessions: usize,
        holds: usize,
    ) -> anyhow::Result<Ready> {
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

    pub(super) async fn forever(
        self: Rc<Self>,
        round: impl AsyncFn(&Target, usize) -> anyhow::Result<()>,
        size: usize,
    ) {
        loop {
            match round(&self, size).await {
                Ok(()) => self.saw("done"),
                Err(error) => {
                    self.saw(&error.root_cause().to_string());
                    pause(RETRY).await;
                }
            }
        }
    }

    /// Reads a session's events until the agent ends the stream.
    pub(super) async fn listen(self: Rc<Self>, session: String) {
        let mut connection = self.connect().await;
        let open = get(&format!("/v1/events?session={session}"), 1);
        let mut scrap = vec![0; 64 * 1024];
        if connection.stream.write_all(&open).await.is_ok() {
            while connection.stream.read(&mut scrap).await.is_ok_and(|read| read > 0) {}
        }
        self.saw("listener cut off");
    }

    /// Sends that and waits, without reading, until the agent has had enough.
    pub(super) async fn unread(self: Rc<Self>, request: Rc<[u8]>) {
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

    pub(super) async fn release_all(self: Rc<Self>, holds: Vec<(String, String)>) {
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

#[expect(clippy::disallowed_methods, reason = "the pace of a load, no deadline")]
pub(super) async fn pause(length: Duration) {
    tokio::time::sleep(length).await;
}
