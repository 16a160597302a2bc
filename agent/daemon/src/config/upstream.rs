//! The URL of the upstream, as configured.

use super::redis_url::RedisUrl;
use super::value::Refusal;

/// The URL of the upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UpstreamUrl {
    /// In the agent itself, for this host alone.
    Embedded,
    /// In a Redis, for every agent that shares it.
    Redis(Box<RedisUrl>),
}

impl UpstreamUrl {
    /// Reads a URL. The refusal never contains the URL: it may have a password in it.
    pub(super) fn parse(text: &str) -> Result<UpstreamUrl, Refusal> {
        const KNOWN: &str = "use \"embedded:\", or a Redis such as \"redis://127.0.0.1:6379/0\"";
        let Some((scheme, rest)) = text.split_once(':') else {
            return Err(format!("not the URL of an upstream; {KNOWN}"));
        };
        if let Some(parsed) = RedisUrl::parse(scheme, rest) {
            return parsed.map(|url| UpstreamUrl::Redis(Box::new(url)));
        }
        match (scheme, rest.is_empty()) {
            ("embedded", true) => Ok(UpstreamUrl::Embedded),
            ("embedded", false) => Err("embedded: takes nothing after the colon".to_owned()),
            ("http" | "https", _) => {
                Err(format!("{scheme}: upstreams are not supported yet; {KNOWN}"))
            }
            _ => Err(format!("not the URL of an upstream; {KNOWN}")),
        }
    }

    /// The sort of upstream.
    pub fn kind(&self) -> &'static str {
        match self {
            UpstreamUrl::Embedded => "embedded",
            UpstreamUrl::Redis(_) => "redis",
        }
    }

    /// Its address, for everybody: neither passwords nor users; `None` when it is in the agent
    /// itself.
    pub fn address(&self) -> Option<String> {
        (*self != UpstreamUrl::Embedded).then(|| without_logins(&self.shown()))
    }

    /// The URL with *** in place of every password.
    pub fn shown(&self) -> String {
        match self {
            UpstreamUrl::Embedded => "embedded:".to_owned(),
            UpstreamUrl::Redis(url) => url.shown(),
        }
    }
}

/// A URL without whoever signs in there.
fn without_logins(url: &str) -> String {
    let url = url.split("?sentinel_").next().unwrap_or_default();
    let Some((scheme, rest)) = url.split_once("//") else { return url.to_owned() };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let place = authority.rsplit_once('@').map_or(authority, |(_, place)| place);
    format!("{scheme}//{place}{path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_tells_nobody_who_signs_in() {
        for (url, address) in [
            ("redis://db:6379/0", "redis://db:6379/0"),
            ("rediss://app:***@[::1]:6379/3", "rediss://[::1]:6379/3"),
            ("redis+unix://:***@/run/a@b.sock?db=0", "redis+unix:///run/a@b.sock?db=0"),
            (
                "redis+sentinel://app:***@a:26379,b:26379/main/0?sentinel_user=s&sentinel_password=***",
                "redis+sentinel://a:26379,b:26379/main/0",
            ),
        ] {
            assert_eq!(without_logins(url), address);
        }
        assert_eq!(UpstreamUrl::Embedded.address(), None);
    }

    #[test]
    fn refuses_what_it_does_not_know_without_quoting_it() {
        assert_eq!(UpstreamUrl::parse("embedded:"), Ok(UpstreamUrl::Embedded));
        for url in ["https://hunter2@h", "hunter2", "hunter2://x", "embedded:hunter2"] {
            let refusal = UpstreamUrl::parse(url).unwrap_err();
            assert!(!refusal.contains("hunter2") && refusal.contains("embedded:"), "{refusal}");
        }
    }

    #[test]
    fn knows_redis() {
        let url = UpstreamUrl::parse("redis://:hunter2@h/3").unwrap();
        assert_eq!((url.kind(), url.shown().as_str()), ("redis", "redis://:***@h:6379/3"));
        assert!(!format!("{url:?}").contains("hunter2"));
    }
}
