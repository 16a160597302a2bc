//! The URL of a gateway and the section `[gateway]`.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::GUARANTEE;
use super::address::GatewayAccess;
use super::proxy::Proxies;
use crate::remote::Endpoint;
use crate::settings::secret::{Credentials, Secret, SecretFile, SecretSource};
use crate::settings::tls::Trust;
use crate::settings::{
    Broken, Key, OpenError, Opened, Opener, Place, Refusal, SectionKey, Settings, Value, tls,
};
use crate::{duration_key, tls_keys};

/// A gateway's own calls end sooner. `tenure` waits 5 s for its agent, which must be able to say before that
/// its gateway hangs.
const TIMEOUT: Duration = Duration::from_secs(4);
/// A gateway that needs longer cannot keep holds alive.
const CALL_MAX: Duration = Duration::from_secs(60);
/// Below, every hiccup of a network would look like a dead gateway.
const CALL_MIN: Duration = Duration::from_millis(50);
/// Longest time between two questions about a contended resource.
const POLL: Duration = Duration::from_secs(1);

/// Most gateways that are named: a cluster has seven nodes at most.
const GATEWAYS_MAX: usize = 9;

const UPSTREAM: &str = "upstream";
const SECRET_FILE: &str = "upstream_secret_file";

/// The settings of a gateway.
#[derive(Debug, Clone)]
struct Section {
    /// `None` until a URL is given.
    urls: Option<Urls>,
    connect_timeout: Duration,
    timeout: Duration,
    tls: tls::Files,
}

/// One gateway, or several with one store.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Urls {
    is_secure: bool,
    /// Hosts and ports.
    places: Vec<(String, u16)>,
}

/// The settings of a gateway, before anything is configured.
pub fn settings() -> Box<dyn Settings> {
    let (connect_timeout, timeout) = (TIMEOUT, TIMEOUT);
    Box::new(Section { urls: None, connect_timeout, timeout, tls: tls::Files::default() })
}

static KEYS: [Key<Section>; 2] = [
    duration_key!(Section, "gateway.timeout", timeout, CALL_MIN, CALL_MAX).about(
        "From a call to its answer; one that takes longer is tried again on a new connection.",
    ),
    duration_key!(Section, "gateway.connect_timeout", connect_timeout, CALL_MIN, CALL_MAX)
        .about("From the wish to connect to a gateway that has let the agent in."),
];

static TLS_KEYS: [Key<Section>; 3] = tls_keys!(Section, "gateway", "https", tls);

fn all_keys() -> impl Iterator<Item = &'static Key<Section>> {
    KEYS.iter().chain(&TLS_KEYS)
}

