//! Connections to proxies.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use hyper_util::rt::TokioIo;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpStream, lookup_host};
use tokio::sync::{Mutex, Notify};
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

use super::connection::Connection;
use super::networks::{Networks, Outside};
use super::proxy::Standing;

/// How long a proxy may take to accept a connection.
const CONNECT_WITHIN: Duration = Duration::from_secs(1);
/// How long a connection may be silent until the system asks whether its peer is there, and how often it asks again.
const QUIET_MAX: Duration = Duration::from_secs(5);
const ASKED_EVERY: Duration = Duration::from_secs(3);
/// How long the peer's system may leave bytes, or such questions, without an acknowledgement.
#[cfg(target_os = "linux")]
const ACKNOWLEDGED_WITHIN: Duration = Duration::from_secs(8);

/// True for HOST:PORT.
pub fn is_address(address: &str) -> bool {
    endpoint(address).is_some()
}

fn endpoint(address: &str) -> Option<Endpoint> {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).ok()?;
    let uri = endpoint.uri();
    let is_plain = uri.authority().is_some_and(|it| {
        let has_port = it.port_u16().is_some_and(|port| port > 0);
        it.as_str() == address && has_port && !it.host().is_empty()
    });
    (is_plain && !address.contains('@')).then_some(endpoint)
}

/// The address that a HOST:PORT is without asking for a name.
pub(super) fn literal(address: &str) -> Option<SocketAddr> {
    let (host, port) = address.rsplit_once(':')?;
    let v6 = || host.strip_prefix('[')?.strip_suffix(']')?.parse().ok().map(IpAddr::V6);
    let ip = v6().or_else(|| inet_aton(host).map(IpAddr::V4))?;
    Some(SocketAddr::new(ip, port.parse().ok()?))
}

/// An IPv4 address in any spelling that the system's resolver takes for one, such as 2130706433, 127.1 and 0x7f.1
/// (inet_aton(3)).
fn inet_aton(host: &str) -> Option<Ipv4Addr> {
    let number = |text: &str| {
        let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
            Some(digits) => (digits, 16),
            None if text.len() > 1 && text.starts_with('0') => (text, 8),
            None => (text, 10),
        };
        let is_number = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        u32::from_str_radix(digits, radix).ok().filter(|_| is_number)
    };
    let parts: Vec<u32> = host.split('.').map(number).collect::<Option<_>>()?;
    let (last, first) = parts.split_last().filter(|(_, first)| first.len() < 4)?;
    let mut bits = *last;
    for (place, part) in first.iter().enumerate() {
        let byte = u8::try_from(*part).ok()?;
        bits = bits.checked_add(u32::from(byte) << (24 - 8 * place))?;
    }
    let room = 8 * (4 - first.len());
    let is_in_room = u64::from(*last) < 1 << room;
    is_in_room.then(|| Ipv4Addr::from_bits(bits))
}

/// The addresses of a name.
pub(super) type Lookup =
    Arc<dyn Fn(String, u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> + Send + Sync>;

/// Looks a name up as the system does.
pub(super) fn system() -> Lookup {
    Arc::new(|host, port| {
        Box::pin(async move { Ok(lookup_host((host.as_str(), port)).await?.collect()) })
    })
}

/// Connects to one proxy.
#[derive(Clone)]
pub(super) struct Dialer {
    pub(super) address: Arc<str>,
    /// The networks in which it may be; `None` for any.
    pub(super) networks: Option<Arc<Networks>>,
    pub(super) lookup: Lookup,
    /// A name whose servers are silent has one thread at most: the system's resolver cannot be told to stop.
    turn: Arc<Mutex<()>>,
}

impl Dialer {
    pub(super) fn new(
        address: Arc<str>,
        networks: Option<Arc<Networks>>,
        lookup: Lookup,
    ) -> Dialer {
        Dialer { address, networks, lookup, turn: Arc::default() }
    }

    /// A channel, which is connected when something is to be told. `lost` is told when a connection ends: who comes back
    /// may have forgotten everything.
    pub(super) fn channel(self, lost: Arc<Notify>, standing: Arc<Standing>) -> Option<Channel> {
        let endpoint = endpoint(&self.address)?.connect_timeout(CONNECT_WITHIN);
        let connect = service_fn(move |_| {
            let (dialer, lost, standing) = (self.clone(), Arc::clone(&lost), Arc::clone(&standing));
            async move {
                let stream = dialer.connect().await?;
                prepare(&stream)?;
                io::Result::Ok(TokioIo::new(Connection::new(stream, lost, standing)))
            }
        });
        Some(endpoint.connect_with_connector_lazy(connect))
    }

    /// Connects to the first of its addresses that takes it. What is judged is what is connected to: a name that is
    /// looked up again may lead elsewhere.
    async fn connect(&self) -> io::Result<TcpStream> {
        let mut error = io::Error::other("the name has no address");
        for address in self.addresses().await? {
            match self.judge(address) {
                Ok(()) => match TcpStream::connect(address).await {
                    Ok(stream) => return Ok(stream),
                    Err(cause) => error = cause,
                },
                Err(outside) => {
                    tracing::debug!(proxy = %self.address, "not connected to: {outside}");
                    error = io::Error::new(io::ErrorKind::PermissionDenied, outside.to_string());
                }
            }
        }
        Err(error)
    }

    fn judge(&self, address: SocketAddr) -> Result<(), Outside> {
        self.networks.as_ref().map_or(Ok(()), |networks| networks.judge(address))
    }

    async fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        if let Some(address) = literal(&self.address) {
            return Ok(vec![address]);
        }
        let parts = self.address.rsplit_once(':');
        let parts = parts.and_then(|(host, port)| Some((host.to_owned(), port.parse().ok()?)));
        let (host, port) = parts.ok_or(io::ErrorKind::InvalidInput)?;
        let turn = Arc::clone(&self.turn).lock_owned().await;
        let found = (self.lookup)(host, port);
        let found = tokio::spawn(async move {
            let found = found.await;
            drop(turn);
            found
        });
        found.await.map_err(io::Error::other)?
    }
}

/// Has the system notice that the host of a peer is gone, also while nothing is told. HTTP/2 could ask the peer itself by
/// PING frames, but servers of gRPC end a connection whose client sends more than two of them within five minutes, or
/// two hours while no call is under way (grpc/doc/keepalive.md, GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS
/// and GRPC_ARG_HTTP2_MAX_PING_STRIKES; grpc-go's keepalive.EnforcementPolicy). A peer whose host is there, and that
/// answers nothing, is noticed by its calls.
fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    let keepalive = TcpKeepalive::new().with_time(QUIET_MAX).with_interval(ASKED_EVERY);
    socket.set_tcp_keepalive(&keepalive.with_retries(1))?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(ACKNOWLEDGED_WITHIN))?;
    Ok(())
}

#[cfg(test)]
#[path = "dial_tests.rs"]
mod tests;
