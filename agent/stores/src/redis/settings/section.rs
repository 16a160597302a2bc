//! The URL of a Redis and the section `[redis]`, to what it takes to get in.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::url::RedisUrl;
use super::{Login, RedisAccess, RedisServer, RedisUpstream, TIMEOUT};
use crate::keyring::Keyring;
use crate::redis::RedisKeyring;
use crate::redis::layout::{Layout, Prefixes};
use crate::settings::secret::{self, Credentials, Secret, SecretFile, SecretSource};
use crate::settings::tls::{self, Trust};
use crate::settings::{
    Broken, Doc, Key, OpenError, Opened, Opener, Place, Refusal, SectionKey, Settings, Shape, Value,
};
use crate::{duration_key, optional_path_key, tls_keys};

/// Longest time between two questions about a contended resource: what a lost hint costs at most.
const POLL_MAX: Duration = Duration::from_secs(1);
/// Shortest such time.
const POLL_MIN: Duration = Duration::from_millis(10);
/// A server that needs longer cannot keep holds alive.
const CALL_MAX: Duration = Duration::from_secs(60);
/// Below, every hiccup of a network would look like a dead server.
const CALL_MIN: Duration = Duration::from_millis(50);
/// Longest prefix of keys, bytes: it is part of every one of them.
const PREFIX_MAX: usize = 64;

const UPSTREAM: &str = "upstream";
const SECRET_FILE: &str = "upstream_secret_file";
const SENTINEL_FILE: &str = "redis.sentinel_secret_file";

/// The settings of a Redis.
#[derive(Debug, Clone)]
pub struct Section {
    /// `None` until a URL is given.
    url: Option<RedisUrl>,
    prefixes: Prefixes,
    connect_timeout: Duration,
    timeout: Duration,
    poll: Duration,
    tls: tls::Files,
    sentinel_secret_file: Option<PathBuf>,
}

impl Default for Section {
    fn default() -> Section {
        Section {
            url: None,
            prefixes: Prefixes::default(),
            connect_timeout: TIMEOUT,
            timeout: TIMEOUT,
            poll: POLL_MAX,
            tls: tls::Files::default(),
            sentinel_secret_file: None,
        }
    }
}

/// The settings of a Redis, before anything is configured.
pub fn settings() -> Box<dyn Settings> {
    Box::<Section>::default()
}

macro_rules! prefix_key {
    ($name:literal, $field:ident) => {
        Key::<Section> {
            name: $name,
            shape: Shape::Text,
            reloads: false,
            set: |section, text| {
                section.prefixes.$field = prefix(text)?;
                Ok(())
            },
            get: |section| Some(section.prefixes.$field.clone().into()),
            doc: Doc::NONE,
        }
    };
}

static KEYS: [Key<Section>; 8] = [
    prefix_key!("redis.session_prefix", session_prefix).about(
        "What names of keys and channels start with: the same for every program that shares the Redis. 1 \
         to 64 visible ASCII characters without spaces, * ? [ ] and \\; no prefix may make keys that \
         start as those of another. Keys of any tenant but \"default\" start with tenant:TENANT: before \
         these. Sessions, masters and messages: a colon follows.",
    ),
    prefix_key!("redis.leader_prefix", leader_prefix)
        .about("Leaders: the role follows, so a colon at the end is part of it."),
    prefix_key!("redis.semaphore_namespace", semaphore_namespace)
        .about("Semaphores: a colon follows."),
    prefix_key!("redis.tenure_prefix", tenure_prefix)
        .about("What only Tenure uses, such as leases and tokens: a colon follows."),
    duration_key!(Section, "redis.timeout", timeout, CALL_MIN, CALL_MAX)
        .about("From a call to its answer; one that takes longer is tried again on a new connection."),
    duration_key!(Section, "redis.connect_timeout", connect_timeout, CALL_MIN, CALL_MAX)
        .about("From the wish to connect to the end of signing in."),
    duration_key!(Section, "redis.poll", poll, POLL_MIN, POLL_MAX).about(
        "How often contended resources are asked about, in case the news of a change was lost; at most 1s.",
    ),
    optional_path_key!(Section, "redis.sentinel_secret_file", sentinel_secret_file, secret::path)
        .about("A file with the Sentinels' own password, as upstream_secret_file.")
        .example("\"/etc/tenured/sentinel-secret\""),
];

static TLS_KEYS: [Key<Section>; 3] = tls_keys!(Section, "redis", "rediss", tls);

fn all_keys() -> impl Iterator<Item = &'static Key<Section>> {
    KEYS.iter().chain(&TLS_KEYS)
}