impl Settings for Section {
    fn kind(&self) -> &'static str {
        "gateway"
    }

    fn guarantee(&self) -> &'static str {
        GUARANTEE
    }

    fn example(&self) -> &'static str {
        "a gateway such as \"https://gateway.example\", or several with one store, as \"https://a.example,b.example\""
    }

    fn set_url(&mut self, scheme: &str, rest: &str) -> Option<Result<(), Refusal>> {
        let is_secure = is_secure(scheme)?;
        Some(Urls::parse(is_secure, rest).map(|urls| self.urls = Some(urls)))
    }

    fn url(&self) -> String {
        self.address().unwrap_or_default()
    }

    fn address(&self) -> Option<String> {
        let urls = self.urls.as_ref()?;
        let scheme = if urls.is_secure { "https" } else { "http" };
        let places: Vec<_> = urls.endpoints().iter().map(Endpoint::to_string).collect();
        Some(format!("{scheme}://{}", places.join(",")))
    }

    fn keys(&self) -> Vec<SectionKey> {
        all_keys().map(Key::of_section).collect()
    }

    fn about(&self) -> &'static str {
        "How to use a gateway, where that is the upstream. Its key is in upstream_secret_file. A join key (tnj_…) there is \
         exchanged for a key of this agent alone, which is made once and kept in state_dir/gateway-key."
    }

    fn set(&mut self, name: &str, text: &str) -> Result<(), Refusal> {
        let key = all_keys().find(|key| key.name == name);
        key.map_or(Ok(()), |key| (key.set)(self, text))
    }

    fn get(&self, name: &str) -> Option<Value> {
        (all_keys().find(|key| key.name == name)?.get)(self)
    }

    fn poll(&self) -> Option<Duration> {
        Some(POLL)
    }

    fn takes_secret(&self) -> bool {
        true
    }

    fn resolve(
        &self,
        secret_file: Option<&Path>,
        credentials: &Credentials,
    ) -> Result<Arc<dyn Opener>, Broken> {
        let Some(urls) = &self.urls else { return Err(Broken::new(UPSTREAM, "must be given")) };
        let file = secret_file.map(|path| SecretFile::open(path, credentials));
        let file = file.transpose().map_err(|rule| Broken::new(SECRET_FILE, rule))?;
        let key = file.map(SecretSource::File);
        let tls = match urls.is_secure {
            true => Some(self.tls.read("gateway")?),
            false => self.tls.check_unused("gateway", "https://").map(|()| None)?,
        };
        let proxies = match urls.is_secure {
            true => Proxies::of_environment(&urls.endpoints())
                .map_err(|(name, rule)| Broken::new(name, rule))?,
            false => Proxies::default(),
        };
        Ok(Arc::new(GatewayAccess {
            endpoints: urls.endpoints(),
            tls,
            proxies: Arc::new(proxies),
            key,
            own_key: None,
            connect_timeout: self.connect_timeout,
            timeout: self.timeout,
        }))
    }

    fn boxed(&self) -> Box<dyn Settings> {
        Box::new(self.clone())
    }
}

/// True for https, false for http, in any case; `None` for another scheme.
fn is_secure(scheme: &str) -> Option<bool> {
    match scheme {
        _ if scheme.eq_ignore_ascii_case("https") => Some(true),
        _ if scheme.eq_ignore_ascii_case("http") => Some(false),
        _ => None,
    }
}

impl Urls {
    /// Reads what comes after the first scheme: hosts, or whole URLs of the same scheme after the first host.
    fn parse(is_secure: bool, rest: &str) -> Result<Urls, Refusal> {
        let named = rest.strip_prefix("//").ok_or_else(wrong)?;
        if named.contains('@') {
            return Err(
                "must have no user and no password; the key is in upstream_secret_file".to_owned()
            );
        }
        let mut places = Vec::new();
        for (at, place) in named.split(',').enumerate() {
            let place = if at == 0 { place } else { without_scheme(is_secure, place)? };
            let place = place_of(is_secure, place.strip_suffix('/').unwrap_or(place))?;
            if places.contains(&place) {
                let (host, port) = place;
                return Err(format!(
                    "must name each gateway once, and has {host} port {port} twice"
                ));
            }
            places.push(place);
        }
        if places.len() > GATEWAYS_MAX {
            return Err(format!("may name {GATEWAYS_MAX} gateways at most, not {}", places.len()));
        }
        Ok(Urls { is_secure, places })
    }

    fn endpoints(&self) -> Vec<Endpoint> {
        self.places.iter().map(|(host, port)| Endpoint::Tcp(host.clone(), *port)).collect()
    }
}

fn wrong() -> Refusal {
    "must name a host and no more, as https://HOST or https://HOST:PORT, or several with commas between them: \
     https://HOST:PORT,HOST:PORT or https://HOST:PORT,https://HOST:PORT"
        .to_owned()
}

/// What follows the scheme of a gateway that is named by a whole URL. The scheme must be that of the first one.
fn without_scheme(is_first_secure: bool, url: &str) -> Result<&str, Refusal> {
    let Some((scheme, place)) = url.split_once("://") else { return Ok(url) };
    match is_secure(scheme) {
        Some(is_secure) if is_secure == is_first_secure => Ok(place),
        Some(_) => {
            let rule = "must have one scheme for all gateways: https:// for each of them, or http:// for each";
            Err(rule.to_owned())
        }
        None => Err(wrong()),
    }
}

