//! Where truth is kept, as configured.

use super::value::Refusal;

/// Where truth is kept.
#[derive(Debug, Clone)]
pub enum UpstreamUrl {
    /// In the agent itself, for this host alone.
    Embedded,
    /// In a Redis.
    Redis(Box<super::RedisAccess>),
}

impl UpstreamUrl {
    /// Reads a URL. The refusal never contains the URL: it may have a password in it.
    pub(super) fn parse(text: &str) -> Result<UpstreamUrl, Refusal> {
        const KNOWN: &str = "this version keeps everything itself: use \"embedded:\"";
        match text.split_once(':').map(|(scheme, rest)| (scheme, rest.is_empty())) {
            Some(("embedded", true)) => Ok(UpstreamUrl::Embedded),
            Some(("embedded", false)) => Err("embedded: takes nothing after the colon".to_owned()),
            Some(("redis+unix", false)) => {
                let path = text.trim_start_matches("redis+unix://").into();
                let server = super::RedisServer::Unix(path);
                Ok(UpstreamUrl::Redis(Box::new(super::RedisAccess::plain(server))))
            }
            Some((scheme @ ("redis" | "rediss" | "redis+unix" | "http" | "https"), _)) => {
                Err(format!("{scheme}: upstreams are not supported; {KNOWN}"))
            }
            _ => Err(format!("not the URL of an upstream; {KNOWN}")),
        }
    }

    /// What sort of upstream it is.
    pub fn kind(&self) -> &'static str {
        match self {
            UpstreamUrl::Embedded => "embedded",
            UpstreamUrl::Redis(_) => "redis",
        }
    }

    /// Where it is, for everybody: neither passwords nor users; `None` when it is in the agent itself.
    pub fn address(&self) -> Option<String> {
        (!matches!(self, UpstreamUrl::Embedded)).then(|| without_logins(&self.shown()))
    }

    /// The URL without any password.
    pub fn shown(&self) -> String {
        match self {
            UpstreamUrl::Embedded => "embedded:".to_owned(),
            UpstreamUrl::Redis(_) => "redis:".to_owned(),
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
        for url in [
            "redis://:hunter2@h/0",
            "https://hunter2@h",
            "hunter2",
            "hunter2://x",
            "embedded:hunter2",
        ] {
            let refusal = UpstreamUrl::parse(url).unwrap_err();
            assert!(!refusal.contains("hunter2") && refusal.contains("embedded:"), "{refusal}");
        }
    }
}
