//! A way to a TCP port that can be cut.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Passes bytes between clients and a port of 127.0.0.1. Dropping it cuts every connection, and ends it.
pub struct Passage {
    port: u16,
    shared: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    made: u64,
    /// Both ends of each connection that is open.
    open: BTreeMap<u64, [TcpStream; 2]>,
    is_over: bool,
}

impl Passage {
    /// A way to that port.
    #[track_caller]
    pub fn to(target: u16) -> Passage {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let shared = Arc::<Mutex<State>>::default();
        let of_thread = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if lock(&of_thread).is_over {
                    return;
                }
                // Either end may go at any time.
                let _ = admit(&of_thread, client, target);
            }
        });
        Passage { port, shared }
    }

    /// Its own port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address at which the server is called.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// How many connections the server has had through this.
    pub fn passed(&self) -> u64 {
        lock(&self.shared).made
    }

    /// The numbers of the connections that are open.
    pub fn connections(&self) -> BTreeSet<u64> {
        lock(&self.shared).open.keys().copied().collect()
    }

    /// Closes every connection once.
    pub fn cut(&self) {
        lock(&self.shared).open.values().for_each(close);
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        lock(&self.shared).is_over = true;
        self.cut();
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

fn lock(shared: &Mutex<State>) -> MutexGuard<'_, State> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn close(ends: &[TcpStream; 2]) {
    for end in ends {
        // Fails only when it is closed already.
        let _ = end.shutdown(Shutdown::Both);
    }
}

fn admit(shared: &Arc<Mutex<State>>, client: TcpStream, target: u16) -> io::Result<()> {
    let server = TcpStream::connect(("127.0.0.1", target))?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let ways =
        [(client.try_clone()?, server.try_clone()?), (server.try_clone()?, client.try_clone()?)];
    let number = {
        let mut state = lock(shared);
        if state.is_over {
            return Ok(());
        }
        state.made += 1;
        let number = state.made;
        state.open.insert(number, [client, server]);
        number
    };
    for (mut from, mut to) in ways {
        let shared = Arc::clone(shared);
        thread::spawn(move || {
            let _ = io::copy(&mut from, &mut to);
            lock(&shared).open.remove(&number).iter().for_each(close);
        });
    }
    Ok(())
}
