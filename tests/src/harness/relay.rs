//! A relay in front of a server, which counts the connections to it.

use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

/// Passes bytes on as they are. Dropping it lets nobody else in.
pub struct Relay {
    port: u16,
    passed: Arc<AtomicUsize>,
    over: Arc<AtomicBool>,
}

impl Relay {
    /// A relay in front of that port.
    pub fn before(server: u16) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let (passed, over) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let relay = Relay { port, passed: Arc::clone(&passed), over: Arc::clone(&over) };
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                // While the server is away the connection just ends.
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else { continue };
                passed.fetch_add(1, Ordering::Relaxed);
                // Either side may go at any time.
                let _ = pass(&client, &server).and_then(|()| pass(&server, &client));
            }
        });
        relay
    }

    /// The address at which the server is called.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// How many connections the server has had through this relay.
    pub fn passed(&self) -> usize {
        self.passed.load(Ordering::Relaxed)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

/// Begins to pass on what one side says until that side ends.
fn pass(from: &TcpStream, to: &TcpStream) -> io::Result<()> {
    let (mut from, mut to) = (from.try_clone()?, to.try_clone()?);
    to.set_nodelay(true)?;
    thread::spawn(move || {
        let _ = io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    });
    Ok(())
}
