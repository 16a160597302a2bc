//! The URL of a Postgres and the section `[postgres]`, to what it takes to get in.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::PostgresAccess;
use super::url::PostgresUrl;
#[cfg(feature = "postgres")]
use crate::keyring::Keyring;
use crate::settings::secret::{Credentials, Secret, SecretFile, SecretSource};
use crate::settings::tls::Trust;
use crate::settings::{
    Broken, Key, OpenError, Opened, Opener, Place, Refusal, SectionKey, Settings, Value, tls,
};
use crate::{duration_key, tls_keys};

/// Longest time between two questions about a contended resource: what a lost hint costs at most.
const POLL_MAX: Duration = Duration::from_secs(1);
/// Shortest such time.
const POLL_MIN: Duration = Duration::from_millis(10);
/// A server that needs longer cannot keep holds alive.
const CALL_MAX: Duration = Duration::from_secs(60);
/// Below, every hiccup of a network would look like a dead server.
const CALL_MIN: Duration = Duration::from_millis(50);
/// Default of both deadlines.
const TIMEOUT: Duration = Duration::from_secs(2);

const UPSTREAM: &str = "upstream";
const SECRET_FILE: &str = "upstream_secret_file";

/// The settings of a Postgres.
#[derive(Debug, Clone)]
pub struct Section {
    /// `None` until a URL is given.
    url: Option<PostgresUrl>,
    connect_timeout: Duration,
    timeout: Duration,
    poll: Duration,
    tls: tls::Files,
}

impl Default for Section {
    fn default() -> Section {
        Section {
            url: None,
            connect_timeout: TIMEOUT,
            timeout: TIMEOUT,
            poll: POLL_MAX,
            tls: tls::Files::default(),
        }
    }
}

/// The settings of a Postgres, before anything is configured.
pub fn settings() -> Box<dyn Settings> {
    Box::<Section>::default()
}

static KEYS: [Key<Section>; 3] = [
    duration_key!(Section, "postgres.timeout", timeout, CALL_MIN, CALL_MAX)
        .about("From a call to its answer; one that takes longer is tried again on a new connection."),
    duration_key!(Section, "postgres.connect_timeout", connect_timeout, CALL_MIN, CALL_MAX)
        .about("From the wish to connect to the end of signing in."),
    duration_key!(Section, "postgres.poll", poll, POLL_MIN, POLL_MAX).about(
        "How often contended resources are asked about, in case the news of a change was lost; at most 1s.",
    ),
];

static TLS_KEYS: [Key<Section>; 3] =
    tls_keys!(Section, "postgres", "a postgres URL without sslmode=disable", tls);

fn all_keys() -> impl Iterator<Item = &'static Key<Section>> {
    KEYS.iter().chain(&TLS_KEYS)
}

impl Settings for Section {
    fn kind(&self) -> &'static str {
        "postgres"
    }

    fn guarantee(&self) -> &'static str {
        crate::postgres::GUARANTEE
    }

    fn finds_guarantee(&self) -> bool {
        true
    }

    fn example(&self) -> &'static str {
        "a Postgres such as \"postgres://tenure@127.0.0.1/tenure\""
    }

    fn set_url(&mut self, scheme: &str, rest: &str) -> Option<Result<(), Refusal>> {
        let parsed = PostgresUrl::parse(scheme, rest)?;
        Some(parsed.map(|url| self.url = Some(url)))
    }

    fn url(&self) -> String {
        self.url.as_ref().map(PostgresUrl::shown).unwrap_or_default()
    }

    fn address(&self) -> Option<String> {
        let mut url = self.url.clone()?;
        url.login = crate::settings::url::Login::default();
        Some(url.shown())
    }

    fn passwords_elsewhere(&self) -> Option<&'static str> {
        self.url.as_ref()?.login.password.as_ref().map(|_| SECRET_FILE)
    }

    fn keys(&self) -> Vec<SectionKey> {
        all_keys().map(Key::of_section).collect()
    }

    fn about(&self) -> &'static str {
        "How to use a Postgres, where that is the upstream."
    }

    fn set(&mut self, name: &str, text: &str) -> Result<(), Refusal> {
        let key = all_keys().find(|key| key.name == name);
        key.map_or(Ok(()), |key| (key.set)(self, text))
    }

    fn get(&self, name: &str) -> Option<Value> {
        (all_keys().find(|key| key.name == name)?.get)(self)
    }

    fn poll(&self) -> Option<Duration> {
        // Notifications are lost with a connection.
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
        if cfg!(not(feature = "postgres")) {
            let rule = "is a Postgres, which this build cannot use: build it with the Cargo feature postgres, \
                        or have a gateway use it, and name that";
            return Err(Broken::new(UPSTREAM, rule));
        }
        Ok(Arc::new(self.access(secret_file, credentials)?))
    }

    fn boxed(&self) -> Box<dyn Settings> {
        Box::new(self.clone())
    }
}

