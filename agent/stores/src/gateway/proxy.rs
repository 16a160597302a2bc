//! HTTP proxies between the agent and its gateways, as `HTTPS_PROXY` and `NO_PROXY` name them. To a proxy a gateway is a place to
//! connect to: it sees neither the key nor the calls.

use std::env;
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper::header::{self, HeaderValue};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::TokioIo;
use tokio::task::JoinSet;

use super::settings::is_loopback;
use crate::remote::stream::{self, Stream};
use crate::remote::{ConnectError, Endpoint, Peer};
use crate::settings::Refusal;

/// Variables that name a proxy for https, the first before the others.
const VARIABLES: [&str; 4] = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"];
/// The port of a proxy that is named without one.
const PORT: u16 = 80;

/// The proxies by their names in the environment.
#[derive(Default)]
pub struct Proxies(Option<Matcher>);

impl fmt::Debug for Proxies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Proxies").field(&self.0.is_some()).finish()
    }
}

/// A proxy before a gateway.
#[derive(Debug)]
pub(super) struct Proxy {
    host: String,
    port: u16,
    /// Marked as secret, so that it is not shown.
    login: Option<HeaderValue>,
    /// Its place, for messages.
    peer: Peer,
}

impl Proxies {
    /// Reads the environment.
    ///
    /// # Errors
    ///
    /// What is wrong, with the variable; its value may have a password and is not told.
    pub(super) fn of_environment() -> Result<Proxies, (&'static str, Refusal)> {
        let set = |variable: &&str| env::var(variable).is_ok_and(|value| !value.is_empty());
        let Some(variable) = VARIABLES.into_iter().find(set) else { return Ok(Proxies(None)) };
        let value = env::var(variable).unwrap_or_default();
        check(&value).map_err(|refusal| (variable, refusal))?;
        Ok(Proxies(Some(Matcher::from_env())))
    }

    /// The proxy before a gateway that speaks TLS; none for one on this host.
    pub(super) fn before(&self, gateway: &Endpoint) -> Option<Proxy> {
        let Endpoint::Tcp(host, _) = gateway else { return None };
        let to = format!("https://{gateway}").parse().ok().filter(|_| !is_loopback(host))?;
        let found = self.0.as_ref()?.intercept(&to)?;
        let (host, port) = place_of(found.uri())?;
        let place = Endpoint::Tcp(host.clone(), port).to_string();
        let peer = Peer { what: "the proxy (HTTPS_PROXY)", place };
        Some(Proxy { host, port, login: found.basic_auth().cloned(), peer })
    }
}

fn check(value: &str) -> Result<(), Refusal> {
    let rule = "must name a proxy as http://HOST:PORT or http://USER:PASSWORD@HOST:PORT; to reach gateways without it name \
                their hosts in NO_PROXY";
    let matcher = Matcher::builder().https(value.to_owned()).build();
    let found = matcher.intercept(&Uri::from_static("https://gateway.example"));
    let found = found.filter(|found| found.uri().scheme_str() == Some("http"));
    found.and_then(|found| place_of(found.uri())).map(drop).ok_or_else(|| rule.to_owned())
}

/// Host and port, IPv6 without brackets.
fn place_of(uri: &Uri) -> Option<(String, u16)> {
    let host = uri.host()?.trim_start_matches('[').trim_end_matches(']');
    Some((host.to_owned(), uri.port_u16().unwrap_or(PORT)))
}

impl Proxy {
    /// Its place, for people.
    pub(super) fn place(&self) -> &str {
        &self.peer.place
    }

    /// A stream to a gateway, through the proxy, within about this time.
    ///
    /// # Errors
    ///
    /// When the proxy is not there, or does not connect.
    pub(super) async fn connect(
        &self,
        gateway: &Endpoint,
        connect_timeout: Duration,
    ) -> Result<Box<dyn Stream>, ConnectError> {
        let stream = stream::tcp(&self.peer, &self.host, self.port, connect_timeout).await?;
        let doing = "connecting to the gateway";
        ConnectError::within(connect_timeout, &self.peer, doing, self.ask(stream, gateway)).await
    }

