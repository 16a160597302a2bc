//! A bad network between an agent and a Redis or a Postgres.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tempfile::TempDir;

use super::resp::first_frame;
use super::{RedisServer, unix_url};
use crate::postgres::{self, Postgres};
use crate::until;

/// Bytes taken from a socket at once.
const CHUNK: usize = 64 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the agent to Redis.
    Requests,
    /// From Redis to the agent.
    Replies,
}

/// Passes bytes between clients and a server on Unix sockets, and does what a bad network does.
/// Dropping it cuts every connection.
pub struct Proxy {
    shared: Arc<Shared>,
    _dir: TempDir,
    /// Its own, and as an agent takes it.
    socket: PathBuf,
    url: String,
}

struct Shared {
    target: Mutex<PathBuf>,
    /// The server speaks RESP, whose frames can be told apart.
    has_frames: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    faults: Faults,
    /// How many replies [`Proxy::cut_reply_to`] has kept from their clients.
    replies_cut: u64,
    links: Vec<Link>,
    links_made: u64,
    closed: bool,
}

#[derive(Default, Clone)]
struct Faults {
    refuses: bool,
    delay: Duration,
    swallows: Option<Direction>,
    swallows_news: bool,
    /// Commands that it does not know.
    unknown: Vec<&'static str>,
    /// Part of the request whose reply is to be cut.
    doomed_request: Option<Vec<u8>>,
}

struct Link {
    number: u64,
    client: UnixStream,
    server: UnixStream,
    /// Set once bytes of it vanished: its ends no longer understand each other.
    maimed: bool,
    /// Set when it ends with the next reply.
    doomed: bool,
}

impl Link {
    fn close(&self) {
        // Fails only when it is closed already.
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.server.shutdown(Shutdown::Both);
    }
}

impl Proxy {
    /// Stands in front of that server.
    #[track_caller]
    pub fn before(server: &RedisServer) -> Proxy {
        let dir = directory();
        let socket = dir.path().join("redis.sock");
        let url = unix_url(&socket);
        Proxy::start(dir, socket, url, server.socket(), true)
    }

    /// The same for that Postgres, of which it keeps no news to itself.
    #[track_caller]
    pub fn before_postgres(server: &Postgres) -> Proxy {
        let dir = directory();
        let socket = dir.path().join(format!(".s.PGSQL.{}", server.port()));
        let url = postgres::unix_url("postgres", dir.path(), server.port());
        Proxy::start(dir, socket, url, server.socket(), false)
    }

