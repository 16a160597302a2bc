//! From what is configured, here and there, to what it takes to get into a Redis.

use tenure_stores::redis::layout::Layout;
use tenure_stores::redis::settings::{Login, RedisAccess, RedisServer, RedisUpstream};
use tenure_stores::secret::Secret;
use tenure_stores::tls::Trust;

use super::redis::RedisSection;
use super::redis_url::RedisUrl;
use super::rules::Broken;
use super::{Config, Environment, UpstreamUrl, secret, trust};

const SECRET_FILE: &str = "upstream_secret_file";
const SENTINEL_FILE: &str = "redis.sentinel_secret_file";

/// How to use the Redis that is configured, if one is. Reads the files that it takes.
pub(super) fn resolve(
    config: &Config,
    environment: &Environment,
) -> Result<Option<RedisUpstream>, Broken> {
    let section = &config.redis_section;
    let layout = Layout::new(section.prefixes.clone()).map_err(|clash| Broken {
        key: format!("redis.{}", clash.setting()),
        rule: clash.to_string(),
    })?;
    let UpstreamUrl::Redis(url) = &config.upstream else { return Ok(None) };
    let mut login = url.login.clone();
    if let Some(path) = &config.upstream_secret_file {
        let secret = secret::read(path, environment).map_err(|rule| broken(SECRET_FILE, rule))?;
        give(
            &mut login,
            secret,
            SECRET_FILE,
            "the URL of upstream has a password, too; take it out",
        )?;
    }
    if login.user.is_some() && login.password.is_none() {
        let rule = "must have a password for its user: write user:password@, or name a file with it in \
                    upstream_secret_file";
        return Err(broken("upstream", rule));
    }
    let mut server = url.server.clone();
    match (&mut server, &section.sentinel_secret_file) {
        (RedisServer::Sentinel { login, .. }, file) => {
            if let Some(path) = file {
                let secret =
                    secret::read(path, environment).map_err(|rule| broken(SENTINEL_FILE, rule))?;
                let rule = "the URL of upstream has a sentinel_password, too; take it out";
                give(login, secret, SENTINEL_FILE, rule)?;
            }
            if login.user.is_some() && login.password.is_none() {
                let rule = "must have a sentinel_password for its sentinel_user, or a file with it in \
                            redis.sentinel_secret_file";
                return Err(broken("upstream", rule));
            }
        }
        (_, Some(_)) => {
            let rule =
                "is for Sentinels, and upstream names none (redis+sentinel://); leave it out";
            return Err(broken(SENTINEL_FILE, rule));
        }
        (_, None) => {}
    }
    let access = RedisAccess {
        server,
        tls: tls(url, section)?,
        login,
        db: url.db,
        connect_timeout: section.connect_timeout,
        timeout: section.timeout,
    };
    Ok(Some(RedisUpstream { access, layout }))
}

fn give(
    login: &mut Login,
    secret: Secret,
    key: &'static str,
    twice: &'static str,
) -> Result<(), Broken> {
    if login.password.replace(secret).is_some() { Err(broken(key, twice)) } else { Ok(()) }
}

fn tls(url: &RedisUrl, section: &RedisSection) -> Result<Option<Trust>, Broken> {
    let files = [
        ("redis.tls_ca_file", &section.tls_ca_file),
        ("redis.tls_cert_file", &section.tls_cert_file),
        ("redis.tls_key_file", &section.tls_key_file),
    ];
    let given = files.iter().find(|(_, file)| file.is_some());
    if !url.tls {
        return match given {
            None => Ok(None),
            Some((key, _)) => Err(broken(
                key,
                "is for TLS, and upstream does not use it; write rediss:// with two s, or leave it out",
            )),
        };
    }
    let [ca, cert, key] = files.map(|(_, file)| file.as_deref());
    match (cert, key) {
        (Some(_), None) => {
            return Err(broken("redis.tls_cert_file", "must have its key in redis.tls_key_file"));
        }
        (None, Some(_)) => {
            return Err(broken(
                "redis.tls_key_file",
                "must have its certificate in redis.tls_cert_file",
            ));
        }
        _ => {}
    }
    trust::read(ca, cert, key).map(Some).map_err(|wrong| broken(wrong.key, wrong.rule))
}

fn broken(key: &str, rule: impl Into<String>) -> Broken {
    Broken { key: key.to_owned(), rule: rule.into() }
}
