//! Modes: how far the store and its callers are away, and what is asked for because of that.

use std::fmt;

use tenure_service::config::Environment;
use tenure_stores::settings::{Broken, Refusal, Stores};

use super::Settings;

/// The password of the store behind a gateway that is given none of its own.
const PASSWORD: &str = "PRISM_REDIS_PASSWORD";
/// The store beside the gateway, in a network of containers.
const BESIDE: &str = "redis://redis:6379/0";
/// Passwords that stand in published examples.
const PUBLISHED: [&str; 2] = ["prism_server", "prism_personal"];

/// The place where a gateway is used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mode {
    /// One host, or one person's containers.
    #[default]
    Local,
    /// A network of people who know each other.
    Lan,
    /// Anything else.
    Cloud,
}

impl Mode {
    /// Reads a word.
    pub(super) fn parse(text: &str) -> Result<Mode, Refusal> {
        match text {
            "local" | "personal" | "development" => Ok(Mode::Local),
            "lan" => Ok(Mode::Lan),
            "cloud" | "hosted" => Ok(Mode::Cloud),
            _ => {
                Err("must be local (or personal, development), lan, or cloud (or hosted)"
                    .to_owned())
            }
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::Local => "local",
            Mode::Lan => "lan",
            Mode::Cloud => "cloud",
        })
    }
}

/// Gives a store that nobody named, and a password to one that was named without.
pub(super) fn complete(
    settings: &mut Settings,
    is_named: bool,
    environment: &Environment,
) -> Result<(), Broken> {
    let wrong = |rule: Refusal| Broken::new("upstream", rule);
    if !is_named {
        match settings.mode {
            Mode::Local => {}
            Mode::Lan => settings.stores.set_url(BESIDE).map_err(wrong)?,
            Mode::Cloud => {
                let rule = "must be given in mode cloud: name the managed Redis, such as \
                            rediss://USER@HOST:PORT/DB, also as PRISM_REDIS_URL";
                return Err(wrong(rule.to_owned()));
            }
        }
    }
    let Some(password) = environment.variables.get(PASSWORD) else { return Ok(()) };
    let password = password.to_str().ok_or_else(|| wrong(format!("{PASSWORD} must be UTF-8")))?;
    // As at the end of a file with a password.
    let password = password.trim_end_matches(['\r', '\n']);
    if password.is_empty() || settings.upstream_secret_file.is_some() {
        return Ok(());
    }
    match with_password(&settings.stores, password) {
        Some(url) => settings.stores.set_url(&url).map_err(wrong),
        None => Ok(()),
    }
}

/// The URL of the upstream with this password; `None` if it has one, or takes none.
fn with_password(stores: &Stores, password: &str) -> Option<String> {
    let upstream = stores.upstream();
    if !upstream.takes_secret() || upstream.passwords_elsewhere().is_some() {
        return None;
    }
    let url = upstream.url();
    let (scheme, rest) = url.split_once("://")?;
    // A path has no place for it.
    let ("redis" | "rediss" | "redis+sentinel" | "rediss+sentinel") = scheme else { return None };
    let (user, hosts) = rest.split_once('@').unwrap_or(("", rest));
    Some(format!("{scheme}://{user}:{}@{hosts}", escaped(password)))
}

/// As a URL takes it.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

/// Checks what the mode asks for.
pub(super) fn check(settings: &Settings) -> Result<(), Broken> {
    let mode = settings.mode;
    if mode == Mode::Local {
        return Ok(());
    }
    let wrong = |rule: String| Err(Broken::new("upstream", rule));
    // The key for programs of the gateway's own user is of no use on a network.
    let has_keys = settings.asks_for_keys() && !settings.makes_local_key();
    if !has_keys && settings.tls.clients.is_none() {
        let rule = format!(
            "must be true in mode {mode}, or keys_file be given: without keys everybody would be let in"
        );
        return Err(Broken::new("keys_in_store", rule));
    }
    if !settings.stores.upstream().takes_secret() {
        return Ok(());
    }
    let secrets = settings.opener.secrets();
    if mode == Mode::Lan && secrets.is_empty() {
        return wrong(format!(
            "must have a password in mode lan: whoever reaches the Redis could take every hold; name a \
             file with it in upstream_secret_file, or give it in {PASSWORD} (openssl rand -base64 24)"
        ));
    }
    match secrets.iter().find(|(_, secret)| PUBLISHED.contains(&secret.expose())) {
        None => Ok(()),
        Some((key, _)) => {
            let rule = format!(
                "is the password of a published example, which everybody knows, and so not accepted in mode \
                 {mode}: choose another (openssl rand -base64 24)"
            );
            Err(Broken::new(key, rule))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_put_into_the_url() {
        for (url, expected) in [
            ("redis://h/0", Some("redis://:a%2Fb%40@h:6379/0")),
            ("rediss://me@h:1/2", Some("rediss://me:a%2Fb%40@h:1/2")),
            ("redis://:own@h/0", None),
            ("redis+unix:///s", None),
            ("embedded:", None),
        ] {
            let mut stores = Stores::default();
            stores.set_url(url).unwrap();
            assert_eq!(with_password(&stores, "a/b@").as_deref(), expected, "{url}");
        }
    }
}