    #[track_caller]
    fn start(
        dir: TempDir,
        socket: PathBuf,
        url: String,
        target: PathBuf,
        has_frames: bool,
    ) -> Proxy {
        let listener = UnixListener::bind(&socket).expect("the directory is ours");
        let shared =
            Arc::new(Shared { target: Mutex::new(target), has_frames, state: Mutex::default() });
        std::thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                for client in listener.incoming().map_while(Result::ok) {
                    if shared.lock().closed {
                        return;
                    }
                    shared.admit(client);
                }
            }
        });
        Proxy { shared, _dir: dir, socket, url }
    }

    /// The URL of the server through this proxy, as an agent takes it.
    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// Leads to that server from now on.
    pub fn lead_to(&self, server: &Postgres) {
        *self.shared.target.lock().expect("no thread panics with it") = server.socket();
        self.cut();
    }

    /// Closes every connection once.
    pub fn cut(&self) {
        for link in self.shared.lock().links.drain(..) {
            link.close();
        }
    }

    /// Closes every connection, and new ones at once, until [healed](Proxy::heal).
    pub fn refuse(&self) {
        self.shared.lock().faults.refuses = true;
        self.cut();
    }

    /// Holds back whatever Redis says, that long.
    pub fn delay(&self, by: Duration) {
        self.shared.lock().faults.delay = by;
    }

    /// Lets everything that goes this way vanish, until healed.
    pub fn swallow(&self, direction: Direction) {
        self.shared.lock().faults.swallows = Some(direction);
    }

    /// Lets invalidations and messages on channels vanish, until healed. Replies still pass, so
    /// that nobody can tell.
    pub fn swallow_news(&self) {
        self.shared.lock().faults.swallows_news = true;
    }

    /// Knows none of these commands, as proxies do of which some speak RESP2 only: from the next connection
    /// on, until healed.
    pub fn does_not_know(&self, commands: &[&'static str]) {
        self.shared.lock().faults.unknown = commands.to_vec();
        self.cut();
    }

    /// Passes on the next request that contains this text, and closes the connection when its reply
    /// comes.
    pub fn cut_reply_to(&self, part: &str) {
        self.shared.lock().faults.doomed_request = Some(part.as_bytes().to_vec());
    }

    /// Waits until that has happened so many times in all.
    #[track_caller]
    pub fn wait_replies_cut(&self, times: u64) {
        until("a reply to be cut", || self.shared.lock().replies_cut >= times);
    }

    /// A good network again. Connections of which bytes were lost are closed.
    pub fn heal(&self) {
        let mut state = self.shared.lock();
        state.faults = Faults::default();
        state.links.retain(|link| {
            if link.maimed {
                link.close();
            }
            !link.maimed
        });
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.cut();
        // Wakes the listener up, to see that it is over.
        let _ = UnixStream::connect(&self.socket);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics with it")
    }

    /// Connects a client through, or not at all: a server that is down is a closed connection.
    fn admit(self: &Arc<Shared>, client: UnixStream) {
        if self.lock().faults.refuses {
            return;
        }
        let target = self.target.lock().expect("no thread panics with it").clone();
        let Ok(server) = UnixStream::connect(target) else { return };
        let clone = |stream: &UnixStream| stream.try_clone().expect("a socket can be shared");
        let number = {
            let mut state = self.lock();
            state.links_made += 1;
            let number = state.links_made;
            let (client, server) = (clone(&client), clone(&server));
            state.links.push(Link { number, client, server, maimed: false, doomed: false });
            number
        };
        for direction in [Direction::Requests, Direction::Replies] {
            let pipe = match direction {
                Direction::Requests => (clone(&client), clone(&server)),
                Direction::Replies => (clone(&server), clone(&client)),
            };
            let shared = Arc::clone(self);
            std::thread::spawn(move || shared.pass(direction, pipe, number));
        }
    }

    /// Passes bytes on until either end closes.
    fn pass(&self, direction: Direction, pipe: (UnixStream, UnixStream), number: u64) {
        let (mut from, mut to) = pipe;
        let mut chunk = vec![0; CHUNK];
        let mut unread = Vec::new();
        loop {
            let length = from.read(&mut chunk).unwrap_or(0);
            if length == 0 {
                break;
            }
            let chunk = &chunk[..length];
            let passed = match direction {
                Direction::Requests => Some(self.request(number, chunk)),
                Direction::Replies => self.reply(number, chunk, &mut unread),
            };
            let Some(bytes) = passed else { break };
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        // Each fails only when that is closed already. What a server says before it closes still
        // reaches a client whose request does not reach the server.
        if direction == Direction::Requests {
            let _ = to.shutdown(Shutdown::Write);
            return;
        }
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
        self.lock().links.retain(|link| link.number != number);
    }

    /// The part of a request that is passed on.
    fn request(&self, number: u64, bytes: &[u8]) -> Vec<u8> {
        let mut state = self.lock();
        let State { faults, links, .. } = &mut *state;
        let link = links.iter_mut().find(|link| link.number == number);
        if faults.swallows == Some(Direction::Requests) {
            link.into_iter().for_each(|link| link.maimed = true);
            return Vec::new();
        }
        let part = faults.doomed_request.as_ref();
        if part.is_some_and(|part| bytes.windows(part.len()).any(|window| window == part)) {
            faults.doomed_request = None;
            link.into_iter().for_each(|link| link.doomed = true);
        }
        let mut bytes = bytes.to_vec();
        for command in &faults.unknown {
            misspell(&mut bytes, command);
        }
        bytes
    }

    /// The part of a reply that is passed on, behind earlier bytes that were `unread`; `None` to close the
    /// connection instead.
    fn reply(&self, number: u64, bytes: &[u8], unread: &mut Vec<u8>) -> Option<Vec<u8>> {
        unread.extend_from_slice(bytes);
        let delay = self.lock().faults.delay;
        if !delay.is_zero() {
            std::thread::sleep(delay);
        }
        let mut state = self.lock();
        let State { faults, links, replies_cut, .. } = &mut *state;
        let link = links.iter_mut().find(|link| link.number == number)?;
        if link.doomed {
            *replies_cut += 1;
            return None;
        }
        let frames = match self.has_frames {
            true => take_frames(unread, faults.swallows_news),
            false => std::mem::take(unread),
        };
        if faults.swallows == Some(Direction::Replies) {
            link.maimed = true;
            return Some(Vec::new());
        }
        Some(frames)
    }
}

/// Has the server itself say that it does not know a command, in the order of replies.
fn misspell(request: &mut [u8], command: &str) {
    let word = format!("${}\r\n{command}\r\n", command.len()).into_bytes();
    let name = word.len() - command.len() - 2;
    let found = request.windows(word.len()).enumerate();
    let found: Vec<usize> = found.filter(|(_, part)| *part == word).map(|(at, _)| at).collect();
    for at in found {
        request[at + name] = b'?';
    }
}

/// Takes the complete frames out of `unread`, without those that only tell news if so wished.
fn take_frames(unread: &mut Vec<u8>, without_news: bool) -> Vec<u8> {
    let mut taken = Vec::new();
    let mut at = 0;
    while let Some((length, is_news)) = first_frame(&unread[at..]) {
        if !(is_news && without_news) {
            taken.extend_from_slice(&unread[at..at + length]);
        }
        at += length;
    }
    unread.drain(..at);
    taken
}

fn directory() -> TempDir {
    TempDir::with_prefix("proxy-").expect("a temporary directory can be made")
}