impl Section {
    /// How to use the Postgres. Reads the files that are named.
    ///
    /// # Errors
    ///
    /// With the first key that breaks a rule.
    pub fn access(
        &self,
        secret_file: Option<&Path>,
        credentials: &Credentials,
    ) -> Result<PostgresUpstream, Broken> {
        let Some(url) = &self.url else { return Err(Broken::new(UPSTREAM, "must be given")) };
        let mut password = url.login.password.clone();
        let mut secrets = password.iter().map(|it| (UPSTREAM, it.clone())).collect::<Vec<_>>();
        if let Some(path) = secret_file {
            let file = SecretFile::open(path, credentials);
            let file = file.map_err(|rule| Broken::new(SECRET_FILE, rule))?;
            let found = SecretSource::File(file);
            if password.replace(found.clone()).is_some() {
                let rule = "the URL of upstream has a password, too; take it out";
                return Err(Broken::new(SECRET_FILE, rule));
            }
            secrets.push((SECRET_FILE, found));
        }
        let tls = match url.tls {
            true => Some(self.tls.read("postgres")?),
            false => {
                self.tls.check_unused("postgres", "it without sslmode=disable")?;
                None
            }
        };
        let access = PostgresAccess {
            server: url.server.clone(),
            tls,
            user: url.user.clone(),
            password,
            database: url.database.clone(),
            connect_timeout: self.connect_timeout,
            timeout: self.timeout,
        };
        Ok(PostgresUpstream { access, secrets })
    }
}

/// A Postgres as the upstream.
#[derive(Debug, Clone)]
pub struct PostgresUpstream {
    /// How to get in.
    pub access: PostgresAccess,
    /// Its password, by the key that gave it.
    pub secrets: Vec<(&'static str, SecretSource)>,
}

impl Opener for PostgresUpstream {
    #[cfg(feature = "postgres")]
    fn open(&self, place: Place<'_>) -> Result<Opened, OpenError> {
        let access = self.access.clone();
        crate::remote::open(place, || Box::new(crate::postgres::Postgres::open(access)))
    }

    #[cfg(not(feature = "postgres"))]
    fn open(&self, _place: Place<'_>) -> Result<Opened, OpenError> {
        unreachable!("a build without the client resolves no settings of a Postgres")
    }

    fn secrets(&self) -> Vec<(&'static str, Secret)> {
        self.secrets.iter().map(|(key, source)| (*key, source.latest())).collect()
    }

    fn reload(&self) -> Result<(), Broken> {
        self.secrets.iter().for_each(|(_, source)| drop(source.read()));
        self.access.tls.iter().try_for_each(Trust::reload)
    }

    #[cfg(feature = "postgres")]
    fn keyring(&self) -> Option<Arc<dyn Keyring>> {
        Some(Arc::new(crate::postgres::PostgresKeyring::open(self.access.clone())))
    }
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

    #[test]
    fn a_url_and_keys_make_access() {
        let section = section(
            "postgres://me:hunter2@db/app?sslmode=disable",
            &[("postgres.timeout", "300ms")],
        );
        let found = section.access(None, &Credentials::default()).unwrap();
        assert_eq!((&*found.access.user, &*found.access.database), ("me", "app"));
        assert_eq!(found.access.timeout, Duration::from_millis(300));
        assert_eq!(found.secrets(), [(UPSTREAM, Secret::new("hunter2"))]);
        let address = section.address();
        assert_eq!(address.as_deref(), Some("postgres://db:5432/app?sslmode=disable"));
    }

    #[test]
    fn a_password_in_a_file_is_read_at_each_sign_in() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        std::fs::write(&path, "hunter2\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let section = section("postgres://me@db", &[]);
        let found = section.access(Some(&path), &Credentials::default()).unwrap();
        std::fs::write(&path, "hunter3\n").unwrap();
        assert_eq!(found.secrets(), [(SECRET_FILE, Secret::new("hunter2"))]);
        assert_eq!(found.access.password.as_ref().unwrap().read().expose(), "hunter3");
        assert_eq!(found.secrets(), [(SECRET_FILE, Secret::new("hunter3"))]);

        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        let broken = section.access(Some(&path), &Credentials::default()).unwrap_err();
        assert_eq!(broken.key, SECRET_FILE);
    }

    #[test]
    fn files_for_tls_are_not_named_in_vain() {
        let keys = [("postgres.tls_ca_file", "/ca.pem")];
        let broken = section("postgres://me@db?sslmode=disable", &keys)
            .access(None, &Credentials::default())
            .unwrap_err();
        assert_eq!(broken.key, "postgres.tls_ca_file");
    }
}
