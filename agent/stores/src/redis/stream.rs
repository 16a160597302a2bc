//! Byte streams to a server.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::address::Spot;
use super::settings::Place;
use super::trouble::{Trouble, Whom};
use crate::settings::tls::Trust;

/// A byte stream to a server.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

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

/// Connects. `whom` is who is there, for people.
pub(super) async fn connect(
    whom: &Whom,
    spot: &Spot,
    tls: Option<&Trust>,
    patience: Duration,
) -> Result<Box<dyn Stream>, Trouble> {
    match (spot, tls) {
        (Spot::Unix(path), _) => Ok(Box::new(LastWords(unix(whom, path).await?))),
        (Spot::Tcp(place), None) => Ok(Box::new(LastWords(tcp(whom, place, patience).await?))),
        (Spot::Tcp(place), Some(trust)) => {
            let name = ServerName::try_from(place.host.clone()).map_err(|error| {
                Trouble::tls(whom, io::Error::new(io::ErrorKind::InvalidInput, error))
            })?;
            let stream = tcp(whom, place, patience).await?;
            // A server that does not know TLS waits for more, until whoever waits for the whole
            // connection has had enough; this has to be told apart before.
            let share = patience / 4 * 3;
            let secured = TlsConnector::from(trust.config()).connect(name, stream);
            match timeout(share, secured).await {
                Ok(Ok(stream)) => Ok(Box::new(stream)),
                Ok(Err(error)) => Err(Trouble::tls(whom, error)),
                Err(_) => {
                    let doing = "agreeing on TLS, which it may not speak on this port";
                    Err(Trouble::silent(whom, doing, share))
                }
            }
        }
    }
}

/// Tries every address of a host, each with its share of the time: one that swallows everything does
/// not hide the others.
async fn tcp(whom: &Whom, place: &Place, patience: Duration) -> Result<TcpStream, Trouble> {
    let resolve = |error| Trouble::Resolve { whom: whom.clone(), source: Arc::new(error) };
    let found = lookup_host((place.host.as_str(), place.port)).await.map_err(resolve)?;
    let addresses: Vec<_> = found.collect();
    let share = patience / u32::try_from(addresses.len().max(1)).unwrap_or(1);
    let mut trouble = resolve(io::Error::other("it has no address"));
    for address in addresses {
        trouble = match timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                // Small requests wait for nothing. Where it cannot be set they take longer, no more.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Ok(Err(error)) => Trouble::Connect { whom: whom.clone(), source: Arc::new(error) },
            Err(_) => Trouble::silent(whom, "connecting", share),
        };
    }
    Err(trouble)
}

async fn unix(whom: &Whom, path: &Path) -> Result<UnixStream, Trouble> {
    UnixStream::connect(path)
        .await
        .map_err(|error| Trouble::Connect { whom: whom.clone(), source: Arc::new(error) })
}
