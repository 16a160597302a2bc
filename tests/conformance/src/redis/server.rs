//! A Redis server that goes by the corpus's clock.

use std::path::{Path, PathBuf};

use redis::{Client, Connection, RedisResult, Value};
use tempfile::TempDir;
use tenure_harness::RedisServer;

use super::clock::Clock;

/// The time at the beginning of a run, µs since 1970: some day in 2026.
pub(crate) const EPOCH_US: u64 = 1_780_000_000_000_000;

/// Says on a channel of its own that everything published before has been read.
const MARKER: &str = "the-test-has-caught-up";

/// A message that a script published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Published {
    pub(crate) channel: String,
    pub(crate) text: String,
}

/// A running server with nothing in it, and a connection to it.
pub(crate) struct Server {
    /// To ask it.
    pub(crate) connection: Connection,
    /// The server's wall clock.
    clock: Clock,
    /// Subscribed to every channel.
    listener: Connection,
    server: RedisServer,
    /// The clock's.
    _folder: TempDir,
}

impl Server {
    /// Starts one.
    pub(crate) fn start() -> Server {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let clock = Clock::build(folder.path(), EPOCH_US);
        let mut setup = RedisServer::setup().debug_commands();
        for (name, value) in clock.variables() {
            setup = setup.variable(name, value);
        }
        let server = setup.start();
        let socket = server.socket();
        let mut connection = connect(&socket, "resp3").expect("the server listens");
        // As plain replies messages can be read one after the other.
        let mut listener = connect(&socket, "resp2").expect("the server listens");
        let subscribe = redis::cmd("PSUBSCRIBE").arg("*").get_packed_command();
        listener.send_packed_command(&subscribe).expect("PSUBSCRIBE");
        listener.recv_response().expect("PSUBSCRIBE");
        // Keys expire when they are asked for, which is the rule; that some go earlier would only
        // make runs differ.
        let mut debug = redis::cmd("DEBUG");
        debug.arg("SET-ACTIVE-EXPIRE").arg(0);
        debug.exec(&mut connection).expect("DEBUG is enabled");
        Server { connection, clock, listener, server, _folder: folder }
    }

    /// Its Unix socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.server.socket()
    }

    /// Sets its clock, to µs since 1970.
    pub(crate) fn set_clock(&self, us: u64) {
        self.clock.set(us);
    }

    /// Asks over another connection from now on.
    pub(crate) fn reconnect(&mut self) {
        self.connection = connect(&self.socket(), "resp3").expect("the server listens");
    }

    /// As if nothing had ever been stored.
    pub(crate) fn wipe(&mut self) {
        let () = redis::cmd("FLUSHALL").query(&mut self.connection).expect("FLUSHALL");
    }

    /// How many changes were made since the server began.
    pub(crate) fn changes(&mut self) -> u64 {
        let info: String =
            redis::cmd("INFO").arg("persistence").query(&mut self.connection).expect("INFO");
        let line = info.lines().find_map(|line| line.strip_prefix("rdb_changes_since_last_save:"));
        line.and_then(|count| count.parse().ok()).expect("the server counts changes")
    }

    /// Messages that were published since this was asked last.
    pub(crate) fn published(&mut self) -> Vec<Published> {
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
    pub(crate) fn keys(&mut self) -> Vec<String> {
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
        let mut ask = |at_us: Option<u64>, words: &[&str]| -> Value {
            if let Some(us) = at_us {
                server.set_clock(EPOCH_US + us);
            }
            let mut command = redis::cmd(words[0]);
            words[1..].iter().for_each(|word| {
                command.arg(word);
            });
            command.query(&mut server.connection).unwrap()
        };
        let time = ["EVAL", "return tonumber(redis.call('TIME')[2])", "0"];
        assert_eq!(ask(None, &time), Value::Int(0));
        ask(None, &["SET", "key", "value", "PX", "3600000"]);
        assert_eq!(ask(Some(3_599_999_250), &time), Value::Int(999_250));
        assert_eq!(ask(None, &["PTTL", "key"]), Value::Int(1));
        assert_eq!(ask(Some(3_600_001_000), &["PTTL", "key"]), Value::Int(-2));
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
