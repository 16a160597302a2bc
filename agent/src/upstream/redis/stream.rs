//! Byte streams to a server.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::address::Spot;
use super::trouble::Trouble;
use crate::config::{Place, Trust};

/// A byte stream to a server.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// Connects. `whom` is who is there, for people.
pub(super) async fn connect(
    whom: &str,
    spot: &Spot,
    tls: Option<&Trust>,
    patience: Duration,
) -> Result<Box<dyn Stream>, Trouble> {
    match (spot, tls) {
        (Spot::Unix(path), _) => Ok(Box::new(unix(whom, path).await?)),
        (Spot::Tcp(place), None) => Ok(Box::new(tcp(whom, place, patience).await?)),
        (Spot::Tcp(place), Some(trust)) => {
            let name = ServerName::try_from(place.host.clone()).map_err(|error| {
                Trouble::tls(whom, io::Error::new(io::ErrorKind::InvalidInput, error))
            })?;
            let stream = tcp(whom, place, patience).await?;
            let secured = TlsConnector::from(trust.config()).connect(name, stream).await;
            Ok(Box::new(secured.map_err(|error| Trouble::tls(whom, error))?))
        }
    }
}

/// Tries every address of a host, each with its share of the time: one that swallows everything does
/// not hide the others.
async fn tcp(whom: &str, place: &Place, patience: Duration) -> Result<TcpStream, Trouble> {
    let resolve = |error| Trouble::Resolve { whom: whom.to_owned(), source: Arc::new(error) };
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
            Ok(Err(error)) => Trouble::Connect { whom: whom.to_owned(), source: Arc::new(error) },
            Err(_) => Trouble::silent(whom, "connecting", share),
        };
    }
    Err(trouble)
}

async fn unix(whom: &str, path: &Path) -> Result<UnixStream, Trouble> {
    UnixStream::connect(path)
        .await
        .map_err(|error| Trouble::Connect { whom: whom.to_owned(), source: Arc::new(error) })
}
