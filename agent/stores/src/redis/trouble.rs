//! Why there is no connection, in words for whoever runs the agent.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use redis::{ErrorKind, RedisError, ServerErrorKind};
use rustls::{AlertDescription, CertificateError};

use super::settings::Login;

/// The server at the other end, and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Whom {
    /// A server with data.
    Redis(String),
    /// One that knows where such a server is.
    Sentinel(String),
}

impl fmt::Display for Whom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Whom::Redis(place) => write!(f, "Redis at {place}"),
            Whom::Sentinel(place) => write!(f, "Sentinel at {place}"),
        }
    }
}

/// Why there is no connection. Never contains a password.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Trouble {
    /// The name of the host is not known.
    #[error("the host of {whom} cannot be found; check its name in upstream, or the name service")]
    Resolve {
        whom: Whom,
        /// Why it is not found.
        source: Arc<io::Error>,
    },
    /// Nothing listens there, or the way is closed.
    #[error("cannot connect to {whom}")]
    Connect {
        /// To whom.
        whom: Whom,
        /// Why not.
        source: Arc<io::Error>,
    },
    /// There is no understanding on how to speak in secret.
    #[error("cannot speak TLS with {whom}{way_out}")]
    Tls {
        /// With whom.
        whom: Whom,
        way_out: &'static str,
        /// Why not.
        source: Arc<io::Error>,
    },
    /// It took too long.
    #[error(
        "no answer from {whom} within {} ms while {doing}; see whether it is stopped or overloaded",
        .within.as_millis()
    )]
    Silent {
        whom: Whom,
        /// The step that was under way.
        doing: &'static str,
        /// For how long it was waited.
        within: Duration,
    },
    /// The server does not let us in.
    #[error("{whom} refuses the connection: {cause}{way_out}")]
    Refused {
        whom: Whom,
        /// The server's words.
        cause: String,
        way_out: &'static str,
    },
    /// The server is not one that the agent can use.
    #[error("{whom} {what}")]
    Unfit {
        whom: Whom,
        /// Why not, and what to do.
        what: String,
    },
    /// The server has no data yet, or none to give.
    #[error("{whom} is not ready: {cause}")]
    NotReady {
        whom: Whom,
        /// The server's words.
        cause: String,
    },
    /// The connection was there and is no more.
    #[error("the connection to {whom} was lost: {cause}")]
    Lost {
        /// To whom.
        whom: Whom,
        /// How.
        cause: String,
    },
    /// No Sentinel says where the master is.
    #[error("no Sentinel says where the master {master:?} is; check upstream: {}", .answers.join("; "))]
    NoMaster {
        master: String,
        /// The answers that each of them gave instead.
        answers: Vec<String>,
    },
}

impl Trouble {
    /// The whole story, with its causes.
    pub fn told(&self) -> String {
        let mut text = self.to_string();
        let mut cause = self.source();
        while let Some(error) = cause {
            text.push_str(": ");
            text.push_str(&error.to_string());
            cause = error.source();
        }
        text
    }

    pub(super) fn silent(whom: &Whom, doing: &'static str, within: Duration) -> Trouble {
        Trouble::Silent { whom: whom.clone(), doing, within }
    }

    pub(super) fn lost(whom: &Whom, cause: &str) -> Trouble {
        Trouble::Lost { whom: whom.clone(), cause: cause.to_owned() }
    }

    pub(super) fn tls(whom: &Whom, error: io::Error) -> Trouble {
        let way_out = tls_way_out(&error);
        Trouble::Tls { whom: whom.clone(), way_out, source: Arc::new(error) }
    }

    /// The trouble in an error of the first words on a connection. `plain` says that they went over
    /// TCP for all to see, which a server that expects TLS does not understand, and so hangs up.
    pub(super) fn at_first(whom: &Whom, plain: bool, login: &Login, error: &RedisError) -> Trouble {
        match Trouble::of(whom, login, error) {
            Trouble::Lost { whom, .. } => Trouble::Refused {
                whom,
                cause: "it hung up at the first word".to_owned(),
                way_out: if plain {
                    "; if it speaks TLS on this port, write rediss with two s in upstream"
                } else {
                    ""
                },
            },
            trouble => trouble,
        }
    }

