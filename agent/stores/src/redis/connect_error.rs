//! The meaning of Redis' errors for a connection, and the ways out, for the operator.

use std::error::Error;
use std::io;
use std::sync::Arc;

use redis::{ErrorKind, RedisError, ServerErrorKind};

use super::settings::Login;
use crate::remote::{ConnectError, Peer, TlsFault};
use crate::settings::secret::{Secret, SecretSource};

/// The name of a server with data, for people.
pub(super) const REDIS: &str = "Redis";
/// The name of a server that knows where such a server is, for people.
pub(super) const SENTINEL: &str = "Sentinel";

/// The meaning of an error of the first words on a connection. `plain` says that they went over TCP for
/// all to see, which a server that expects TLS does not understand, and so hangs up. `password` is the one that
/// was sent.
pub(super) fn at_first(
    peer: &Peer,
    plain: bool,
    login: &Login,
    password: Option<&Secret>,
    error: &RedisError,
) -> ConnectError {
    match meaning(peer, login, password, error) {
        // A server that ends at this moment does the same.
        ConnectError::Lost { peer, .. } if plain => {
            let cause = "it hung up at the first word; if it speaks TLS on this port, write rediss with two s in upstream";
            ConnectError::Lost { peer, cause: cause.to_owned() }
        }
        error => error,
    }
}

/// The meaning of an error after the first words, or while looking whether the server is there.
pub(super) fn later(peer: &Peer, login: &Login, error: &RedisError) -> ConnectError {
    let password = login.password.as_ref().map(SecretSource::latest);
    meaning(peer, login, password.as_ref(), error)
}

fn meaning(
    peer: &Peer,
    login: &Login,
    password: Option<&Secret>,
    error: &RedisError,
) -> ConnectError {
    let peer = peer.clone();
    let cause = words(password, error);
    if is_not_ready(error) {
        return ConnectError::NotReady { peer, cause };
    }
    if error.kind() == ErrorKind::Parse {
        let what = "does not speak as a Redis does; check host and port of upstream".to_owned();
        return ConnectError::Unfit { peer, what };
    }
    if error.is_io_error() {
        return match io_error(error).and_then(TlsFault::of) {
            None => ConnectError::Lost { peer, cause },
            Some(fault) => ConnectError::Refused { peer, cause, way_out: tls_way_out(fault) },
        };
    }
    let way_out = way_out(&peer, login, error.kind(), &cause);
    ConnectError::Refused { peer, cause, way_out }
}

/// The stream's error. The client wraps it up.
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
fn words(password: Option<&Secret>, error: &RedisError) -> String {
    let said = match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        _ => error.to_string(),
    };
    let line = said.lines().next().unwrap_or_default();
    let line = line.split(", with args beginning with").next().unwrap_or_default();
    match password {
        Some(password) => line.replace(password.expose(), "***"),
        None => line.to_owned(),
    }
}

fn way_out(peer: &Peer, login: &Login, kind: ErrorKind, cause: &str) -> &'static str {
    let is_sentinel = peer.what == SENTINEL;
    let has_file = login.password.as_ref().is_some_and(SecretSource::is_file);
    if cause.starts_with("NOAUTH") {
        if is_sentinel {
            "; name a file with its own password in redis.sentinel_secret_file, or add \
             ?sentinel_password= to the URL of upstream"
        } else {
            "; name a file with its password in upstream_secret_file, or write it into the URL of \
             upstream"
        }
    } else if cause.starts_with("WRONGPASS") || kind == ErrorKind::AuthenticationFailed {
        match (is_sentinel, has_file) {
            (true, true) => {
                "; check sentinel_user in upstream, and the password in redis.sentinel_secret_file, which is read \
                 at each sign-in"
            }
            (true, false) => {
                "; check sentinel_user and sentinel_password of upstream, or name a file in \
                 redis.sentinel_secret_file, which is read at each sign-in"
            }
            (false, true) => {
                "; check the user in upstream, and the password in upstream_secret_file, which is read at each \
                 sign-in"
            }
            (false, false) => {
                "; check the user and the password of upstream, or name a file in upstream_secret_file, which is \
                 read at each sign-in"
            }
        }
    } else if cause.starts_with("DENIED") {
        "; it answers to its own host alone as long as it has no password"
    } else if cause.contains("max number of clients") {
        "; raise its maxclients, or find out who has so many connections"
    } else if cause.starts_with("NOPERM") || cause.contains("no permissions") {
        "; give its user the right (ACL SETUSER)"
    } else if cause.contains("DB index") {
        "; choose another database in the URL of upstream"
    } else {
        ""
    }
}

pub(super) fn tls_way_out(fault: TlsFault) -> &'static str {
    match fault {
        TlsFault::WrongName => "; name it in upstream as its certificate does",
        TlsFault::UnknownIssuer => "; put the certificate of its authority into redis.tls_ca_file",
        TlsFault::Expired => {
            "; its certificate is not valid at this time: have a new one made, or set the clock of this host"
        }
        TlsFault::NotTls => {
            "; if it does not speak TLS on this port, write redis with one s in upstream"
        }
        TlsFault::WantsCertificate => {
            "; it wants a certificate of its clients that it trusts: redis.tls_cert_file and redis.tls_key_file"
        }
    }
}
