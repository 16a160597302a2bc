//! URLs of a Redis. No refusal quotes any part of one: there may be a password in it.

use std::fmt::Write;
use std::path::PathBuf;

use super::{Login, Place, RedisServer};
use crate::settings::Refusal;
use crate::settings::secret::Secret;

/// The default port of Redis.
const PORT: u16 = 6379;
/// The default port of Sentinels.
const SENTINEL_PORT: u16 = 26_379;
/// Most Sentinels; each costs its share of the time to connect.
const SENTINELS_MAX: usize = 16;
/// Longest name of a host, see RFC 1035.
const HOST_MAX: usize = 253;
/// Longest user, password, master or path, bytes.
const PART_MAX: usize = 4096;
/// Highest database that Redis can be configured to have.
const DB_MAX: u32 = i32::MAX.unsigned_abs();

/// The address of a Redis, as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RedisUrl {
    pub(super) server: RedisServer,
    pub(super) tls: bool,
    pub(super) login: Login,
    pub(super) db: u32,
}

impl RedisUrl {
    /// Reads what follows the scheme and its colon; `None` for another scheme.
    pub(super) fn parse(scheme: &str, rest: &str) -> Option<Result<RedisUrl, Refusal>> {
        Some(match scheme {
            "redis" => tcp(rest, false),
            "rediss" => tcp(rest, true),
            "redis+unix" => unix(rest),
            "redis+sentinel" => sentinel(rest, false),
            "rediss+sentinel" => sentinel(rest, true),
            _ => return None,
        })
    }

    /// The passwords that are part of it.
    pub(super) fn passwords(&self) -> impl Iterator<Item = Secret> {
        let of_sentinels = match &self.server {
            RedisServer::Sentinel { login, .. } => login.password.clone(),
            RedisServer::Tcp(_) | RedisServer::Unix(_) => None,
        };
        self.login.password.clone().into_iter().chain(of_sentinels)
    }

    /// The URL with *** in place of every password.
    pub(super) fn shown(&self) -> String {
        let RedisUrl { server, tls, login, db } = self;
        let s = if *tls { "s" } else { "" };
        let user = login_shown(login);
        match server {
            RedisServer::Tcp(place) => format!("redis{s}://{user}{place}/{db}"),
            RedisServer::Unix(path) => {
                let path = encoded(&path.display().to_string());
                format!("redis+unix://{user}{path}?db={db}")
            }
            RedisServer::Sentinel { sentinels, master, login } => {
                let sentinels: Vec<_> = sentinels.iter().map(Place::to_string).collect();
                let (sentinels, master) = (sentinels.join(","), encoded(master));
                let mut text = format!("redis{s}+sentinel://{user}{sentinels}/{master}/{db}");
                let user =
                    login.user.as_deref().map(|user| format!("sentinel_user={}", encoded(user)));
                let password = login.password.as_ref().map(|_| "sentinel_password=***".to_owned());
                let parameters: Vec<_> = user.into_iter().chain(password).collect();
                if !parameters.is_empty() {
                    // Writing to a String cannot fail.
                    let _ = write!(text, "?{}", parameters.join("&"));
                }
                text
            }
        }
    }
}

fn login_shown(login: &Login) -> String {
    let user = login.user.as_deref().map(encoded).unwrap_or_default();
    match &login.password {
        Some(_) => format!("{user}:***@"),
        None if user.is_empty() => user,
        None => format!("{user}@"),
    }
}

/// The parts of a URL after its scheme.
struct Parts<'a> {
    login: Login,
    hosts: &'a str,
    /// With its slash.
    path: &'a str,
    parameters: Vec<(&'a str, String)>,
}

fn parts(rest: &str) -> Result<Parts<'_>, Refusal> {
    let rest = rest.strip_prefix("//").ok_or("must have // after the scheme")?;
    if rest.contains('#') {
        return Err("must have no # in it; in a password it is written %23".to_owned());
    }
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let (login, hosts) = match authority.rsplit_once('@') {
        Some((login, hosts)) => (user_and_password(login)?, hosts),
        None => (Login::default(), authority),
    };
    let mut parameters: Vec<(&str, String)> = Vec::new();
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        if parameters.iter().any(|(other, _)| *other == key) {
            return Err("must have each parameter after ? once only".to_owned());
        }
        parameters.push((key, decoded("a parameter after ?", value)?));
    }
    Ok(Parts { login, hosts, path, parameters })
}

impl Parts<'_> {
    /// Takes a parameter out.
    fn parameter(&mut self, key: &str) -> Option<String> {
        let at = self.parameters.iter().position(|(other, _)| *other == key)?;
        Some(self.parameters.swap_remove(at).1)
    }

    /// Refuses parameters that nobody knows.
    fn no_more(&self, known: &str) -> Result<(), Refusal> {
        if self.parameters.is_empty() {
            Ok(())
        } else {
            Err(format!("must have no parameters after ?{known}; a ? in a password is written %3F"))
        }
    }
}

fn tcp(rest: &str, tls: bool) -> Result<RedisUrl, Refusal> {
    let parts = parts(rest)?;
    parts.no_more("")?;
    let server = RedisServer::Tcp(place(parts.hosts, PORT)?);
    let db = db(parts.path.strip_prefix('/').unwrap_or_default())?;
    Ok(RedisUrl { server, tls, login: parts.login, db })
}

