//! Connections to proxies.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

/// How long a proxy may take to accept a connection.
const CONNECT_WITHIN: Duration = Duration::from_secs(1);
/// How often a silent proxy is asked whether it is there, and how long it may take to say so.
const PING_EVERY: Duration = Duration::from_secs(5);
const PONG_WITHIN: Duration = Duration::from_secs(3);

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

/// A channel to a proxy, which is connected when something is to be told. `lost` is told when a connection ends:
/// who comes back may have forgotten everything.
pub(super) fn channel(address: &str, lost: Arc<Notify>) -> Option<Channel> {
    let endpoint = endpoint(address)?
        .connect_timeout(CONNECT_WITHIN)
        .http2_keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PONG_WITHIN)
        .keep_alive_while_idle(true);
    let address: Arc<str> = address.into();
    let connect = service_fn(move |_| {
        let (address, lost) = (Arc::clone(&address), Arc::clone(&lost));
        async move {
            let stream = TcpStream::connect(&*address).await?;
            stream.set_nodelay(true)?;
            io::Result::Ok(TokioIo::new(Told { stream, lost }))
        }
    });
    Some(endpoint.connect_with_connector_lazy(connect))
}

/// A connection that tells of its end.
struct Told {
    stream: TcpStream,
    lost: Arc<Notify>,
}

impl Drop for Told {
    fn drop(&mut self) {
        self.lost.notify_one();
    }
}

impl AsyncRead for Told {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Told {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_and_a_port() {
        for good in ["proxy-01.prism.local:8980", "127.0.0.1:1", "[::1]:8980"] {
            assert!(is_address(good), "{good}");
        }
        for bad in [
            "",
            "host",
            "host:",
            "a b:1",
            "http://host:1",
            "user@host:1",
            "host:1/path",
            ":1",
            "host:0",
        ] {
            assert!(!is_address(bad), "{bad}");
        }
    }
}
