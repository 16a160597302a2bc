//! How values are written.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The form of a key's value in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Text,
    /// May contain a password.
    Secret,
    Duration,
    Count,
}

/// The rule that a value broke.
pub(super) type Refusal = String;

/// The text of a value of a file.
pub(super) fn text(value: &toml::Value, shape: Shape) -> Result<String, Refusal> {
    match (value, shape) {
        (toml::Value::Integer(number), Shape::Count) => Ok(number.to_string()),
        (toml::Value::String(text), Shape::Text | Shape::Secret | Shape::Duration) => {
            Ok(text.clone())
        }
        (_, Shape::Count) => Err("must be a number without quotes".to_owned()),
        (_, Shape::Duration) => Err(DURATION.to_owned()),
        (_, Shape::Text | Shape::Secret) => Err("must be a text in quotes".to_owned()),
    }
}

const DURATION: &str = "must be a duration such as \"15s\" or \"500ms\"";

pub(super) fn duration(text: &str) -> Result<Duration, Refusal> {
    let duration = humantime::parse_duration(text).map_err(|_| DURATION.to_owned())?;
    if !duration.subsec_nanos().is_multiple_of(1_000_000) {
        return Err("must be whole milliseconds".to_owned());
    }
    Ok(duration)
}

/// A duration within bounds, which are part of it.
pub(super) fn duration_in(text: &str, min: Duration, max: Duration) -> Result<Duration, Refusal> {
    let duration = duration(text)?;
    if (min..=max).contains(&duration) {
        Ok(duration)
    } else {
        Err(format!("must be from {} to {}", show(min), show(max)))
    }
}

/// A number within bounds, which are part of it.
pub(super) fn count(text: &str, min: u64, max: u64) -> Result<u64, Refusal> {
    text.parse()
        .ok()
        .filter(|count| (min..=max).contains(count))
        .ok_or_else(|| format!("must be a number from {min} to {max}"))
}

/// An absolute path, so that it means the same wherever the agent is started.
pub(super) fn path(text: &str) -> Result<PathBuf, Refusal> {
    let path = PathBuf::from(text);
    if path.is_absolute() { Ok(path) } else { Err("must be an absolute path".to_owned()) }
}

/// A socket's path, also as `unix:/path` or `unix:///path`. Relative ones start here.
pub(super) fn socket(text: &str) -> Result<PathBuf, Refusal> {
    let path = match text.strip_prefix("unix:") {
        Some(rest) => rest.strip_prefix("//").unwrap_or(rest),
        None => text,
    };
    if path.is_empty() || path.contains('\0') || (path != text && !path.starts_with('/')) {
        return Err("must be a path, or a URI such as unix:///run/tenured/api.sock".to_owned());
    }
    std::path::absolute(path).map_err(|error| format!("must be a path that exists: {error}"))
}

/// An address that only this host reaches. A name is none: what it means is decided elsewhere.
pub(super) fn loopback(text: &str) -> Result<SocketAddr, Refusal> {
    const RULE: &str =
        "must be a loopback address with a port, such as \"127.0.0.1:9464\" or \"[::1]:9464\"";
    let address: SocketAddr = text.parse().map_err(|_| RULE.to_owned())?;
    if address.port() == 0 {
        return Err(format!("{RULE}; port 0 is none"));
    }
    if !address.ip().is_loopback() {
        return Err(format!(
            "{RULE}: whoever reaches it reads it without signing in, so it must not be reached from \
             other hosts; let a scraper on this host, or a proxy that asks for a password, pass it on"
        ));
    }
    Ok(address)
}

/// Longest prefix of keys, bytes: it is part of every one of them.
const PREFIX_MAX: usize = 64;

/// The prefix of the names of keys.
pub(super) fn prefix(text: &str) -> Result<String, Refusal> {
    // Those are wild cards where Redis takes a pattern: in ACLs, subscriptions and searches.
    let is_good = |c: char| c.is_ascii_graphic() && !r"*?[]\".contains(c);
    if (1..=PREFIX_MAX).contains(&text.len()) && text.chars().all(is_good) {
        return Ok(text.to_owned());
    }
    Err(format!(
        r"must be 1 to {PREFIX_MAX} visible ASCII characters, none of them a space or one of * ? [ ] \"
    ))
}

/// A duration as it is written in a file.
pub(super) fn show(duration: Duration) -> String {
    match duration.subsec_millis() {
        0 => format!("{}s", duration.as_secs()),
        _ => format!("{}ms", duration.as_millis()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_go_there_and_back() {
        for (text, shown) in [("15s", "15s"), ("500ms", "500ms"), ("1m 30s", "90s"), ("0s", "0s")] {
            assert_eq!(show(duration(text).unwrap()), shown);
        }
        for text in ["", "15", "-1s", "1us", "fast"] {
            duration(text).unwrap_err();
        }
    }

    #[test]
    fn prefixes_are_plain() {
        for text in ["leader:", "a", "titan:leader:", "{x}", &"x".repeat(64)] {
            assert_eq!(prefix(text).unwrap(), text);
        }
        for text in ["", "a b", " ", "a\n", "ä", "a*", "a?", "[", "]", r"\", &"x".repeat(65)] {
            prefix(text).unwrap_err();
        }
    }

    #[test]
    fn metrics_stay_on_this_host() {
        for text in ["127.0.0.1:9464", "127.9.9.9:1", "[::1]:9464"] {
            assert_eq!(loopback(text).unwrap().to_string(), text);
        }
        for text in [
            "",
            "9464",
            ":9464",
            "localhost:9464",
            "127.0.0.1",
            "127.0.0.1:0",
            "0.0.0.0:9464",
            "10.0.0.1:9464",
            "[::]:9464",
            "[::ffff:10.0.0.1]:9464",
            "127.0.0.1:99999",
        ] {
            loopback(text).unwrap_err();
        }
    }

    #[test]
    fn sockets_are_paths_or_uris() {
        for text in ["/a/b", "unix:/a/b", "unix:///a/b"] {
            assert_eq!(socket(text).unwrap(), PathBuf::from("/a/b"));
        }
        assert!(socket("b.sock").unwrap().is_absolute());
        for text in ["", "unix:", "unix://host/b", "unix:b"] {
            socket(text).unwrap_err();
        }
    }
}