fn unix(rest: &str) -> Result<RedisUrl, Refusal> {
    let mut parts = parts(rest)?;
    let number = parts.parameter("db").unwrap_or_default();
    if let Some(user) = parts.parameter("user") {
        if parts.login.user.is_some() {
            return Err("must name the user once".to_owned());
        }
        parts.login.user = Some(part("the user", user)?);
    }
    parts.no_more(" but db and user")?;
    if !parts.hosts.is_empty() || parts.path.len() < 2 {
        return Err("must have a path after three slashes, as redis+unix:///run/redis/redis.sock"
            .to_owned());
    }
    let path = part("the path", decoded("the path", parts.path)?)?;
    let server = RedisServer::Unix(PathBuf::from(path));
    Ok(RedisUrl { server, tls: false, login: parts.login, db: db(&number)? })
}

fn sentinel(rest: &str, tls: bool) -> Result<RedisUrl, Refusal> {
    let mut parts = parts(rest)?;
    let login = Login {
        user: parts
            .parameter("sentinel_user")
            .map(|user| part("sentinel_user", user))
            .transpose()?,
        password: parts
            .parameter("sentinel_password")
            .map(|password| part("sentinel_password", password).map(Secret::new))
            .transpose()?,
    };
    parts.no_more(" but sentinel_user and sentinel_password")?;
    let sentinels: Vec<Place> =
        parts.hosts.split(',').map(|host| place(host, SENTINEL_PORT)).collect::<Result<_, _>>()?;
    if sentinels.len() > SENTINELS_MAX {
        return Err(format!("must name at most {SENTINELS_MAX} Sentinels"));
    }
    let path = parts.path.strip_prefix('/').unwrap_or_default();
    let (master, number) = path.split_once('/').unwrap_or((path, ""));
    let master = decoded("the master's name", master)?;
    if master.is_empty() {
        return Err("must have the master's name after the Sentinels, as \
                    redis+sentinel://HOST,HOST/MASTER-NAME"
            .to_owned());
    }
    let master = part("the master's name", master)?;
    let server = RedisServer::Sentinel { sentinels, master, login };
    Ok(RedisUrl { server, tls, login: parts.login, db: db(number)? })
}

fn user_and_password(text: &str) -> Result<Login, Refusal> {
    let (user, password) = match text.split_once(':') {
        Some((user, password)) => (user, Some(password)),
        None => (text, None),
    };
    let user =
        (!user.is_empty()).then(|| part("the user", decoded("the user", user)?)).transpose()?;
    let password = password
        .map(|password| part("the password", decoded("the password", password)?).map(Secret::new))
        .transpose()?;
    if user.is_none() && password.is_none() {
        return Err("must have a user or a password before the @".to_owned());
    }
    Ok(Login { user, password })
}

fn place(text: &str, default: u16) -> Result<Place, Refusal> {
    const RULE: &str = "must have a host after the //, with or without a port from 1 to 65535; an \
                        IPv6 address stands in brackets; / @ : in a password are written %2F %40 %3A";
    let split = match text.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map(|(host, rest)| (host, rest.strip_prefix(':'), rest)),
        None => {
            let (host, port) = text.split_once(':').map_or((text, None), |(h, p)| (h, Some(p)));
            Some((host, port, ""))
        }
    };
    let Some((host, port, rest)) = split else { return Err(RULE.to_owned()) };
    let is_good = match text.starts_with('[') {
        true => host.parse::<std::net::Ipv6Addr>().is_ok() && (rest.is_empty() || port.is_some()),
        false => {
            let good = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
            (1..=HOST_MAX).contains(&host.len()) && host.chars().all(good)
        }
    };
    let port = match port {
        Some(port) => port.parse().ok().filter(|port| *port > 0),
        None => Some(default),
    };
    match port {
        Some(port) if is_good => Ok(Place { host: host.to_owned(), port }),
        _ => Err(RULE.to_owned()),
    }
}

fn db(text: &str) -> Result<u32, Refusal> {
    if text.is_empty() {
        return Ok(0);
    }
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|db| digits && *db <= DB_MAX);
    number.ok_or_else(|| format!("must have the number of a database, 0 to {DB_MAX}, at its end"))
}

/// A part that was decoded, if it is one that can be sent.
fn part(what: &str, text: String) -> Result<String, Refusal> {
    if text.is_empty() || text.len() > PART_MAX || text.contains(char::is_control) {
        return Err(format!(
            "must have 1 to {PART_MAX} bytes without control characters for {what}"
        ));
    }
    Ok(text)
}

/// Takes %XX back, see RFC 3986.
fn decoded(what: &str, text: &str) -> Result<String, Refusal> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |at: usize| char::from(*after.get(at)?).to_digit(16);
        let value =
            digit(0).zip(digit(1)).and_then(|(high, low)| u8::try_from(16 * high + low).ok());
        let Some(value) = value else {
            return Err(format!(
                "must have two hexadecimal digits after each % in {what}; % itself is %25"
            ));
        };
        bytes.push(value);
        rest = &after[2..];
    }
    String::from_utf8(bytes).map_err(|_| format!("must have UTF-8 for {what}"))
}

/// With %XX for whatever would not come back the same.
fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
#[path = "url_tests.rs"]
mod tests;
