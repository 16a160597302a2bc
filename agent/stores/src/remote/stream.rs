//! Byte streams to a server.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::connect_error::{ConnectError, Peer, TlsFault};
use crate::settings::tls::Trust;

/// The place of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// A name or an IP address, IPv6 without brackets, and a port.
    Tcp(String, u16),
    Unix(PathBuf),
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Endpoint::Tcp(host, port) => write!(f, "{host}:{port}"),
            Endpoint::Unix(path) => path.display().fmt(f),
        }
    }
}

/// How to speak TLS, and what to tell the operator when that fails.
#[derive(Debug, Clone, Copy)]
pub struct Tls<'a> {
    pub trust: &'a Trust,
    pub way_out: fn(TlsFault) -> &'static str,
}

/// A byte stream to a server.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// A stream that lets a server have its last words.
///
/// A server that is full says so and closes, without waiting for a request. To write to it fails,
/// which must not keep anybody from reading what it said; reading tells of the end, too.
struct LastWords<S>(S);

impl<S: AsyncRead + Unpin> AsyncRead for LastWords<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for LastWords<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match Pin::new(&mut self.0).poll_write(context, bytes) {
            Poll::Ready(Err(error)) if is_closed(&error) => Poll::Ready(Ok(bytes.len())),
            other => other,
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.0).poll_flush(context) {
            Poll::Ready(Err(error)) if is_closed(&error) => Poll::Ready(Ok(())),
            other => other,
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

fn is_closed(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

/// Connects to a peer, within about this time. TLS is spoken over TCP alone.
///
/// # Errors
///
/// When nobody is there, or TLS fails.
pub async fn connect(
    peer: &Peer,
    endpoint: &Endpoint,
    tls: Option<Tls<'_>>,
    connect_timeout: Duration,
) -> Result<Box<dyn Stream>, ConnectError> {
    let (host, port) = match endpoint {
        Endpoint::Unix(path) => return Ok(Box::new(LastWords(unix(peer, path).await?))),
        Endpoint::Tcp(host, port) => (host, *port),
    };
    let stream = tcp(peer, host, port, connect_timeout).await?;
    match tls {
        Some(tls) => secure(peer, host, tls, stream, connect_timeout).await,
        None => Ok(Box::new(LastWords(stream))),
    }
}

/// Agrees on TLS with the server of that name, at the other end of a stream.
///
/// # Errors
///
/// When that fails.
pub async fn secure(
    peer: &Peer,
    host: &str,
    Tls { trust, way_out }: Tls<'_>,
    stream: impl Stream + 'static,
    connect_timeout: Duration,
) -> Result<Box<dyn Stream>, ConnectError> {
    let failed = |error: io::Error| ConnectError::Tls {
        peer: peer.clone(),
        way_out: TlsFault::of(&error).map(way_out).unwrap_or_default(),
        source: Arc::new(error),
    };
    let name = ServerName::try_from(host.to_owned())
        .map_err(|error| failed(io::Error::new(io::ErrorKind::InvalidInput, error)))?;
    // A server that does not know TLS waits for more, until whoever waits for the whole connection has
    // had enough; this has to be told apart before.
    let share = connect_timeout / 4 * 3;
    let secured = TlsConnector::from(trust.current().await).connect(name, stream);
    match timeout(share, secured).await {
        Ok(Ok(stream)) => Ok(Box::new(stream)),
        Ok(Err(error)) => Err(failed(error)),
        Err(_) => {
            let doing = "agreeing on TLS, which it may not speak on this port";
            Err(ConnectError::silent(peer, doing, share))
        }
    }
}

/// Tries every address of a host, each with its share of the time: one that swallows everything does
/// not hide the others.
pub(crate) async fn tcp(
    peer: &Peer,
    host: &str,
    port: u16,
    connect_timeout: Duration,
) -> Result<TcpStream, ConnectError> {
    let resolve = |error| ConnectError::Resolve { peer: peer.clone(), source: Arc::new(error) };
    let found = lookup_host((host, port)).await.map_err(resolve)?;
    let addresses: Vec<_> = found.collect();
    let share = connect_timeout / u32::try_from(addresses.len().max(1)).unwrap_or(1);
    let mut failure = resolve(io::Error::other("it has no address"));
    for address in addresses {
        failure = match timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                // Small requests wait for nothing. Where it cannot be set they take longer, no more.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Ok(Err(error)) => refused(peer, error),
            Err(_) => ConnectError::silent(peer, "connecting", share),
        };
    }
    Err(failure)
}

async fn unix(peer: &Peer, path: &Path) -> Result<UnixStream, ConnectError> {
    UnixStream::connect(path).await.map_err(|error| refused(peer, error))
}

fn refused(peer: &Peer, error: io::Error) -> ConnectError {
    ConnectError::Connect { peer: peer.clone(), source: Arc::new(error) }
}
