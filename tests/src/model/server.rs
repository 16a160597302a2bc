//! A Redis server of the test's own, under the test's clock.

use std::path::Path;
use std::process::{Command, Stdio};

use redis::{Client, Connection, RedisResult, Value};
use tempfile::TempDir;

use super::clock::Clock;
use crate::harness::{Program, eventually};

/// Where the clock stands before anything is asked, µs since 1970: some day in 2026.
pub(super) const EPOCH_US: u64 = 1_780_000_000_000_000;

/// Says on a channel of its own that everything published before has been read.
const MARKER: &str = "the-test-has-caught-up";

/// A message that a script published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Published {
    /// Where.
    pub(super) channel: String,
    /// What.
    pub(super) text: String,
}

/// A running server, and a connection to it. Dropping it kills the server.
pub(super) struct Server {
    /// The server's wall clock.
    pub(super) clock: Clock,
    /// To ask it.
    pub(super) connection: Connection,
    /// Subscribed to every channel.
    listener: Connection,
    _program: Program,
    /// Last, so that the server is gone before its folder.
    _folder: TempDir,
}

impl Server {
    /// Starts one that keeps nothing on disk and listens on a Unix socket only.
    ///
    /// # Panics
    ///
    /// When it cannot be started.
    pub(super) fn start() -> Server {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let clock = Clock::build(folder.path(), EPOCH_US);
        let socket = folder.path().join("redis.sock");
        let mut command = Command::new("redis-server");
        command.args(["--port", "0", "--save", "", "--appendonly", "no"]);
        command.args(["--enable-debug-command", "local", "--unixsocket"]).arg(&socket);
        command.arg("--dir").arg(folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::null());
        clock.rule(&mut command);
        let mut program = Program::start(&mut command);
        let mut connection = eventually("redis-server to listen", || {
            let ended = program.ended();
            assert!(ended.is_none(), "redis-server: {ended:?}");
            connect(&socket, "resp3").ok()
        });
        // As plain replies messages can be read one after the other.
        let mut listener = connect(&socket, "resp2").expect("the server listens");
        let subscribe = redis::cmd("PSUBSCRIBE").arg("*").get_packed_command();
        listener.send_packed_command(&subscribe).expect("PSUBSCRIBE");
        listener.recv_response().expect("PSUBSCRIBE");
        // Keys expire when they are asked for, which is the rule; that some go earlier would only
        // make runs differ.
        let () = redis::cmd("DEBUG")
            .arg("SET-ACTIVE-EXPIRE")
            .arg(0)
            .query(&mut connection)
            .expect("DEBUG is enabled");
        Server { clock, connection, listener, _program: program, _folder: folder }
    }

    /// As if nothing had ever been stored.
    pub(super) fn wipe(&mut self) {
        let () = redis::cmd("FLUSHALL").query(&mut self.connection).expect("FLUSHALL");
    }

    /// How many changes were made since the server began.
    pub(super) fn changes(&mut self) -> u64 {
        let info: String =
            redis::cmd("INFO").arg("persistence").query(&mut self.connection).expect("INFO");
        let line = info.lines().find_map(|line| line.strip_prefix("rdb_changes_since_last_save:"));
        line.and_then(|count| count.parse().ok()).expect("the server counts changes")
    }

    /// What was published since this was asked last.
    pub(super) fn published(&mut self) -> Vec<Published> {
        let () =
            redis::cmd("PUBLISH").arg(MARKER).arg("").query(&mut self.connection).expect("PUBLISH");
        let mut messages = Vec::new();
        loop {
            let reply = self.listener.recv_response().expect("a message");
            let message = published(reply).expect("only messages come after PSUBSCRIBE");
            if message.channel == MARKER {
                return messages;
            }
            messages.push(message);
        }
    }

    /// Keys that have not expired.
    pub(super) fn keys(&mut self) -> Vec<String> {
        let mut keys: Vec<String> =
            redis::cmd("KEYS").arg("*").query(&mut self.connection).expect("KEYS");
        keys.sort();
        keys
    }
}

/// The parts of a message: its type, the pattern, the channel, the text.
fn published(reply: Value) -> Option<Published> {
    let Value::Array(parts) = reply else { return None };
    let mut texts = parts.into_iter().map(|part| match part {
        Value::BulkString(bytes) => String::from_utf8(bytes).ok(),
        _ => None,
    });
    let mut next = || texts.next().flatten();
    let (_, _, channel, text) = (next()?, next()?, next()?, next()?);
    Some(Published { channel, text })
}

fn connect(socket: &Path, protocol: &str) -> RedisResult<Connection> {
    let address = format!("redis+unix://{}?protocol={protocol}", socket.display());
    Client::open(address)?.get_connection()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_scripts_go_by_the_clock() {
        let mut server = Server::start();
        let connection = &mut server.connection;
        let time = |connection: &mut Connection| -> (u64, u64) {
            redis::cmd("EVAL").arg("return redis.call('TIME')").arg(0).query(connection).unwrap()
        };
        let left = |connection: &mut Connection| -> i64 {
            redis::cmd("PTTL").arg("key").query(connection).unwrap()
        };
        assert_eq!(time(connection), (EPOCH_US / 1_000_000, 0));
        let () = redis::cmd("SET")
            .arg("key")
            .arg("value")
            .arg("PX")
            .arg(3_600_000)
            .query(connection)
            .unwrap();
        server.clock.set(EPOCH_US + 3_599_999_250);
        assert_eq!(time(connection), (EPOCH_US / 1_000_000 + 3599, 999_250));
        assert_eq!(left(connection), 1);
        server.clock.set(EPOCH_US + 3_600_001_000);
        assert_eq!(left(connection), -2);
        assert!(server.keys().is_empty());
    }

    #[test]
    fn changes_are_counted_and_messages_heard() {
        let mut server = Server::start();
        let before = server.changes();
        let script = "redis.call('GET', 'key') return redis.call('PUBLISH', 'channel', 'text')";
        let () = redis::cmd("EVAL").arg(script).arg(0).query(&mut server.connection).unwrap();
        assert_eq!(server.changes(), before);
        let () = redis::cmd("SET").arg("key").arg(1).query(&mut server.connection).unwrap();
        assert_eq!(server.changes(), before + 1);
        let message = Published { channel: "channel".to_owned(), text: "text".to_owned() };
        assert_eq!(server.published(), [message]);
        assert_eq!(server.published(), []);
    }
}