impl Settings for Section {
    fn kind(&self) -> &'static str {
        "redis"
    }

    fn guarantee(&self) -> &'static str {
        crate::redis::GUARANTEE
    }

    fn example(&self) -> &'static str {
        "a Redis such as \"redis://127.0.0.1:6379/0\""
    }

    fn set_url(&mut self, scheme: &str, rest: &str) -> Option<Result<(), Refusal>> {
        let parsed = RedisUrl::parse(scheme, rest)?;
        Some(parsed.map(|url| self.url = Some(url)))
    }

    fn url(&self) -> String {
        self.url.as_ref().map(RedisUrl::shown).unwrap_or_default()
    }

    fn address(&self) -> Option<String> {
        Some(without_logins(&self.url.as_ref()?.shown()))
    }

    fn passwords_elsewhere(&self) -> Option<&'static str> {
        let elsewhere = "upstream_secret_file (or sentinel_secret_file in [redis])";
        self.url.as_ref()?.passwords().next().map(|_| elsewhere)
    }

    fn keys(&self) -> Vec<SectionKey> {
        all_keys().map(Key::of_section).collect()
    }

    fn about(&self) -> &'static str {
        "How to use a Redis, where that is the upstream."
    }

    fn set(&mut self, name: &str, text: &str) -> Result<(), Refusal> {
        let key = all_keys().find(|key| key.name == name);
        key.map_or(Ok(()), |key| (key.set)(self, text))
    }

    fn get(&self, name: &str) -> Option<Value> {
        (all_keys().find(|key| key.name == name)?.get)(self)
    }

    fn check(&self) -> Result<(), Broken> {
        self.layout().map(|_| ())
    }

    fn poll(&self) -> Option<Duration> {
        // Hints of a Redis can be lost.
        Some(self.poll)
    }

    fn takes_secret(&self) -> bool {
        true
    }

    fn resolve(
        &self,
        secret_file: Option<&Path>,
        credentials: &Credentials,
    ) -> Result<Arc<dyn Opener>, Broken> {
        Ok(Arc::new(self.access(secret_file, credentials)?))
    }

    fn boxed(&self) -> Box<dyn Settings> {
        Box::new(self.clone())
    }
}

impl Section {
    fn layout(&self) -> Result<Layout, Broken> {
        Layout::new(self.prefixes.clone())
            .map_err(|clash| Broken::new(&format!("redis.{}", clash.setting()), clash.to_string()))
    }

    /// How to use the Redis. Reads the files that are named.
    ///
    /// # Errors
    ///
    /// With the first key that breaks a rule.
    pub fn access(
        &self,
        secret_file: Option<&Path>,
        credentials: &Credentials,
    ) -> Result<RedisUpstream, Broken> {
        let layout = self.layout()?;
        let Some(url) = &self.url else { return Err(Broken::new(UPSTREAM, "must be given")) };
        let mut secrets = url.passwords().map(|secret| (UPSTREAM, secret)).collect::<Vec<_>>();
        let mut login = url.login.clone();
        if let Some(path) = secret_file {
            let rule = "the URL of upstream has a password, too; take it out";
            secrets.push(give(&mut login, path, credentials, SECRET_FILE, rule)?);
        }
        if login.user.is_some() && login.password.is_none() {
            let rule = "must have a password for its user: write user:password@, or name a file with it \
                        in upstream_secret_file";
            return Err(Broken::new(UPSTREAM, rule));
        }
        let mut server = url.server.clone();
        match (&mut server, &self.sentinel_secret_file) {
            (RedisServer::Sentinel { login, .. }, file) => {
                if let Some(path) = file {
                    let rule = "the URL of upstream has a sentinel_password, too; take it out";
                    secrets.push(give(login, path, credentials, SENTINEL_FILE, rule)?);
                }
                if login.user.is_some() && login.password.is_none() {
                    let rule = "must have a sentinel_password for its sentinel_user, or a file with it in \
                                redis.sentinel_secret_file";
                    return Err(Broken::new(UPSTREAM, rule));
                }
            }
            (_, Some(_)) => {
                let rule =
                    "is for Sentinels, and upstream names none (redis+sentinel://); leave it out";
                return Err(Broken::new(SENTINEL_FILE, rule));
            }
            (_, None) => {}
        }
        let access = RedisAccess {
            server,
            tls: self.trust(url)?,
            login,
            db: url.db,
            connect_timeout: self.connect_timeout,
            timeout: self.timeout,
        };
        Ok(RedisUpstream { access, layout, secrets })
    }

    fn trust(&self, url: &RedisUrl) -> Result<Option<Trust>, Broken> {
        if url.tls {
            return self.tls.read("redis").map(Some);
        }
        self.tls.check_unused("redis", "rediss:// with two s").map(|()| None)
    }
}

impl Opener for RedisUpstream {
    fn open(&self, place: Place<'_>) -> Result<Opened, OpenError> {
        crate::redis::open(self, place)
    }

    fn secrets(&self) -> Vec<(&'static str, Secret)> {
        self.secrets.iter().map(|(key, source)| (*key, source.latest())).collect()
    }

    fn reload(&self) -> Result<(), Broken> {
        self.secrets.iter().for_each(|(_, source)| drop(source.read()));
        self.access.tls.iter().try_for_each(Trust::reload)
    }

    fn keyring(&self) -> Option<Arc<dyn Keyring>> {
        let RedisUpstream { access, layout, .. } = self.clone();
        Some(Arc::new(RedisKeyring::open(access, layout)))
    }
}

