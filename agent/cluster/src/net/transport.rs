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
use super::users::Users;

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
pub type Opening = BoxFuture<'static, Result<Stream, Unopened>>;

/// A connection that does not become one.
pub enum Unopened {
    Failed(io::Error),
    /// The other end is not trusted, and can be told why.
    Refused(Stream, String),
}

impl From<io::Error> for Unopened {
    fn from(error: io::Error) -> Unopened {
        Unopened::Failed(error)
    }
}

/// The reason for which both ends of a connection trust each other.
#[derive(Debug, Clone)]
pub enum Trust {
    /// They show each other certificates.
    Certificates(Arc<Tls>),
    /// Both are processes of these users on this host.
    Users(Users),
    /// None is asked for.
    Everybody,
}

impl Trust {
    /// The user of this process and root.
    pub fn own_user() -> Trust {
        Trust::Users(Users::with(&[]))
    }
}

/// The way of a node to the others, and theirs to it.
pub struct Network {
    pub dial: Arc<dyn Dial>,
    pub accept: Box<dyn Accept>,
}

impl Network {
    /// Over TCP.
    pub fn tcp(listener: TcpListener, trust: Trust) -> Network {
        Network { dial: tcp(trust.clone()), accept: Box::new(Incoming { listener, trust }) }
    }
}

/// Connects over TCP.
pub(crate) fn tcp(trust: Trust) -> Arc<dyn Dial> {
    Arc::new(Outgoing(trust))
}

struct Outgoing(Trust);

impl Dial for Outgoing {
    fn connect<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Stream>> {
        Box::pin(async move {
            let stream = TcpStream::connect(address).await?;
            prepare(&stream)?;
            Ok(match &self.0 {
                Trust::Certificates(tls) => Box::new(tls.connect(stream, address).await?) as Stream,
                // Another user may listen where a node is down, and would be given everything.
                Trust::Users(users) if stream.peer_addr()?.ip().to_canonical().is_loopback() => {
                    users.recognize(&stream).await?;
                    Box::new(stream)
                }
                Trust::Users(users) if !users.leave_host() => return Err(elsewhere(address)),
                Trust::Users(_) => Box::new(stream),
                Trust::Everybody => Box::new(stream),
            })
        })
    }
}

fn elsewhere(address: &str) -> io::Error {
    let cause = format!(
        "{address} is no loopback address: give cluster.tls_ca_file, cluster.tls_cert_file and cluster.tls_key_file, or \
         accept with cluster.insecure that nodes talk in the clear"
    );
    io::Error::new(io::ErrorKind::PermissionDenied, cause)
}

struct Incoming {
    listener: TcpListener,
    trust: Trust,
}

impl Accept for Incoming {
    fn accept(&self) -> BoxFuture<'_, io::Result<(Opening, SocketAddr)>> {
        Box::pin(async {
            let (stream, from) = self.listener.accept().await?;
            let trust = self.trust.clone();
            let opening = async move {
                prepare(&stream)?;
                Ok(match trust {
                    Trust::Certificates(tls) => Box::new(tls.accept(stream).await?) as Stream,
                    Trust::Users(users) => match users.admit(&stream) {
                        Ok(()) => Box::new(stream),
                        Err(stranger) => {
                            return Err(Unopened::Refused(Box::new(stream), stranger.to_string()));
                        }
                    },
                    Trust::Everybody => Box::new(stream),
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
