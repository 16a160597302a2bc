//! Where a Redis is, and how to reach it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio::time::timeout;

use super::trouble::Trouble;
use crate::config::{Login, Place, RedisServer, RedisUrl};

/// How long things may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// From the wish to connect to a server that has let us in.
    pub connect: Duration,
    /// From a call to its answer. The caller's to keep; also that of the looks at an idle connection.
    pub call: Duration,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience { connect: Duration::from_secs(2), call: Duration::from_secs(2) }
    }
}

/// Where a Redis is, how to get in, and how long to try.
#[derive(Debug, Clone)]
pub struct Address {
    url: RedisUrl,
    patience: Patience,
}

/// A byte stream to a server.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

impl Address {
    /// What was configured.
    pub fn new(url: RedisUrl, patience: Patience) -> Address {
        Address { url, patience }
    }

    /// How long things may take.
    pub fn patience(&self) -> Patience {
        self.patience
    }

    /// Where it is, for people.
    pub fn shown(&self) -> String {
        match &self.url.server {
            RedisServer::Tcp(place) => place.to_string(),
            RedisServer::Unix(path) => path.display().to_string(),
            RedisServer::Sentinel { master, .. } => master.clone(),
        }
    }

    pub(super) fn login(&self) -> &Login {
        &self.url.login
    }

    pub(super) fn db(&self) -> u32 {
        self.url.db
    }

    /// Connects, and says to where.
    pub(super) async fn dial(&self) -> Result<(Box<dyn Stream>, String), Trouble> {
        match &self.url.server {
            RedisServer::Tcp(place) => {
                Ok((Box::new(tcp(place, self.patience.connect).await?), place.to_string()))
            }
            RedisServer::Unix(path) => {
                Ok((Box::new(unix(path).await?), path.display().to_string()))
            }
            RedisServer::Sentinel { master, .. } => Err(Trouble::Unfit {
                place: master.clone(),
                what: "is behind Sentinel, which is not followed".to_owned(),
            }),
        }
    }
}

/// Tries every address of a host, each with its share of the time: one that swallows everything does
/// not hide the others.
async fn tcp(place: &Place, patience: Duration) -> Result<TcpStream, Trouble> {
    let resolve = |error| Trouble::Resolve { place: place.to_string(), source: Arc::new(error) };
    let found = lookup_host((place.host.as_str(), place.port)).await.map_err(resolve)?;
    let addresses: Vec<_> = found.collect();
    let share = patience / u32::try_from(addresses.len().max(1)).unwrap_or(1);
    let mut trouble = resolve(std::io::Error::other("it has no address"));
    for address in addresses {
        trouble = match timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                // Small requests wait for nothing. What cannot be set costs time, and no more.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Ok(Err(error)) => {
                Trouble::Connect { place: place.to_string(), source: Arc::new(error) }
            }
            Err(_) => silent(&place.to_string(), "connecting", patience),
        };
    }
    Err(trouble)
}

async fn unix(path: &Path) -> Result<UnixStream, Trouble> {
    let stream = UnixStream::connect(path).await;
    stream.map_err(|error| Trouble::Connect {
        place: path.display().to_string(),
        source: Arc::new(error),
    })
}

pub(super) fn silent(place: &str, doing: &'static str, after: Duration) -> Trouble {
    Trouble::Silent { whom: format!("Redis at {place}"), doing, after }
}
