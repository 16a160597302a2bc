//! Reasons why there is no connection, in words for the operator.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustls::{AlertDescription, CertificateError};
use tenure_core::model::{Denial, DenialRule, Failure};
use tokio::time::timeout;

/// The server at the other end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// The sort of server, by its name for people.
    pub what: &'static str,
    pub place: String,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.what, self.place)
    }
}

/// Why there is no connection. Never contains a password.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ConnectError {
    /// The name of the host is not known.
    #[error("the host of {peer} cannot be found; check its name in upstream, or the name service")]
    Resolve { peer: Peer, source: Arc<io::Error> },
    /// Nothing listens there, or the way is closed.
    #[error("cannot connect to {peer}")]
    Connect { peer: Peer, source: Arc<io::Error> },
    /// The TLS handshake failed.
    #[error("cannot speak TLS with {peer}{way_out}")]
    Tls { peer: Peer, way_out: &'static str, source: Arc<io::Error> },
    /// A step took too long.
    #[error(
        "no answer from {peer} within {} ms while {doing}; see whether it is stopped or overloaded",
        .within.as_millis()
    )]
    Silent { peer: Peer, doing: &'static str, within: Duration },
    /// The server does not let the agent in; `cause` is in the server's words.
    #[error("{peer} refuses the connection: {cause}{way_out}")]
    Refused { peer: Peer, cause: String, way_out: &'static str },
    /// The same where only somebody who changes the agent's or the server's settings can mend it.
    #[error("{peer} does not let this agent in: {cause}{way_out}")]
    NotLetIn { peer: Peer, cause: String, way_out: &'static str },
    /// The agent cannot use the server; `what` says why, and what to do.
    #[error("{peer} {what}")]
    Unfit { peer: Peer, what: String },
    /// The server has no data yet, or none to give; `cause` is in the server's words.
    #[error("{peer} is not ready: {cause}")]
    NotReady { peer: Peer, cause: String },
    /// The connection was there and is no more.
    #[error("the connection to {peer} was lost: {cause}")]
    Lost { peer: Peer, cause: String },
    /// The connection was given up after a late call, which proves nothing about the server.
    #[error("the connection to {peer} was given up: a call was not answered in time")]
    Late { peer: Peer },
    /// The server's place is not known; the text says whole why.
    #[error("{0}")]
    NotLocated(String),
}

impl ConnectError {
    /// The text with those of all its causes.
    pub fn with_causes(&self) -> String {
        let mut text = self.to_string();
        let mut cause = self.source();
        while let Some(error) = cause {
            text.push_str(": ");
            text.push_str(&error.to_string());
            cause = error.source();
        }
        text
    }

    /// The failure of a call that wanted the connection.
    pub(crate) fn failure(&self) -> Failure {
        match self {
            ConnectError::NotLetIn { .. } => {
                let (rule, detail) = (DenialRule::Unauthorized, self.with_causes());
                Failure::Denied(Denial { rule, detail })
            }
            _ => Failure::Unavailable(self.with_causes()),
        }
    }

    pub(crate) fn lost(peer: &Peer, cause: &str) -> ConnectError {
        ConnectError::Lost { peer: peer.clone(), cause: cause.to_owned() }
    }

    pub(crate) fn silent(peer: &Peer, doing: &'static str, within: Duration) -> ConnectError {
        ConnectError::Silent { peer: peer.clone(), doing, within }
    }

    /// Gives a step no more than this time.
    pub(crate) async fn within<T>(
        time: Duration,
        peer: &Peer,
        doing: &'static str,
        step: impl Future<Output = Result<T, ConnectError>>,
    ) -> Result<T, ConnectError> {
        let done = timeout(time, step).await;
        done.unwrap_or_else(|_| Err(ConnectError::silent(peer, doing, time)))
    }
}

/// A failure of TLS that the operator can mend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsFault {
    /// The certificate is for another name.
    WrongName,
    /// The authority is not trusted.
    UnknownIssuer,
    /// The certificate has expired, or is not valid yet.
    Expired,
    /// The server does not speak TLS.
    NotTls,
    /// The server wants a certificate, or another one.
    WantsCertificate,
}

impl TlsFault {
    pub(crate) fn of(error: &io::Error) -> Option<TlsFault> {
        match error.get_ref()?.downcast_ref::<rustls::Error>()? {
            rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            ) => Some(TlsFault::WrongName),
            rustls::Error::InvalidCertificate(
                CertificateError::UnknownIssuer | CertificateError::BadSignature,
            ) => Some(TlsFault::UnknownIssuer),
            rustls::Error::InvalidCertificate(
                CertificateError::Expired
                | CertificateError::ExpiredContext { .. }
                | CertificateError::NotValidYet
                | CertificateError::NotValidYetContext { .. },
            ) => Some(TlsFault::Expired),
            rustls::Error::InvalidMessage(_) => Some(TlsFault::NotTls),
            rustls::Error::AlertReceived(
                AlertDescription::CertificateRequired
                | AlertDescription::BadCertificate
                | AlertDescription::CertificateUnknown
                | AlertDescription::CertificateExpired
                | AlertDescription::CertificateRevoked
                | AlertDescription::UnknownCA
                // Of a signature, which another authority of the same name made.
                | AlertDescription::DecryptError,
            ) => Some(TlsFault::WantsCertificate),
            _ => None,
        }
    }
}
