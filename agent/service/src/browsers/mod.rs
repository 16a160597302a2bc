//! PURE: what keeps web pages of others away from a listener.
//!
//! A page that a person visits can have the browser send requests to any address that the browser reaches, loopback too, and
//! can give its own name another address (DNS rebinding). So a listener goes by what a browser says and no page can forge:
//! `Host`, `Origin` and `Sec-Fetch-Site`. Programs send no more than the first of them.

mod foreign;
mod host;

use std::net::IpAddr;

use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Uri, Version};

pub use self::foreign::{Foreign, quoted};
pub use self::host::{Host, HostList};

const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const DESTINATION: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// The head of a request.
#[derive(Debug, Clone, Copy)]
pub struct Head<'a> {
    pub method: &'a Method,
    pub uri: &'a Uri,
    pub version: Version,
    pub headers: &'a HeaderMap,
}

impl<'a> Head<'a> {
    pub fn of<B>(request: &'a Request<B>) -> Head<'a> {
        let (method, uri) = (request.method(), request.uri());
        Head { method, uri, version: request.version(), headers: request.headers() }
    }
}

/// The hosts of a listener.
#[derive(Debug, Clone)]
pub struct Guard {
    /// The address that is listened at.
    pub listened: IpAddr,
    /// Those of the setting.
    pub listed: HostList,
    /// The name of the setting.
    pub setting: &'static str,
    /// A page that others may link to.
    pub page: Option<&'static str>,
}

impl Guard {
    /// Refuses what a page of another origin has a browser send. `is_certified` tells hosts that a certificate is for.
    ///
    /// # Errors
    ///
    /// With what is foreign.
    pub fn judge(
        &self,
        head: Head<'_>,
        is_certified: impl Fn(&Host<'_>) -> bool,
    ) -> Result<(), Foreign> {
        let host = self.host(head, is_certified)?;
        let origin = self.origin(head.headers, host)?;
        self.judge_site(head, origin)
    }

    /// The host that is asked for, which must be one of this listener. After DNS rebinding it is a name of the page's.
    fn host<'a>(
        &self,
        head: Head<'a>,
        is_certified: impl Fn(&Host<'_>) -> bool,
    ) -> Result<Option<Asked<'a>>, Foreign> {
        let mut asked = None;
        let authority = head.uri.authority().map(|authority| authority.as_str().as_bytes());
        let mut headers = head.headers.get_all(header::HOST).iter();
        let header = headers.next().map(HeaderValue::as_bytes);
        if headers.next().is_some() {
            return Err(Foreign::SeveralHosts);
        }
        // Where both are there, something on the way may go by either.
        for text in [header, authority].into_iter().flatten() {
            let parsed = std::str::from_utf8(text).ok().and_then(Host::parse);
            let (host, port) = parsed.ok_or_else(|| Foreign::no_host(text))?;
            if !self.is_own(&host) && !is_certified(&host) {
                return Err(Foreign::misdirected(text, self.setting));
            }
            asked = Some(Asked { host, port });
        }
        // Health checks by HTTP/1.0 name none, and no browser speaks that.
        match asked {
            None if head.version > Version::HTTP_10 => Err(Foreign::NoHost),
            asked => Ok(asked),
        }
    }

    fn is_own(&self, host: &Host<'_>) -> bool {
        if host.is_this_host() || self.listed.has(host) {
            return true;
        }
        match host {
            // No name server decides what a literal address means.
            Host::Address(address) => {
                self.listened.is_unspecified() || self.listened.to_canonical() == *address
            }
            Host::Name(_) => false,
        }
    }

    /// The kind of the page that sends a request; `None` if no page is named.
    fn origin(&self, headers: &HeaderMap, asked: Option<Asked<'_>>) -> Result<Kind, Foreign> {
        let mut kind = Kind::Unnamed;
        for origin in headers.get_all(header::ORIGIN) {
            let foreign = || Foreign::origin(origin.as_bytes(), self.setting);
            let found = origin.to_str().ok().and_then(Asked::of_origin).ok_or_else(foreign)?;
            kind = match asked {
                _ if self.listed.has(&found.host) => Kind::Listed,
                Some(asked) if found.is_same(asked, origin) => Kind::Same,
                // A page of another port of this host is another's.
                _ => return Err(foreign()),
            };
        }
        Ok(kind)
    }

    fn judge_site(&self, head: Head<'_>, origin: Kind) -> Result<(), Foreign> {
        for site in head.headers.get_all(SITE) {
            match site.as_bytes() {
                b"same-origin" | b"none" => {}
                b"same-site" if origin == Kind::Listed => {}
                _ if self.is_link_to_page(head) => {}
                site => return Err(Foreign::site(site, self.setting)),
            }
        }
        Ok(())
    }

    /// True of a link that a person follows to the page. It reads nothing for the page that has the link, nor changes anything.
    fn is_link_to_page(&self, head: Head<'_>) -> bool {
        let says = |name, text: &str| {
            let mut values = head.headers.get_all(name).iter();
            values.next().is_some_and(|value| value == text) && values.next().is_none()
        };
        head.method == Method::GET
            && self.page.is_some_and(|page| page == head.uri.path())
            && says(MODE, "navigate")
            && says(DESTINATION, "document")
    }
}

/// The page that sends a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Unnamed,
    /// The listener's own.
    Same,
    /// One of the hosts in the setting.
    Listed,
}

/// A host and a port, as a request or an origin has them.
#[derive(Debug, Clone, Copy)]
struct Asked<'a> {
    host: Host<'a>,
    port: Option<u16>,
}

impl<'a> Asked<'a> {
    fn of_origin(origin: &'a str) -> Option<Asked<'a>> {
        let (scheme, authority) = origin.split_once("://")?;
        let usual = usual_port(scheme)?;
        let (host, port) = Host::parse(authority)?;
        Some(Asked { host, port: port.or(Some(usual)) })
    }

    /// True if an origin is that of the address that is asked for, whose scheme nothing in the request says.
    fn is_same(&self, asked: Asked<'_>, origin: &HeaderValue) -> bool {
        let scheme = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
        let usual = scheme.and_then(|(scheme, _)| usual_port(scheme));
        self.host.is_same(&asked.host) && self.port == asked.port.or(usual)
    }
}

fn usual_port(scheme: &str) -> Option<u16> {
    match scheme {
        "http" => Some(80),
        "https" => Some(443),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
