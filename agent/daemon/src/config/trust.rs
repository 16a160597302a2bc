//! Whose certificates are trusted, and which one is shown.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use tenure_stores::tls::Trust;

use super::value::Refusal;

/// Most certificates in a file.
const CERTIFICATES_MAX: usize = 10_000;

/// A key that names a file, and what is wrong with that.
#[derive(Debug)]
pub(super) struct Wrong {
    pub(super) key: &'static str,
    pub(super) rule: Refusal,
}

/// Reads certificates: those of the authorities in `ca`, or else of those that this host trusts, and
/// the agent's own with its private key.
pub(super) fn read(
    ca: Option<&Path>,
    certificate: Option<&Path>,
    key: Option<&Path>,
) -> Result<Trust, Wrong> {
    let roots = match ca {
        Some(path) => authorities(path).map_err(|rule| Wrong { key: "redis.tls_ca_file", rule })?,
        None => authorities_of_host().map_err(|rule| Wrong { key: "upstream", rule })?,
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Wrong { key: "upstream", rule: error.to_string() })?
        .with_root_certificates(roots);
    let (Some(certificate), Some(key)) = (certificate, key) else {
        return Ok(Trust::new(config.with_no_client_auth()));
    };
    let chain =
        certificates(certificate).map_err(|rule| Wrong { key: "redis.tls_cert_file", rule })?;
    let wrong_key = |rule| Wrong { key: "redis.tls_key_file", rule };
    let key = PrivateKeyDer::from_pem_file(key)
        .map_err(|error| wrong_key(unreadable("a private key", error)))?;
    let config = config.with_client_auth_cert(chain, key).map_err(|error| {
        wrong_key(format!("must be the key of the certificate in redis.tls_cert_file: {error}"))
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

fn authorities_of_host() -> Result<RootCertStore, Refusal> {
    let mut roots = RootCertStore::empty();
    // Some hosts have one that nobody understands; the others are no worse for that.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        return Err("this host trusts no certificate authority, so nobody's certificate can be \
                    checked: install ca-certificates, or name a file in redis.tls_ca_file"
            .to_owned());
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