    /// The trouble in an error while signing in, or while looking whether the server is there.
    pub(super) fn of(whom: &Whom, login: &Login, error: &RedisError) -> Trouble {
        let whom = whom.clone();
        let cause = words(login, error);
        if is_not_ready(error) {
            return Trouble::NotReady { whom, cause };
        }
        if error.kind() == ErrorKind::Parse {
            let what = "does not speak as a Redis does; check host and port of upstream".to_owned();
            return Trouble::Unfit { whom, what };
        }
        if error.is_io_error() {
            let way_out = io_error(error).map(tls_way_out).unwrap_or_default();
            if way_out.is_empty() {
                return Trouble::Lost { whom, cause };
            }
            return Trouble::Refused { whom, cause, way_out };
        }
        let way_out = way_out(&whom, error.kind(), &cause);
        Trouble::Refused { whom, cause, way_out }
    }
}

/// The trouble with the stream. The client wraps it up.
fn io_error(error: &RedisError) -> Option<&io::Error> {
    let wrapped = error.source()?.downcast_ref::<Arc<dyn Error + Send + Sync>>()?;
    wrapped.downcast_ref()
}

pub(super) fn is_not_ready(error: &RedisError) -> bool {
    let kind = error.kind();
    kind == ErrorKind::Server(ServerErrorKind::BusyLoading)
        || kind == ErrorKind::Server(ServerErrorKind::MasterDown)
}

/// The server's own words: the first line, without what would repeat a password. A server that does
/// not know a command answers with what it was given.
fn words(login: &Login, error: &RedisError) -> String {
    let said = match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        _ => error.to_string(),
    };
    let line = said.lines().next().unwrap_or_default();
    let line = line.split(", with args beginning with").next().unwrap_or_default();
    match &login.password {
        Some(password) => line.replace(password.expose(), "***"),
        None => line.to_owned(),
    }
}

fn way_out(whom: &Whom, kind: ErrorKind, cause: &str) -> &'static str {
    if cause.starts_with("NOAUTH") {
        match whom {
            Whom::Redis(_) => {
                "; name a file with its password in upstream_secret_file, or write it into the URL of \
                 upstream"
            }
            Whom::Sentinel(_) => {
                "; name a file with its own password in redis.sentinel_secret_file, or add \
                 ?sentinel_password= to the URL of upstream"
            }
        }
    } else if cause.starts_with("WRONGPASS") || kind == ErrorKind::AuthenticationFailed {
        match whom {
            Whom::Redis(_) => "; check the user and the password of upstream",
            Whom::Sentinel(_) => "; check sentinel_user and sentinel_password of upstream",
        }
    } else if cause.starts_with("DENIED") {
        "; it answers to its own host alone as long as it has no password"
    } else if cause.contains("max number of clients") {
        "; raise its maxclients, or find out who has so many connections"
    } else if cause.starts_with("NOPERM") || cause.contains("no permissions") {
        "; give its user the right (ACL SETUSER)"
    } else if cause.contains("DB index") {
        "; choose another database in the URL of upstream"
    } else if cause.contains("HELLO") {
        "; it must be Redis 6.2 or later with the command HELLO"
    } else {
        ""
    }
}

fn tls_way_out(error: &io::Error) -> &'static str {
    let cause = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
    match cause {
        Some(rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        )) => "; name it in upstream as its certificate does",
        Some(rustls::Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        )) => "; put the certificate of its authority into redis.tls_ca_file",
        Some(rustls::Error::InvalidMessage(_)) => {
            "; if it does not speak TLS on this port, write redis with one s in upstream"
        }
        Some(rustls::Error::AlertReceived(
            AlertDescription::CertificateRequired | AlertDescription::BadCertificate,
        )) => "; it wants a certificate of its clients: redis.tls_cert_file and redis.tls_key_file",
        _ => "",
    }
}
