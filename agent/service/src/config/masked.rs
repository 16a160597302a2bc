//! A wrong URL as it can be shown: all that a typing error may be in, and never the password.

/// Parameters of a URL that are no secrets.
const OPEN: [&str; 5] =
    ["db", "sentinel_user", "sslmode", "target_session_attrs", "channel_binding"];

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

/// The name of a file with a secret, in quotes or without; `***` of what may be the secret itself.
pub(super) fn masked_path(text: &str) -> String {
    let path = text.strip_prefix('"').unwrap_or(text);
    let is_path = path.contains('/') && path.starts_with(['/', '.', '$', '~']);
    if is_path { text.to_owned() } else { HIDDEN.to_owned() }
}

fn shown(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else {
        let is_place =
            text.starts_with(['/', '.']) || !text.contains('/') && has_hosts(text, false);
        return if is_place { text.to_owned() } else { HIDDEN.to_owned() };
    };
    let is_scheme = |c: char| c.is_ascii_alphabetic() || c == '+';
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
        None => (String::new(), base),
    };
    if user.is_empty() && !has_hosts(place, place.contains('/')) {
        return format!("{scheme}://{HIDDEN}");
    }
    let place = without_database(scheme, place);
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
            Some(("db", db)) if !is_number(db) => format!("db={HIDDEN}"),
            Some((name, _)) if OPEN.contains(&name) => parameter.to_owned(),
            Some((name, _)) => format!("{name}={HIDDEN}"),
            None => HIDDEN.to_owned(),
        })
        .collect();
    format!("{scheme}://{user}{place}?{}", parameters.join("&"))
}

/// The place with `***` for what a database's number may not be: a password may stand there. The names of the masters of
/// Sentinels, of sockets, and of the databases of a Postgres are words.
fn without_database(scheme: &str, place: &str) -> String {
    let scheme = scheme.to_ascii_lowercase();
    let is_word = scheme.starts_with("postgres") || scheme.ends_with("+unix");
    let words = if scheme.ends_with("+sentinel") { 2 } else { 1 };
    let mut parts: Vec<&str> = place.split('/').collect();
    for part in parts.iter_mut().skip(words).filter(|part| !part.is_empty() && !is_word) {
        if !is_number(part) {
            *part = HIDDEN;
        }
    }
    parts.join("/")
}

/// True if it begins with names of hosts, or none, of which those after a colon are numbers of ports.
fn has_hosts(text: &str, has_path: bool) -> bool {
    let hosts = text.split('/').next().unwrap_or_default();
    let plain = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
    let is_host = |host: &str| match host.rsplit_once(':') {
        Some((name, port)) => is_number(port) && (name.chars().all(plain) || name.starts_with('[')),
        // A name alone may be a password.
        None => host.chars().all(plain) && (has_path || host.contains('.')),
    };
    hosts.is_empty() && has_path || !hosts.is_empty() && hosts.split(',').all(is_host)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_digit())
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
        check("rediss://:hun@ter2@h/x", "rediss://:***@h/***");
        check("REDIS://app:hunter2@db-1:63x9/3", "REDIS://app:***@db-1:63x9/3");
        check("Redis+Unix:///run/redis.sock?db=x", "Redis+Unix:///run/redis.sock?db=***");
        check("localhost:6379", "localhost:6379");
        check("\"localhost:6379\"", "\"localhost:6379\"");
        check("db.example", "db.example");
        check("/run/redis.sock", "/run/redis.sock");
        check("rdis://db-1:6379/0", "rdis://db-1:6379/0");
        check("/hunter/redis.sock", "/hunter/redis.sock");
        check("./redis.sock", "./redis.sock");
        check("redis+unix:///run/redis.sock?db=1", "redis+unix:///run/redis.sock?db=1");
        check("postgres://me@db.x/app", "postgres://***@db.x/app");
        check("https://gateway.example/", "https://gateway.example/");
        check("redis+sentinel://a:26379,b:1/m/0?db=3", "redis+sentinel://a:26379,b:1/m/0?db=3");
        let url = "redis+sentinel://h.x/m?sentinel_user=me&sentinel_password=hunter2";
        check(url, "redis+sentinel://h.x/m?sentinel_user=me&sentinel_password=***");
        check(
            "postgres://me:x@db.x/a?sslmode=prefer&y=z",
            "postgres://me:***@db.x/a?sslmode=prefer&y=***",
        );
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
        check("hun/ter2pass", "***");
        check("hun.ter/2pass", "***");
        check("h:1/ter2pass", "***");
        check("redis://h:1/hunter2", "redis://h:1/***");
        check("redis:///hunter2", "redis:///***");
        check("https://gateway.example/hunter2", "https://gateway.example/***");
        check("redis+sentinel://h.x/m/hunter2?db=hunter2", "redis+sentinel://h.x/m/***?db=***");
    }

    #[test]
    fn a_secret_in_place_of_its_file_is_hidden() {
        for secret in ["hunter2", "\"hunter2\"", "hun/ter2pass", ".hunter2", "[\"hunter2\"]", ""] {
            assert_eq!(masked_path(secret), "***", "{secret}");
        }
        for path in ["/run/secret", "\"/run/secret\"", "./secret", "$CREDENTIALS_DIRECTORY/x"] {
            assert_eq!(masked_path(path), path);
        }
    }
}
