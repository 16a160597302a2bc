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

/// Variables that name a proxy for https, the first before the others, with what it is called.
const VARIABLES: [(&str, &str); 4] = [
    ("HTTPS_PROXY", "the proxy (HTTPS_PROXY)"),
    ("https_proxy", "the proxy (https_proxy)"),
    ("ALL_PROXY", "the proxy (ALL_PROXY)"),
    ("all_proxy", "the proxy (all_proxy)"),
];
/// Variables that name what is reached without one.
const EXCEPTIONS: [&str; 2] = ["NO_PROXY", "no_proxy"];
/// The port of a proxy that is named without one.
const PORT: u16 = 80;

/// The proxies by their names in the environment.
#[derive(Default)]
pub struct Proxies(Option<Setting>);

/// A variable of the environment that names a proxy, and the hosts that are reached without the proxy.
struct Setting {
    variable: &'static str,
    /// For messages.
    what: &'static str,
    matcher: Matcher,
}

impl fmt::Debug for Proxies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let variable = self.0.as_ref().map(|named| named.variable);
        f.debug_tuple("Proxies").field(&variable).finish()
    }
}

/// A proxy before a gateway.
#[derive(Debug)]
pub(super) struct Proxy {
    host: String,
    port: u16,
    /// Marked as secret, so that it is not shown.
    login: Option<HeaderValue>,
    variable: &'static str,
    /// Its place, for messages.
    peer: Peer,
}

impl Proxies {
    /// Reads the environment.
    ///
    /// # Errors
    ///
    /// What is wrong with the proxy before one of these gateways, with the variable; its value may have a password and is not told.
    pub(super) fn of_environment(
        gateways: &[Endpoint],
    ) -> Result<Proxies, (&'static str, Refusal)> {
        let value = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
        let named = VARIABLES.into_iter().find_map(|named| Some((named, value(named.0)?)));
        let Some((named, url)) = named else { return Ok(Proxies(None)) };
        let except = EXCEPTIONS.into_iter().find_map(value).unwrap_or_default();
        Proxies::of(named, &url, &except, gateways).map_err(|refusal| (named.0, refusal))
    }

    fn of(
        (variable, what): (&'static str, &'static str),
        url: &str,
        except: &str,
        gateways: &[Endpoint],
    ) -> Result<Proxies, Refusal> {
        let of = |url: &str| {
            let matcher = Matcher::builder().https(url.to_owned()).no(except.to_owned()).build();
            Proxies(Some(Setting { variable, what, matcher }))
        };
        // A proxy that is meant for other programs alone may be of any sort.
        let any = of("http://proxy");
        if gateways.iter().any(|gateway| any.before(gateway).is_some()) {
            check(url)?;
        }
        Ok(of(url))
    }

    /// The proxy before a gateway that speaks TLS; none for one on this host.
    pub(super) fn before(&self, gateway: &Endpoint) -> Option<Proxy> {
        let Endpoint::Tcp(host, _) = gateway else { return None };
        let to = format!("https://{gateway}").parse().ok().filter(|_| !is_loopback(host))?;
        let Setting { variable, what, matcher } = self.0.as_ref()?;
        let found = matcher.intercept(&to)?;
        let host = found.uri().host()?.trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = found.uri().port_u16().unwrap_or(PORT);
        let place = Endpoint::Tcp(host.clone(), port).to_string();
        let (login, peer) = (found.basic_auth().cloned(), Peer { what, place });
        Some(Proxy { host, port, login, variable, peer })
    }
}

/// Checks the URL of a proxy that is used.
fn check(url: &str) -> Result<(), Refusal> {
    let is_good = || {
        let uri: Uri = match url.contains("://") {
            true => url.parse().ok()?,
            false => format!("http://{url}").parse().ok()?,
        };
        let place = uri.authority()?.as_str().rsplit('@').next()?;
        let (_, port) = place.rsplit_once(':').filter(|(_, port)| !port.ends_with(']')).unzip();
        let has_port = port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0));
        let is_plain = uri.scheme_str() == Some("http") && ["", "/"].contains(&uri.path());
        (is_plain && has_port && uri.host().is_some_and(|host| !host.is_empty())).then_some(())
    };
    is_good().ok_or_else(|| {
        "must name a proxy as http://HOST:PORT or http://USER:PASSWORD@HOST:PORT, with what is special in the password as %XX; \
         to reach gateways without it name their hosts in NO_PROXY"
            .to_owned()
    })
}

impl Proxy {
    /// What it is called, for people.
    pub(super) fn peer(&self) -> &Peer {
        &self.peer
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
        let peer = &self.peer;
        let stream = stream::tcp(peer, &self.host, self.port, connect_timeout).await;
        let stream = stream.map_err(|error| match error {
            ConnectError::Resolve { source, .. } => ConnectError::NotLocated(format!(
                "the host of {peer} cannot be found: {source}; check its name in {}, or the name service",
                self.variable
            )),
            error => error,
        })?;
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
                let way_out = match self.login {
                    None => {
                        "; write the login into its variable, as http://USER:PASSWORD@HOST:PORT"
                    }
                    Some(_) => "; mend the login in its variable",
                };
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

    fn endpoint(gateway: &str) -> Endpoint {
        let (host, port) = gateway.rsplit_once(':').unwrap();
        Endpoint::Tcp(host.to_owned(), port.parse().unwrap())
    }

    fn proxy(https: &str, no: &str, gateway: &str) -> Option<Proxy> {
        let gateway = endpoint(gateway);
        Proxies::of(VARIABLES[0], https, no, std::slice::from_ref(&gateway))
            .unwrap()
            .before(&gateway)
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
    fn what_is_no_proxy_of_http_is_refused_where_it_is_used() {
        let gateways = [endpoint("gateway.example:443"), endpoint("localhost:1")];
        let of = |url: &str, no: &str, gateways: &[Endpoint]| {
            Proxies::of(VARIABLES[0], url, no, gateways).map(drop)
        };
        for url in [
            "https://proxy",
            "socks5://proxy:1080",
            "http://",
            "ftp://x",
            "http://a b",
            "http://p:70000",
            "http://p:31x8",
            "http://p:0",
            "http://p:",
            "http://me:12/34@p",
            "http://p/path",
        ] {
            let refusal = of(url, "", &gateways).unwrap_err();
            assert!(refusal.starts_with("must name a proxy as http://HOST:PORT"), "{url}");
            assert_eq!(of(url, ".example", &gateways), Ok(()), "{url}");
            assert_eq!(of(url, "", &gateways[1..]), Ok(()), "{url}");
        }
        for url in
            ["proxy", "proxy:3128", "http://u:p@proxy:3128", "http://[::1]:3128/", "http://[::1]"]
        {
            assert_eq!(of(url, "", &gateways), Ok(()), "{url}");
        }
    }
}
