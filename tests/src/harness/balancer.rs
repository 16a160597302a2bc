//! One address for several gateways.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use super::Gateway;

/// The end of the path of a change stream.
const STREAM: &str = "/changes";

/// Which gateway takes a request: by the number of its connection, that of the request, and whether it opens a
/// stream.
type Choose = dyn Fn(usize, usize, bool) -> usize + Send + Sync;

/// Passes HTTP/1.1 on to gateways. One that is away is left out. Dropping it ends it.
pub struct Balancer {
    port: u16,
    over: Arc<AtomicBool>,
}

impl Balancer {
    /// Each connection has the next gateway.
    pub fn by_connection(gateways: &[Gateway]) -> Balancer {
        let count = gateways.len();
        Balancer::start(gateways, move |connection, _, _| connection % count)
    }

    /// Each request has the next gateway.
    pub fn by_request(gateways: &[Gateway]) -> Balancer {
        let count = gateways.len();
        Balancer::start(gateways, move |_, request, _| request % count)
    }

    /// Streams are at one gateway, and all calls go through another.
    pub fn apart(gateways: &[Gateway], streams: usize, calls: usize) -> Balancer {
        let choose = move |_, _, is_stream| if is_stream { streams } else { calls };
        Balancer::start(gateways, choose)
    }

    fn start(
        gateways: &[Gateway],
        choose: impl Fn(usize, usize, bool) -> usize + Send + Sync + 'static,
    ) -> Balancer {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let ports: Arc<[u16]> = gateways.iter().map(Gateway::port).collect();
        let (choose, requests): (Arc<Choose>, _) =
            (Arc::new(choose), Arc::<AtomicUsize>::default());
        let over = Arc::<AtomicBool>::default();
        let is_over = Arc::clone(&over);
        thread::spawn(move || {
            for (number, client) in listener.incoming().map_while(Result::ok).enumerate() {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                let (ports, choose) = (Arc::clone(&ports), Arc::clone(&choose));
                let requests = Arc::clone(&requests);
                thread::spawn(move || {
                    let next = |is_stream| {
                        choose(number, requests.fetch_add(1, Ordering::Relaxed), is_stream)
                    };
                    // Either side may go at any time.
                    let _ = serve(&client, &ports, next);
                    let _ = client.shutdown(Shutdown::Both);
                });
            }
        });
        Balancer { port, over }
    }

    /// What an agent calls it.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

/// Passes on the requests of a connection until one of them is not answered.
fn serve(client: &TcpStream, ports: &[u16], next: impl Fn(bool) -> usize) -> io::Result<()> {
    client.set_nodelay(true)?;
    let mut from = BufReader::new(client.try_clone()?);
    let mut open: HashMap<u16, BufReader<TcpStream>> = HashMap::new();
    while let Some(request) = message(&mut from)? {
        let is_stream = path(&request).is_some_and(|path| path.ends_with(STREAM));
        let first = next(is_stream);
        let mut ports = ports.iter().cycle().skip(first).take(ports.len());
        let gateway = loop {
            let port = ports.next().ok_or(io::ErrorKind::ConnectionRefused)?;
            if let Some(gateway) = open.remove(port) {
                break (port, gateway);
            }
            if let Ok(gateway) = TcpStream::connect(("127.0.0.1", *port)) {
                gateway.set_nodelay(true)?;
                break (port, BufReader::new(gateway));
            }
        };
        let (port, mut gateway) = gateway;
        gateway.get_mut().write_all(&request)?;
        if is_stream {
            return stream(client, from, gateway);
        }
        let Some(answer) = message(&mut gateway)? else { return Ok(()) };
        (&*client).write_all(&answer)?;
        open.insert(*port, gateway);
    }
    Ok(())
}

/// Passes on a stream until either side ends it.
fn stream(
    mut client: &TcpStream,
    mut from: BufReader<TcpStream>,
    mut gateway: BufReader<TcpStream>,
) -> io::Result<()> {
    let end = gateway.get_ref().try_clone()?;
    thread::spawn(move || {
        // Nothing more is asked: only the end comes.
        let _ = io::copy(&mut from, &mut io::sink());
        let _ = end.shutdown(Shutdown::Both);
    });
    io::copy(&mut gateway, &mut client).map(drop)
}

fn path(request: &[u8]) -> Option<&str> {
    std::str::from_utf8(request.split(|byte| *byte == b' ').nth(1)?).ok()
}

/// A request, or an answer; `None` at the end.
fn message(from: &mut BufReader<TcpStream>) -> io::Result<Option<Vec<u8>>> {
    let (mut bytes, mut body) = (Vec::new(), 0);
    loop {
        let start = bytes.len();
        if from.read_until(b'\n', &mut bytes)? == 0 {
            return Ok(None);
        }
        let line = String::from_utf8_lossy(&bytes[start..]).to_ascii_lowercase();
        if let Some(length) = line.strip_prefix("content-length:") {
            body = length.trim().parse().map_err(io::Error::other)?;
        }
        if line.trim_end().is_empty() {
            break;
        }
    }
    from.take(body).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}
