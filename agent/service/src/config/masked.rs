//! A wrong URL as it can be shown: all that a typing error may be in, and never the password.

/// Parameters of a URL that are no secrets.
const OPEN: [&str; 2] = ["db", "sentinel_user"];

const HIDDEN: &str = "***";

/// A URL, in quotes or without, with `***` in place of what is, or may be, a password; `***` alone of a text that may
/// be one.
pub(super) fn masked(text: &str) -> String {
    let quoted = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    match quoted.map(shown) {
        Some(shown) if shown != HIDDEN => format!("\"{shown}\""),
        Some(hidden) => hidden,
        None => shown(text),
    }
}

fn shown(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else {
        return if is_place(text) { text.to_owned() } else { HIDDEN.to_owned() };
    };
    let is_scheme = |c: char| c.is_ascii_lowercase() || c == '+';
    if scheme.is_empty() || scheme.len() > 20 || !scheme.chars().all(is_scheme) {
        return HIDDEN.to_owned();
    }
    let (base, parameters) = rest.split_once('?').unwrap_or((rest, ""));
    let (user, place) = match base.rsplit_once('@') {
        Some((login, place)) => (
            match login.split_once(':') {
                Some((user, _)) => format!("{user}:{HIDDEN}@"),
                // A password without its colon.
                None => format!("{HIDDEN}@"),
            },
            place,
        ),
        // A password without the rest of the login.
        None if !is_place(base) => return format!("{scheme}://{HIDDEN}"),
        None => (String::new(), base),
    };
    if parameters.is_empty() {
        return format!("{scheme}://{user}{place}");
    }
    // A password with a question mark in it.
    if parameters.contains('@') {
        return format!("{scheme}://{HIDDEN}");
    }
    let parameters: Vec<String> = parameters
        .split('&')
        .map(|parameter| match parameter.split_once('=') {
            Some((name, _)) if OPEN.contains(&name) => parameter.to_owned(),
            Some((name, _)) => format!("{name}={HIDDEN}"),
            None => HIDDEN.to_owned(),
        })
        .collect();
    format!("{scheme}://{user}{place}?{}", parameters.join("&"))
}

/// True for a path, and for names of hosts, of which those after a colon are numbers of ports.
fn is_place(text: &str) -> bool {
    let hosts = text.split('/').next().unwrap_or_default();
    let plain = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
    let is_host = |host: &str| match host.rsplit_once(':') {
        Some((name, port)) => {
            let is_number = !port.is_empty() && port.chars().all(|c| c.is_ascii_digit());
            is_number && (name.chars().all(plain) || name.starts_with('['))
        }
        // A name alone without a scheme may be a password.
        None => host.chars().all(plain) && (text.contains('/') || host.contains('.')),
    };
    hosts.is_empty() && text.starts_with('/') || !hosts.is_empty() && hosts.split(',').all(is_host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(masked(text), expected, "{text}");
    }

    #[test]
    fn a_typing_error_is_seen_and_a_password_is_not() {
        check("redis://app:hunter2@db-1:63x9/3", "redis://app:***@db-1:63x9/3");
        check("rediss://:hun@ter2@h/x", "rediss://:***@h/x");
        check("localhost:6379", "localhost:6379");
        check("\"localhost:6379\"", "\"localhost:6379\"");
        check("db.example", "db.example");
        check("/run/redis.sock", "/run/redis.sock");
        check("rdis://db-1:6379/0", "rdis://db-1:6379/0");
        check("https://gateway.example/x", "https://gateway.example/x");
        check("redis+sentinel://a:26379,b:1/m/x?db=y", "redis+sentinel://a:26379,b:1/m/x?db=y");
        let url = "redis+sentinel://h.x/m?sentinel_user=me&sentinel_password=hunter2";
        check(url, "redis+sentinel://h.x/m?sentinel_user=me&sentinel_password=***");
    }

    #[test]
    fn what_may_be_a_password_is_hidden() {
        check("hunter2", "***");
        check("\"hunter2\"", "***");
        check("[\"redis://:hunter2@h\"]", "***");
        check("hunter:2x", "***");
        check("redis://hunter2@h", "redis://***@h");
        check("redis://:hunter2", "redis://***");
        check("redis://h:hunter2", "redis://***");
        check("redis://:hun?ter2@h", "redis://***");
        check("redis://h.x/0?hunter2", "redis://h.x/0?***");
        check("redis://h.x/m?sentinel_password=hunter@2", "redis://***");
        check("hunter2 ://x", "***");
    }
}