/// Has a login take its password from a file.
fn give(
    login: &mut Login,
    path: &Path,
    credentials: &Credentials,
    key: &'static str,
    twice: &'static str,
) -> Result<(&'static str, SecretSource), Broken> {
    let file = SecretFile::open(path, credentials).map_err(|rule| Broken::new(key, rule))?;
    let source = SecretSource::File(file);
    match login.password.replace(source.clone()) {
        Some(_) => Err(Broken::new(key, twice)),
        None => Ok((key, source)),
    }
}

/// The prefix of the names of keys.
fn prefix(text: &str) -> Result<String, Refusal> {
    // Those are wild cards where Redis takes a pattern: in ACLs, subscriptions and searches.
    let is_good = |c: char| c.is_ascii_graphic() && !r"*?[]\".contains(c);
    if (1..=PREFIX_MAX).contains(&text.len()) && text.chars().all(is_good) {
        return Ok(text.to_owned());
    }
    Err(format!(
        r"must be 1 to {PREFIX_MAX} visible ASCII characters, none of them a space or one of * ? [ ] \"
    ))
}

/// A URL without its users.
fn without_logins(url: &str) -> String {
    let url = url.split("?sentinel_").next().unwrap_or_default();
    let Some((scheme, rest)) = url.split_once("//") else { return url.to_owned() };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let place = authority.rsplit_once('@').map_or(authority, |(_, place)| place);
    format!("{scheme}//{place}{path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(url: &str, keys: &[(&str, &str)]) -> Section {
        let mut section = Section::default();
        let (scheme, rest) = url.split_once(':').unwrap();
        section.set_url(scheme, rest).unwrap().unwrap();
        for (key, text) in keys {
            section.set(key, text).unwrap();
        }
        section
    }

    fn access(section: &Section, secret_file: Option<&Path>) -> RedisUpstream {
        section.access(secret_file, &Credentials::default()).unwrap()
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
    fn an_address_tells_nobody_who_signs_in() {
        for (url, address) in [
            ("redis://db:6379/0", "redis://db:6379/0"),
            ("rediss://app:***@[::1]:6379/3", "rediss://[::1]:6379/3"),
            ("redis+unix://:***@/run/a@b.sock?db=0", "redis+unix:///run/a@b.sock?db=0"),
            (
                "redis+sentinel://app:***@a:26379,b:26379/main/0?sentinel_user=s&sentinel_password=***",
                "redis+sentinel://a:26379,b:26379/main/0",
            ),
        ] {
            assert_eq!(without_logins(url), address);
        }
    }

    #[test]
    fn defaults_and_keys() {
        let upstream = access(&section("redis://:hunter2@h/3", &[]), None);
        assert_eq!(upstream.secrets(), [("upstream", Secret::new("hunter2"))]);
        let RedisUpstream { access: found, layout, .. } = upstream;
        let two = Duration::from_secs(2);
        assert_eq!((found.db, found.timeout, found.connect_timeout), (3, two, two));
        assert_eq!(found.login.password, Some(Secret::new("hunter2").into()));
        assert_eq!(layout.leader("default", "r"), "leader:r");

        let keys = [("redis.leader_prefix", "titan:leader:"), ("redis.timeout", "300ms")];
        let section = section("redis+unix:///s", &keys);
        let RedisUpstream { access: found, layout, .. } = access(&section, None);
        assert_eq!(found.timeout, Duration::from_millis(300));
        assert_eq!(layout.leader("default", "r"), "titan:leader:r");
        assert_eq!(section.get("redis.timeout"), Some(Value::Text("300ms".to_owned())));
    }

    #[test]
    fn passwords_come_from_files() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        std::fs::write(&path, "hunter2\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let of_server = access(&section("redis://me@h", &[]), Some(&path));
        let Login { user, password } = &of_server.access.login;
        let password = password.as_ref().unwrap();
        assert_eq!((user.as_deref(), password.read().expose()), (Some("me"), "hunter2"));

        let keys = [("redis.sentinel_secret_file", path.to_str().unwrap())];
        let of_sentinels = access(&section("redis+sentinel://h/m", &keys), None);
        let RedisServer::Sentinel { login, .. } = &of_sentinels.access.server else { panic!() };
        assert_eq!(login.password.as_ref().unwrap().read().expose(), "hunter2");
        let secret = [(SENTINEL_FILE, Secret::new("hunter2"))];
        assert_eq!(of_sentinels.secrets(), secret);

        // Rotated: the next sign-in has the new one, and so has a configuration after a reload.
        std::fs::write(&path, "hunter3\n").unwrap();
        assert_eq!(password.read().expose(), "hunter3");
        assert_eq!(of_server.secrets(), [(SECRET_FILE, Secret::new("hunter3"))]);
        assert_eq!(of_sentinels.secrets(), secret);
        of_sentinels.reload().unwrap();
        assert_eq!(of_sentinels.secrets(), [(SENTINEL_FILE, Secret::new("hunter3"))]);
    }
}
