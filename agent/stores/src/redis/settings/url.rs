//! URLs of a Redis. No refusal quotes any part of one: there may be a password in it.

use std::fmt::Write;
use std::path::PathBuf;

use super::{Login, Place, RedisServer};
use crate::settings::Refusal;
use crate::settings::secret::{Secret, SecretSource};
use crate::settings::url::{decoded, encoded, login_shown, part, parts, place};

/// The default port of Redis.
const PORT: u16 = 6379;
/// The default port of Sentinels.
const SENTINEL_PORT: u16 = 26_379;
/// Most Sentinels; each costs its share of the time to connect.
const SENTINELS_MAX: usize = 16;
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
    pub(super) fn passwords(&self) -> impl Iterator<Item = SecretSource> {
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
            .map(|password| part("sentinel_password", password))
            .transpose()?
            .map(|password| SecretSource::Given(Secret::new(password))),
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

fn db(text: &str) -> Result<u32, Refusal> {
    if text.is_empty() {
        return Ok(0);
    }
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|db| digits && *db <= DB_MAX);
    number.ok_or_else(|| format!("must have the number of a database, 0 to {DB_MAX}, at its end"))
}

#[cfg(test)]
#[path = "url_tests.rs"]
mod tests;
