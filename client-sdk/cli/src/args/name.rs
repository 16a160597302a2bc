//! Names, addresses and numbers on the command line, so far as they can be judged without an agent.

use uuid::Uuid;

use super::NAME_MAX;

/// Reads the name of something.
pub(crate) fn parse(text: &str) -> Result<String, String> {
    let rule = format!("a name has 1 to {NAME_MAX} bytes of visible letters");
    let wrong = match text {
        "" => "it is empty".to_owned(),
        _ if text.len() > NAME_MAX => format!("this one has {}", text.len()),
        _ => match text.chars().find(|letter| letter.is_control()) {
            Some(letter) => format!("{:?} cannot be seen", letter),
            None => return Ok(text.to_owned()),
        },
    };
    Err(format!("{rule}; {wrong}"))
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
        return Ok(text.to_owned());
    }
    Err("write a host and a port from 1 to 65535: 10.0.0.7:8982, web-7:80 or [::1]:80".to_owned())
}

/// Reads a fencing token.
pub(super) fn token(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "a token is a number, as `tenure standing` shows it".to_owned())
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
