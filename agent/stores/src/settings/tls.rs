//! Settings of TLS.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
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

const CA: &str = "tls_ca_file";
const CERTIFICATE: &str = "tls_cert_file";
const KEY: &str = "tls_key_file";

/// Most certificates in a file.
const CERTIFICATES_MAX: usize = 10_000;

/// Files with certificates, as a section of settings names them.
#[derive(Debug, Clone, Default)]
pub struct Files {
    /// Authorities; without, those that this host trusts.
    pub ca: Option<PathBuf>,
    /// The agent's own certificate.
    pub certificate: Option<PathBuf>,
    /// Its private key.
    pub key: Option<PathBuf>,
}

impl Files {
    /// Checks that a section names no file in vain, where the upstream does not use TLS.
    ///
    /// # Errors
    ///
    /// With the first key that is set. `scheme` is what to write for TLS.
    pub fn check_unused(&self, section: &str, scheme: &str) -> Result<(), Broken> {
        let Files { ca, certificate, key } = self;
        let files = [(CA, ca), (CERTIFICATE, certificate), (KEY, key)];
        let Some((name, _)) = files.iter().find(|(_, file)| file.is_some()) else { return Ok(()) };
        let rule =
            format!("is for TLS, and upstream does not use it; write {scheme}, or leave it out");
        Err(Broken::new(&format!("{section}.{name}"), rule))
    }

    /// Reads the files of a section.
    ///
    /// # Errors
    ///
    /// With the key of the file that is not what it should be; `upstream` without one.
    pub fn read(&self, section: &str) -> Result<Trust, Broken> {
        let name = |key: &str| format!("{section}.{key}");
        let broken = |key: &str, rule: Refusal| Broken::new(&name(key), rule);
        let own = match (&self.certificate, &self.key) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (Some(_), None) => {
                return Err(broken(CERTIFICATE, format!("must have its key in {}", name(KEY))));
            }
            (None, Some(_)) => {
                let rule = format!("must have its certificate in {}", name(CERTIFICATE));
                return Err(broken(KEY, rule));
            }
        };
        let roots = match &self.ca {
            Some(path) => authorities(path).map_err(|rule| broken(CA, rule))?,
            None => authorities_of_host(&name(CA)).map_err(|rule| Broken::new("upstream", rule))?,
        };
        let config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| Broken::new("upstream", error.to_string()))?
            .with_root_certificates(roots);
        let Some((certificate, key)) = own else {
            return Ok(Trust::new(config.with_no_client_auth()));
        };
        let chain = certificates(certificate).map_err(|rule| broken(CERTIFICATE, rule))?;
        let private = private_key(key).map_err(|rule| broken(KEY, rule))?;
        let config = config.with_client_auth_cert(chain, private).map_err(|error| {
            let rule =
                format!("must be the key of the certificate in {}: {error}", name(CERTIFICATE));
            broken(KEY, rule)
        })?;
        Ok(Trust::new(config))
    }
}

/// The one implementation of cryptography.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Reads the certificates of authorities.
///
/// # Errors
///
/// When the file has none, or is not readable.
pub fn authorities(path: &Path) -> Result<RootCertStore, Refusal> {
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

/// Reads certificates.
///
/// # Errors
///
/// When the file has none, or is not readable.
pub fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Refusal> {
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

/// Reads a private key.
///
/// # Errors
///
/// When the file has none, or is not readable.
pub fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, Refusal> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| unreadable("a private key", error))
}

/// The parser's own words could quote the file.
fn unreadable(what: &str, error: pem::Error) -> Refusal {
    match error {
        pem::Error::Io(error) => format!("must be a readable file: {error}"),
        pem::Error::NoItemsFound => format!("must contain {what} in PEM format, and has none"),
        _ => format!("must contain {what} in PEM format"),
    }
}

/// The keys of the section `$section` for TLS, which is spoken where the URL has this scheme; `$files` is its
/// field with the [`Files`].
#[macro_export]
macro_rules! tls_keys {
    ($settings:ty, $section:literal, $scheme:literal, $files:ident) => {
        [
            $crate::optional_path_key!(
                $settings,
                concat!($section, ".tls_ca_file"),
                $files.ca,
                $crate::settings::value::path
            )
            .about(concat!(
                "For ",
                $scheme,
                ": the authorities that are trusted, in PEM format. Default: those that this host trusts."
            ))
            .example(concat!("\"/etc/tenured/", $section, "-ca.pem\"")),
            $crate::optional_path_key!(
                $settings,
                concat!($section, ".tls_cert_file"),
                $files.certificate,
                $crate::settings::value::path
            )
            .about(concat!(
                "For ",
                $scheme,
                ", where the server wants to see a certificate: the agent's, and its private key."
            ))
            .example(concat!("\"/etc/tenured/", $section, "-client.pem\"")),
            $crate::optional_path_key!(
                $settings,
                concat!($section, ".tls_key_file"),
                $files.key,
                $crate::settings::value::path
            )
            .example(concat!("\"/etc/tenured/", $section, "-client.key\"")),
        ]
    };
}
