//! Streams between nodes.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio_rustls::TlsStream;
use tokio_util::either::Either;

use super::tls::Tls;

/// The time in which the other host takes what it is sent. To one that was switched off, TCP would send again and
/// again for a quarter of an hour.
#[cfg(target_os = "linux")]
const TAKEN_MAX: Duration = Duration::from_secs(10);
/// The time without a word after which the other host is asked for a sign of life.
const QUIET: Duration = Duration::from_secs(5);

/// A stream to another node.
pub(super) type Stream = Either<TcpStream, TlsStream<TcpStream>>;

/// Makes streams of connections: over TLS if it has certificates. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Transport(Option<Arc<Tls>>);

impl Transport {
    pub(crate) fn new(tls: Option<Arc<Tls>>) -> Transport {
        Transport(tls)
    }

    /// Connects to a node. The caller has a deadline.
    pub(super) async fn connect(&self, address: &str) -> io::Result<Stream> {
        let stream = TcpStream::connect(address).await?;
        prepare(&stream)?;
        match &self.0 {
            None => Ok(Either::Left(stream)),
            Some(tls) => Ok(Either::Right(tls.connect(stream, address).await?)),
        }
    }

    /// Takes a connection that a node has made. The caller has a deadline.
    pub(super) async fn accept(&self, stream: TcpStream) -> io::Result<Stream> {
        prepare(&stream)?;
        match &self.0 {
            None => Ok(Either::Left(stream)),
            Some(tls) => Ok(Either::Right(tls.accept(stream).await?)),
        }
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
