//! URLs of a Postgres, a part of those that libpq reads. No refusal quotes any part of one.

use std::path::PathBuf;

use super::PostgresServer;
use crate::settings::Refusal;
use crate::settings::url::{Login, Place, decoded, encoded, login_shown, part, parts, place};

/// The default port of Postgres.
const PORT: u16 = 5432;

/// Parameters of libpq for which the agent has settings of its own, or which it does not need.
const ELSEWHERE: [(&str, &str); 10] = [
    ("sslrootcert", "name the certificate of the authority in postgres.tls_ca_file"),
    ("sslcert", "name the agent's certificate in postgres.tls_cert_file"),
    ("sslkey", "name the private key in postgres.tls_key_file"),
    ("connect_timeout", "write the time in postgres.connect_timeout"),
    ("password", "write the password into the file that upstream_secret_file names"),
    ("passfile", "write the password into the file that upstream_secret_file names"),
    ("application_name", "leave it out: the agent names its connections itself"),
    ("options", "set what the role needs in the database: alter role ROLE set …"),
    ("user", "write the role before the host: postgres://ROLE@HOST/DATABASE"),
    ("dbname", "write the database after the host: postgres://ROLE@HOST/DATABASE"),
];

/// The address of a Postgres, as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PostgresUrl {
    pub(super) server: PostgresServer,
    /// Over TCP, unless `sslmode=disable` says otherwise: libpq's default would go on without it.
    pub(super) tls: bool,
    pub(super) user: String,
    pub(super) login: Login,
    pub(super) database: String,
}

impl PostgresUrl {
    /// Reads what follows the scheme and its colon; `None` for another scheme.
    pub(super) fn parse(scheme: &str, rest: &str) -> Option<Result<PostgresUrl, Refusal>> {
        matches!(scheme, "postgres" | "postgresql").then(|| read(rest))
    }

    /// The URL with *** in place of the password.
    pub(super) fn shown(&self) -> String {
        let PostgresUrl { server, tls, login, database, .. } = self;
        let (user, database) = (login_shown(login), encoded(database));
        match server {
            PostgresServer::Tcp { host, port } => {
                let place = Place { host: host.clone(), port: *port };
                let mode = if *tls { "" } else { "?sslmode=disable" };
                format!("postgres://{user}{place}/{database}{mode}")
            }
            PostgresServer::Unix { directory, port } => {
                let directory = encoded(&directory.display().to_string());
                format!("postgres://{user}/{database}?host={directory}&port={port}")
            }
        }
    }
}

