//! Streams between nodes.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};

use super::tls::Tls;

/// The time in which the other host takes what it is sent. To one that was switched off, TCP would send again and
/// again for a quarter of an hour.
#[cfg(target_os = "linux")]
const TAKEN_MAX: Duration = Duration::from_secs(10);
/// The time without a word after which the other host is asked for a sign of life.
const QUIET: Duration = Duration::from_secs(5);

/// A stream to another node.
pub type Stream = Box<dyn Duplex>;

/// The things that a stream does.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// Connects to nodes. Each caller has a deadline.
pub trait Dial: Send + Sync {
    /// Connects to the node at an address.
    fn connect<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Stream>>;
}

/// Takes the connections that nodes make.
pub trait Accept: Send + Sync {
    /// The next connection, and where it comes from. Whoever opens it has a deadline.
    fn accept(&self) -> BoxFuture<'_, io::Result<(Opening, SocketAddr)>>;
}

/// A connection that becomes a stream.
pub type Opening = BoxFuture<'static, io::Result<Stream>>;

/// The way of a node to the others, and theirs to it.
pub struct Network {
    pub dial: Arc<dyn Dial>,
    pub accept: Box<dyn Accept>,
}

impl Network {
    /// Over TCP; with certificates that nodes show each other, or in the clear.
    pub fn tcp(listener: TcpListener, tls: Option<Arc<Tls>>) -> Network {
        Network { dial: tcp(tls.clone()), accept: Box::new(Incoming { listener, tls }) }
    }
}

/// Connects over TCP.
pub(crate) fn tcp(tls: Option<Arc<Tls>>) -> Arc<dyn Dial> {
    Arc::new(Outgoing(tls))
}

struct Outgoing(Option<Arc<Tls>>);

impl Dial for Outgoing {
    fn connect<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Stream>> {
        Box::pin(async move {
            let stream = TcpStream::connect(address).await?;
            prepare(&stream)?;
            Ok(match &self.0 {
                None => Box::new(stream) as Stream,
                Some(tls) => Box::new(tls.connect(stream, address).await?),
            })
        })
    }
}

struct Incoming {
    listener: TcpListener,
    tls: Option<Arc<Tls>>,
}

impl Accept for Incoming {
    fn accept(&self) -> BoxFuture<'_, io::Result<(Opening, SocketAddr)>> {
        Box::pin(async {
            let (stream, from) = self.listener.accept().await?;
            let tls = self.tls.clone();
            let opening = async move {
                prepare(&stream)?;
                Ok(match tls {
                    None => Box::new(stream) as Stream,
                    Some(tls) => Box::new(tls.accept(stream).await?),
                })
            };
            Ok((Box::pin(opening) as Opening, from))
        })
    }
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(QUIET))?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(TAKEN_MAX))?;
    Ok(())
}
