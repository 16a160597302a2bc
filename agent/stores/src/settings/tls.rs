//! Settings of TLS.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use super::{Broken, Refusal};

/// The settings of a TLS connection: trusted authorities, and the agent's own certificate if it has
/// one.
#[derive(Clone)]
pub struct Trust(Arc<ClientConfig>);

impl fmt::Debug for Trust {
    /// Without the private key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Trust")
    }
}

impl Trust {
    /// Takes a configuration of rustls.
    pub fn new(config: ClientConfig) -> Trust {
        Trust(Arc::new(config))
    }

    /// The configuration.
    pub fn config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.0)
    }
}

/// Most certificates in a file.
const CERTIFICATES_MAX: usize = 10_000;

/// Files with certificates, each with the key that names it.
#[derive(Debug)]
pub struct Files<'a> {
    /// Authorities; without, those that this host trusts.
    pub ca: (&'static str, Option<&'a Path>),
    /// The agent's own certificate.
    pub certificate: (&'static str, Option<&'a Path>),
    /// Its private key.
    pub key: (&'static str, Option<&'a Path>),
}

/// Reads certificates.
///
/// # Errors
///
/// With the key of the file that is not what it should be; `upstream` without one.
pub fn read(files: &Files<'_>) -> Result<Trust, Broken> {
    let Files { ca, certificate, key } = files;
    match (certificate.1, key.1) {
        (Some(_), None) => {
            return Err(Broken::new(certificate.0, format!("must have its key in {}", key.0)));
        }
        (None, Some(_)) => {
            return Err(Broken::new(
                key.0,
                format!("must have its certificate in {}", certificate.0),
            ));
        }
        _ => {}
    }
    let roots = match ca.1 {
        Some(path) => authorities(path).map_err(|rule| Broken::new(ca.0, rule))?,
        None => authorities_of_host(ca.0).map_err(|rule| Broken::new("upstream", rule))?,
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Broken::new("upstream", error.to_string()))?
        .with_root_certificates(roots);
    let (Some(certificate_file), Some(key_file)) = (certificate.1, key.1) else {
        return Ok(Trust::new(config.with_no_client_auth()));
    };
    let chain = certificates(certificate_file).map_err(|rule| Broken::new(certificate.0, rule))?;
    let private = PrivateKeyDer::from_pem_file(key_file)
        .map_err(|error| Broken::new(key.0, unreadable("a private key", error)))?;
    let config = config.with_client_auth_cert(chain, private).map_err(|error| {
        let rule = format!("must be the key of the certificate in {}: {error}", certificate.0);
        Broken::new(key.0, rule)
    })?;
    Ok(Trust::new(config))
}

fn authorities(path: &Path) -> Result<RootCertStore, Refusal> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots
            .add(certificate)
            .map_err(|error| format!("must contain certificates of authorities: {error}"))?;
    }
    Ok(roots)
}

fn authorities_of_host(key: &str) -> Result<RootCertStore, Refusal> {
    let mut roots = RootCertStore::empty();
    // Some hosts have one that nobody understands; the others are no worse for that.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err(format!(
            "this host trusts no certificate authority, so nobody's certificate can be checked: install \
             ca-certificates, or name a file in {key}"
        ));
    }
    Ok(roots)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Refusal> {
    let unreadable = |error| unreadable("certificates", error);
    let found: Vec<_> = CertificateDer::pem_file_iter(path)
        .map_err(unreadable)?
        .take(CERTIFICATES_MAX)
        .collect::<Result<_, _>>()
        .map_err(unreadable)?;
    if found.is_empty() {
        return Err("must contain certificates in PEM format, and has none".to_owned());
    }
    Ok(found)
}

/// The parser's own words could quote the file.
fn unreadable(what: &str, error: pem::Error) -> Refusal {
    match error {
        pem::Error::Io(error) => format!("must be a file that the agent can read: {error}"),
        pem::Error::NoItemsFound => format!("must contain {what} in PEM format, and has none"),
        _ => format!("must contain {what} in PEM format"),
    }
}