    async fn ask(
        &self,
        stream: impl Stream + 'static,
        gateway: &Endpoint,
    ) -> Result<Box<dyn Stream>, ConnectError> {
        let peer = &self.peer;
        let lost = |error: hyper::Error| ConnectError::lost(peer, &error.to_string());
        let handshake = http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(lost)?;
        // It ends with this set, at the latest.
        let mut driving = JoinSet::new();
        driving.spawn(connection.with_upgrades());
        let response = sender.send_request(self.request(gateway)).await.map_err(lost)?;
        let status = response.status();
        if status.is_success() {
            let upgraded = hyper::upgrade::on(response).await.map_err(lost)?;
            return Ok(Box::new(TokioIo::new(upgraded)));
        }
        let (peer, cause) = (peer.clone(), format!("{status} for {gateway}"));
        Err(match status {
            StatusCode::PROXY_AUTHENTICATION_REQUIRED => {
                let way_out =
                    "; write the login into HTTPS_PROXY, as http://USER:PASSWORD@HOST:PORT";
                ConnectError::NotLetIn { peer, cause, way_out }
            }
            _ => ConnectError::Refused { peer, cause, way_out: "" },
        })
    }

    fn request(&self, gateway: &Endpoint) -> Request<Empty<Bytes>> {
        let place = gateway.to_string();
        let mut request = Request::new(Empty::new());
        *request.method_mut() = Method::CONNECT;
        // An authority and no more, which is the form that CONNECT has.
        *request.uri_mut() = place.parse().unwrap_or_default();
        let headers = request.headers_mut();
        if let Ok(host) = HeaderValue::try_from(place) {
            headers.insert(header::HOST, host);
        }
        if let Some(login) = &self.login {
            headers.insert(header::PROXY_AUTHORIZATION, login.clone());
        }
        request
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxy(https: &str, no: &str, gateway: &str) -> Option<Proxy> {
        let matcher = Matcher::builder().https(https.to_owned()).no(no.to_owned()).build();
        let (host, port) = gateway.rsplit_once(':').unwrap();
        Proxies(Some(matcher)).before(&Endpoint::Tcp(host.to_owned(), port.parse().unwrap()))
    }

    #[test]
    fn a_proxy_is_before_gateways_elsewhere() {
        let place = |https, no, gateway| proxy(https, no, gateway).map(|found| found.peer.place);
        let plain = "http://proxy.example:3128";
        assert_eq!(place(plain, "", "gateway.example:443").as_deref(), Some("proxy.example:3128"));
        assert_eq!(place("proxy", "", "2001:db8::1:443").as_deref(), Some("proxy:80"));
        assert_eq!(place("http://[::1]:8", "", "a:1").as_deref(), Some("[::1]:8"));
        for here in ["localhost:1", "127.0.0.1:1", "::1:1"] {
            assert_eq!(place(plain, "", here), None, "{here}");
        }
        for no in ["gateway.example", ".example", "example", "*"] {
            assert_eq!(place(plain, no, "gateway.example:443"), None, "{no}");
        }
    }

    #[test]
    fn a_login_is_sent_and_not_shown() {
        let found = proxy("http://me:hunter2@proxy:1", "", "gateway:443").unwrap();
        let gateway = Endpoint::Tcp("gateway".to_owned(), 443);
        let request = found.request(&gateway);
        assert_eq!(request.uri().to_string(), "gateway:443");
        assert_eq!(request.headers()[header::PROXY_AUTHORIZATION], "Basic bWU6aHVudGVyMg==");
        let shown = format!("{found:?} {request:?}");
        assert!(!shown.contains("hunter2") && !shown.contains("bWU6"), "{shown}");
    }

    #[test]
    fn what_is_no_proxy_of_http_is_refused() {
        for value in ["https://proxy", "socks5://proxy:1080", "http://", "ftp://x", "http://a b"] {
            let refusal = check(value).unwrap_err();
            assert!(refusal.starts_with("must name a proxy as http://HOST:PORT"), "{value}");
        }
        for value in ["proxy", "proxy:3128", "http://u:p@proxy:3128", "http://[::1]:3128/"] {
            assert_eq!(check(value), Ok(()), "{value}");
        }
    }
}