/// The host and the port of one gateway.
fn place_of(is_secure: bool, place: &str) -> Result<(String, u16), Refusal> {
    let (host, port) = match place.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or_else(wrong)?;
            (host, port.strip_prefix(':').or(port.is_empty().then_some("")))
        }
        None => match place.split_once(':') {
            Some((host, port)) => (host, Some(port).filter(|port| !port.is_empty())),
            None => (place, Some("")),
        },
    };
    let port = match port.ok_or_else(wrong)? {
        "" if is_secure => 443,
        "" => 80,
        port => port.parse().ok().filter(|port| *port > 0).ok_or_else(wrong)?,
    };
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
    if host.is_empty() || host.len() > 253 || !host.chars().all(is_name) {
        return Err(wrong());
    }
    if !is_secure && !is_loopback(host) {
        let rule = "must be https: without TLS anybody on the way could read the key; http is for a \
                    gateway on this host";
        return Err(rule.to_owned());
    }
    Ok((host.to_owned(), port))
}

pub(super) fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

impl Opener for GatewayAccess {
    fn open(&self, place: Place<'_>) -> Result<Opened, OpenError> {
        super::open(self, place)
    }

    fn secrets(&self) -> Vec<(&'static str, Secret)> {
        self.key.iter().map(|key| (SECRET_FILE, key.latest())).collect()
    }

    fn reload(&self) -> Result<(), Broken> {
        self.key.iter().for_each(|key| drop(key.read()));
        self.tls.iter().try_for_each(Trust::reload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<String, Refusal> {
        let mut section = settings();
        let (scheme, rest) = url.split_once(':').unwrap();
        section.set_url(scheme, rest).unwrap()?;
        Ok(section.url())
    }

    #[test]
    fn urls() {
        for (url, shown) in [
            ("https://gateway.example", "https://gateway.example:443"),
            ("https://gateway.example/", "https://gateway.example:443"),
            ("https://[2001:db8::1]:8443", "https://[2001:db8::1]:8443"),
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("http://[::1]", "http://[::1]:80"),
            ("http://localhost:1", "http://localhost:1"),
            ("https://a,b:1,[::1]", "https://a:443,b:1,[::1]:443"),
            ("http://localhost:1,127.0.0.1:1", "http://localhost:1,127.0.0.1:1"),
            ("http://localhost:1,http://127.0.0.1:1", "http://localhost:1,127.0.0.1:1"),
            ("https://a/,https://b:1/,https://[::1]", "https://a:443,b:1,[::1]:443"),
            ("https://a,HTTPS://b,c", "https://a:443,b:443,c:443"),
        ] {
            assert_eq!(parse(url).as_deref(), Ok(shown));
        }
        for wrong in [
            "https:gateway",
            "https://",
            "https://a:",
            "https://a:0",
            "https://a:65536",
            "https://a:b",
            "https://a/b",
            "https://a?b",
            "https://[::1",
            "https://[::1]x",
            "https://a b",
            "https://a:1:2",
            "https://a,",
            "https://,a",
            "https://https://a",
            "https://a,https://",
            "https://a,https://https://b",
            "https://a,ftp://b",
            "https://a,//b",
            "https://a//",
        ] {
            assert!(parse(wrong).unwrap_err().starts_with("must name a host"), "{wrong}");
        }
        assert!(parse("http://gateway.example").unwrap_err().starts_with("must be https"));
        for mixed in
            ["https://a,http://localhost", "http://localhost:1,https://a", "https://a,HTTP://b"]
        {
            let refusal = parse(mixed).unwrap_err();
            assert!(refusal.starts_with("must have one scheme for all gateways"), "{refusal}");
        }
        assert!(parse("https://a,https://a").unwrap_err().contains("a port 443 twice"));
        let refusal = parse("https://hunter2@h/0").unwrap_err();
        assert!(refusal.starts_with("must have no user") && !refusal.contains("hunter2"));
    }
}
