//! Where truth is kept, as configured.

use super::value::Refusal;

/// Where truth is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UpstreamUrl {
    /// In the agent itself, for this host alone.
    Embedded,
}

impl UpstreamUrl {
    /// Reads a URL. The refusal never contains the URL: it may have a password in it.
    pub(super) fn parse(text: &str) -> Result<UpstreamUrl, Refusal> {
        const KNOWN: &str = "this version keeps everything itself: use \"embedded:\"";
        match text.split_once(':').map(|(scheme, rest)| (scheme, rest.is_empty())) {
            Some(("embedded", true)) => Ok(UpstreamUrl::Embedded),
            Some(("embedded", false)) => Err("embedded: takes nothing after the colon".to_owned()),
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
        }
    }

    /// Where it is, without any password; `None` when it is in the agent itself.
    pub fn address(&self) -> Option<String> {
        match self {
            UpstreamUrl::Embedded => None,
        }
    }

    /// The URL without any password.
    pub fn shown(&self) -> String {
        match self {
            UpstreamUrl::Embedded => "embedded:".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
