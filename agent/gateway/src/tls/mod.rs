//! TLS: the gateway's certificate, and those of its clients.

mod certificate;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use rustls::server::WebPkiClientVerifier;
use rustls::version::{TLS12, TLS13};
use tenure_host::clock;
use tenure_service::browsers::Host;
use tenure_stores::settings::Refusal;
use tenure_stores::settings::from_files::{FromFiles, Source};
use tenure_stores::settings::tls::{authorities, certificates, private_key, provider};
use tracing::{info, warn};

use self::certificate::CertifiedHosts;
pub use self::certificate::{Names, expires_at};

/// What clients may speak, the first one first.
const PROTOCOLS: [&[u8]; 2] = [H2, b"http/1.1"];
/// HTTP/2, as clients name it.
pub const H2: &[u8] = b"h2";
/// A certificate that lasts no longer is warned of.
const SOON: Duration = Duration::from_secs(14 * 24 * 3600);
const S_PER_DAY: u64 = 24 * 3600;
const US_PER_S: u64 = 1_000_000;

/// Files with certificates.
#[derive(Debug, Clone)]
pub struct Files {
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// Authorities of clients; without, no client is asked for a certificate.
    pub clients: Option<Clients>,
}

#[derive(Debug, Clone)]
pub struct Clients {
    pub ca: PathBuf,
    /// Others have something else to show: a key.
    pub is_optional: bool,
}

/// The key whose file is not what it should be, and why.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key} = {file:?}: {rule}")]
pub struct TlsError {
    pub key: &'static str,
    pub file: PathBuf,
    pub rule: Refusal,
}

impl TlsError {
    fn of(key: &'static str, file: &Path) -> impl Fn(Refusal) -> TlsError {
        move |rule| TlsError { key, file: file.to_owned(), rule }
    }
}

/// The certificates in force.
#[derive(Debug)]
pub struct Tls(FromFiles<Files>);

/// What connections are served with.
#[derive(Debug)]
pub struct Current {
    config: Arc<ServerConfig>,
    expires_at: u64,
    names: CertifiedHosts,
}

impl Source for Files {
    type Value = Current;
    type Error = TlsError;

    fn files(&self) -> Vec<&Path> {
        let clients = self.clients.as_ref().map(|clients| &*clients.ca);
        [&*self.certificate, &*self.key].into_iter().chain(clients).collect()
    }

    fn name(&self) -> String {
        "certificates of the gateway".to_owned()
    }

    fn read(&self) -> Result<Current, TlsError> {
        Current::read(self)
    }

    fn check(&self, value: &Current) -> Result<(), TlsError> {
        if value.left() == Duration::ZERO {
            let wrong = TlsError::of(CERTIFICATE, &self.certificate);
            return Err(wrong("has expired: renew it".to_owned()));
        }
        Ok(())
    }
}

impl Tls {
    /// Reads certificates. One that has expired is warned of and used: a clock may be wrong, and clients say what is
    /// wrong with it.
    ///
    /// # Errors
    ///
    /// With the first file that is not what it should be.
    pub fn read(files: Files) -> Result<Tls, TlsError> {
        let tls = Tls(FromFiles::read(files)?);
        tls.0.latest().tell_expiry();
        Ok(tls)
    }

    /// Reads the files again, for connections from now on.
    ///
    /// # Errors
    ///
    /// When they are not good, or the certificate has expired. Then nothing changes.
    pub fn reload(&self) -> Result<(), TlsError> {
        self.0.reload()?;
        self.0.latest().tell_expiry();
        Ok(())
    }

    /// The configuration of a connection that begins now: that of the files, if they are good.
    pub async fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.0.current().await.config)
    }

    /// True if the certificate is for this host.
    pub fn is_for(&self, host: &Host<'_>) -> bool {
        self.0.latest().names.has(host)
    }

    /// Reads the files again if one of them has changed.
    pub async fn look(&self) {
        self.0.current().await;
    }

    /// s since 1970.
    pub fn expires_at(&self) -> u64 {
        self.0.latest().expires_at
    }

    /// Says when the certificate expires if that is soon.
    pub fn remind(&self) {
        let current = self.0.latest();
        if current.left() <= SOON {
            current.tell_expiry();
        }
    }
}

pub const CERTIFICATE: &str = "tls.cert_file";
pub const KEY: &str = "tls.key_file";
pub const CLIENT_CA: &str = "tls.client_ca_file";

impl Current {
    fn read(files: &Files) -> Result<Current, TlsError> {
        let chain = certificates(&files.certificate)
            .map_err(TlsError::of(CERTIFICATE, &files.certificate))?;
        let expires_at = chain.first().and_then(|first| expires_at(first)).ok_or_else(|| {
            TlsError::of(CERTIFICATE, &files.certificate)(
                "its first certificate has no date that ends it".to_owned(),
            )
        })?;
        let names = chain.first().map(CertifiedHosts::of).unwrap_or_default();
        let key = private_key(&files.key).map_err(TlsError::of(KEY, &files.key))?;
        let builder = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(|error| TlsError::of(CERTIFICATE, &files.certificate)(error.to_string()))?;
        let builder = match &files.clients {
            None => builder.with_no_client_auth(),
            Some(Clients { ca, is_optional }) => {
                let roots = Arc::new(authorities(ca).map_err(TlsError::of(CLIENT_CA, ca))?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider());
                let verifier =
                    if *is_optional { verifier.allow_unauthenticated() } else { verifier };
                let verifier = verifier
                    .build()
                    .map_err(|error| TlsError::of(CLIENT_CA, ca)(error.to_string()))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder.with_single_cert(chain, key).map_err(|error| {
            TlsError::of(KEY, &files.key)(format!("must be the key of the certificate: {error}"))
        })?;
        config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
        Ok(Current { config: Arc::new(config), expires_at, names })
    }

    /// The time until it expires.
    fn left(&self) -> Duration {
        Duration::from_secs(self.expires_at.saturating_sub(now()))
    }

    fn tell_expiry(&self) {
        let (left, at) = (self.left(), self.expires_at);
        let days = left.as_secs() / S_PER_DAY;
        if left == Duration::ZERO {
            warn!(at, "the certificate has expired: agents refuse it; renew it");
        } else if left <= SOON {
            warn!(days, at, "the certificate expires soon; renew it");
        } else {
            info!(days, at, "the certificate is good");
        }
    }
}

/// s since 1970. Certificates expire by the wall clock.
fn now() -> u64 {
    clock::wall_us() / US_PER_S
}
