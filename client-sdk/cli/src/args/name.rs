//! Names, addresses and numbers on the command line, so far as they can be judged without an agent.

use tenure::wire::rules::{self, Checked};
use uuid::Uuid;

/// Reads the name of something, or another text that the agent takes by the same rule.
pub(crate) fn parse(text: &str) -> Result<String, String> {
    read(text, rules::visible("name", text))
}

/// Reads a name, or KIND/NAME.
pub(super) fn parse_resource(text: &str) -> Result<String, String> {
    const KIND_MAX: usize = "semaphore/".len();
    read(text, rules::visible_within("name", text, rules::NAME_MAX + KIND_MAX))
}

/// Reads a tenant.
pub(super) fn tenant(text: &str) -> Result<String, String> {
    read(text, rules::scope("tenant", text))
}

/// Reads a project.
pub(super) fn project(text: &str) -> Result<String, String> {
    read(text, rules::scope("project", text))
}

fn read(text: &str, checked: Checked) -> Result<String, String> {
    checked.map(|()| text.to_owned()).map_err(|invalid| invalid.why().to_owned())
}

/// Reads `HOST:PORT`.
pub(super) fn address(text: &str) -> Result<String, String> {
    let (host, port) = text.rsplit_once(':').unwrap_or_default();
    let in_brackets = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_host = match in_brackets {
        Some(host) => host.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            let may_be = |letter: char| letter.is_alphanumeric() || "-._".contains(letter);
            !host.is_empty() && host.chars().all(may_be)
        }
    };
    if is_host && port.parse::<u16>().is_ok_and(|port| port > 0) {
        return parse(text);
    }
    Err("write a host and a port from 1 to 65535: 10.0.0.7:8982, web-7:80 or [::1]:80".to_owned())
}

/// Reads a fencing token.
pub(super) fn token(text: &str) -> Result<u64, String> {
    let token = text
        .parse()
        .map_err(|_| "a token is a number, as `tenure standing` shows it".to_owned())?;
    rules::token("token", token).map_err(|invalid| invalid.why().to_owned())?;
    Ok(token)
}

/// Reads the id of a session.
pub(super) fn session(text: &str) -> Result<Uuid, String> {
    text.parse()
        .map_err(|_| "a session is a UUID, as `tenure status --verbose` shows it".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_can_be_seen() {
        assert!(parse("nightly/eu west").is_ok() && parse(&"a".repeat(200)).is_ok());
        assert!(parse("").is_err() && parse("a\tb").is_err() && parse(&"a".repeat(201)).is_err());
        assert!(parse("a\u{202e}b").is_err() && parse("a:b").is_ok());
        assert!(tenant("a:b").is_err() && tenant("tenure.agents").is_err());
        assert!(project("a:b").is_err() && project("a b").is_ok());
        assert!(token("1").is_ok() && token("0").is_err() && token(&u64::MAX.to_string()).is_err());
    }

    #[test]
    fn an_address_has_host_and_port() {
        for good in ["10.0.0.7:8982", "web-7:80", "a.b_c.example:1", "[::1]:80"] {
            assert!(address(good).is_ok(), "{good}");
        }
        for bad in ["nonsense", ":80", "a:", "a:0", "a:65536", "a b:1", "::1:80", "[x]:80", ""] {
            assert!(address(bad).is_err(), "{bad}");
        }
    }
}