fn read(rest: &str) -> Result<PostgresUrl, Refusal> {
    let mut parts = parts(rest)?;
    let login = parts.login.clone();
    let Some(user) = login.user.clone() else {
        return Err("must name the role to sign in as, as postgres://ROLE@HOST/DATABASE".to_owned());
    };
    let database = match parts.path.strip_prefix('/').unwrap_or_default() {
        "" => user.clone(),
        name => part("the database", decoded("the database", name)?)?,
    };
    let mode = parts.parameter("sslmode");
    let (directory, port) = (parts.parameter("host"), parts.parameter("port"));
    // Whatever signs in must take writes, and is asked.
    let attributes = parts.parameter("target_session_attrs");
    if !matches!(attributes.as_deref(), None | Some("any" | "read-write" | "primary")) {
        let rule =
            "must have any, read-write or primary for target_session_attrs: holds are written";
        return Err(rule.to_owned());
    }
    if !matches!(parts.parameter("channel_binding").as_deref(), None | Some("prefer" | "disable")) {
        let rule =
            "must have prefer or disable for channel_binding: the certificate is checked instead";
        return Err(rule.to_owned());
    }
    for (name, way_out) in ELSEWHERE {
        if parts.parameter(name).is_some() {
            return Err(format!("must not have {name}: {way_out}"));
        }
    }
    parts.no_more(
        " but sslmode, target_session_attrs, channel_binding, and host and port of a Unix socket",
    )?;
    if parts.hosts.contains(',') {
        let rule = "must have one host: name the address that leads to the primary, as failover tools keep one";
        return Err(rule.to_owned());
    }
    let mut tls = match mode.as_deref() {
        None | Some("require" | "verify-full") => true,
        Some("disable") => false,
        Some(_) => {
            let rule = "must have disable or verify-full for sslmode; without it, TLS is used over TCP and \
                        the certificate is checked";
            return Err(rule.to_owned());
        }
    };
    let server = match directory {
        None if port.is_some() => {
            return Err("must have the port after the host, as HOST:PORT".to_owned());
        }
        None => {
            let Place { host, port } = place(parts.hosts, PORT)?;
            PostgresServer::Tcp { host, port }
        }
        Some(directory) if parts.hosts.is_empty() && directory.starts_with('/') => {
            tls = false;
            let directory = PathBuf::from(part("host", directory)?);
            let port = port.map_or(Some(PORT), |port| port.parse().ok());
            let port = port.ok_or("must have a port from 1 to 65535")?;
            PostgresServer::Unix { directory, port }
        }
        Some(_) => {
            let rule = "must have the directory of a socket for host, and then no other host, as \
                        postgres://ROLE@/DATABASE?host=/run/postgresql";
            return Err(rule.to_owned());
        }
    };
    Ok(PostgresUrl { server, tls, user, login, database })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::secret::Secret;

    fn read_back(url: &str) -> PostgresUrl {
        let (scheme, rest) = url.split_once(':').unwrap();
        PostgresUrl::parse(scheme, rest).unwrap().unwrap()
    }

    #[test]
    fn urls_are_read_and_shown_without_passwords() {
        for (url, shown) in [
            ("postgres://me@db/app", "postgres://me@db:5432/app"),
            ("postgresql://me:hunter2@db:6000", "postgres://me:***@db:6000/me"),
            ("postgres://me@[::1]/a%2Fb?sslmode=verify-full", "postgres://me@[::1]:5432/a/b"),
            ("postgres://me@db/app?sslmode=disable", "postgres://me@db:5432/app?sslmode=disable"),
            (
                "postgres://me@/app?host=/run/postgresql",
                "postgres://me@/app?host=/run/postgresql&port=5432",
            ),
            (
                "postgres://me@db/app?target_session_attrs=read-write&channel_binding=prefer",
                "postgres://me@db:5432/app",
            ),
        ] {
            assert_eq!(read_back(url).shown(), shown);
        }
        let url = read_back("postgres://m%40e:%25%40%23%2F%20%3A%3F@[::1]:7/app");
        let password = Some(Secret::new("%@#/ :?").into());
        assert_eq!(url.login, Login { user: Some("m@e".to_owned()), password });
        assert_eq!(url.shown(), "postgres://m%40e:***@[::1]:7/app");
        assert!(read_back("postgres://me@db").tls);
        assert!(!read_back("postgres://me@/app?host=/run/postgresql").tls);
        assert_eq!(PostgresUrl::parse("redis", "//me@db"), None);
    }

    #[test]
    fn a_refusal_quotes_nothing() {
        for (url, expected) in [
            ("//hunter2", "must name the role"),
            ("//hunter2:hunter2@", "must have a host"),
            ("//me:hunter2@db/x?sslmode=prefer", "must have disable or verify-full"),
            ("//me:hunter2@db/x?options=hunter2", "must not have options"),
            ("//me:hunter2@db/x?other=hunter2", "must have no parameters after ? but sslmode"),
            ("//me:hunter2@db/x?host=/run", "must have the directory of a socket"),
            ("//me:hunter2@/x?host=run", "must have the directory of a socket"),
            ("//me:hunter2@db/x?port=7", "must have the port after the host"),
            ("//me:hunter2@a,b:5433/x", "must have one host"),
            ("//me@db/x?sslrootcert=hunter2", "must not have sslrootcert: name the certificate"),
            (
                "//me@db/x?connect_timeout=5",
                "must not have connect_timeout: write the time in postgres.",
            ),
            ("//me@db/x?target_session_attrs=standby", "must have any, read-write or primary"),
            ("//me@db/x?channel_binding=require", "must have prefer or disable"),
        ] {
            let refusal = PostgresUrl::parse("postgres", url).unwrap().unwrap_err();
            assert!(refusal.starts_with(expected) && !refusal.contains("hunter2"), "{refusal}");
        }
    }
}
