//! A gate in front of an agent's socket, to lose, hold back and cut off what it says.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use tempfile::TempDir;

/// Everything gets through unless a test says otherwise. Requests are the agent's to carry out: only
/// what it says back is touched.
#[derive(Debug)]
pub struct Gate {
    directory: TempDir,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    agent: PathBuf,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    replies_to_lose: u32,
    is_silent: bool,
    is_closed: bool,
    is_over: bool,
    /// How many replies were lost or are held back.
    caught: usize,
    connections: Vec<UnixStream>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Gate {
    /// A gate in front of that socket.
    pub fn before(agent: &Path) -> Gate {
        let directory = tempfile::tempdir().expect("a directory");
        let listener = UnixListener::bind(directory.path().join("api.sock")).expect("a socket");
        let shared = Arc::new(Shared {
            agent: agent.to_owned(),
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let gate = Gate { directory, shared: Arc::clone(&shared) };
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if shared.state().is_over {
                    return;
                }
                pass(&shared, client);
            }
        });
        gate
    }

    /// Its own socket.
    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("api.sock")
    }

    /// The next so many requests are carried out, and their connections break without a reply.
    pub fn lose_replies(&self, count: u32) {
        self.shared.state().replies_to_lose = count;
    }

    /// Set while replies and events are held back.
    pub fn set_silent(&self, is_silent: bool) {
        self.shared.state().is_silent = is_silent;
        self.shared.changed.notify_all();
    }

    /// Breaks every connection, and lets nobody through until it is opened again.
    pub fn close(&self) {
        let mut state = self.shared.state();
        state.is_closed = true;
        for connection in state.connections.drain(..) {
            // Fails where the other side was first.
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    /// Lets everybody through.
    pub fn open(&self) {
        self.shared.state().is_closed = false;
    }

    /// How many replies, or parts of streams, were lost or held back.
    pub fn caught(&self) -> usize {
        self.shared.state().caught
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.close();
        self.set_silent(false);
        self.shared.state().is_over = true;
        // Wakes the thread that accepts.
        let _ = UnixStream::connect(self.socket());
    }
}

fn pass(shared: &Arc<Shared>, client: UnixStream) {
    let mut state = shared.state();
    if state.is_closed {
        return;
    }
    // Without an agent the connection just ends.
    let Ok(agent) = UnixStream::connect(&shared.agent) else { return };
    let (Ok(mut from), Ok(mut to)) = (client.try_clone(), agent.try_clone()) else { return };
    state.connections.extend(client.try_clone().into_iter().chain(agent.try_clone()));
    drop(state);
    thread::spawn(move || {
        // Ends with either side.
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    });
    let shared = Arc::clone(shared);
    thread::spawn(move || {
        answer(&shared, agent, &client);
        let _ = client.shutdown(Shutdown::Both);
    });
}

/// Passes on what the agent says.
fn answer(shared: &Shared, mut agent: UnixStream, mut client: &UnixStream) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let Ok(length @ 1..) = agent.read(&mut buffer) else { return };
        let said = &buffer[..length];
        let mut state = shared.state();
        let is_reply = said.starts_with(b"HTTP/1.1 ") && !has(said, b"text/event-stream");
        if is_reply && state.replies_to_lose > 0 {
            state.replies_to_lose -= 1;
            state.caught += 1;
            let _ = agent.shutdown(Shutdown::Both);
            return;
        }
        if state.is_silent {
            state.caught += 1;
        }
        let state = shared.changed.wait_while(state, |state| state.is_silent);
        drop(state.unwrap_or_else(PoisonError::into_inner));
        if client.write_all(said).is_err() {
            let _ = agent.shutdown(Shutdown::Both);
            return;
        }
    }
}

fn has(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|part| part == word)
}
