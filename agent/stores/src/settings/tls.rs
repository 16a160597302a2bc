//! Settings of TLS.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::fcntl::OFlag;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use super::from_files::{FromFiles, Source};
use super::{Broken, Refusal};

/// The settings of TLS connections: trusted authorities, and the agent's own certificate if it has one.
pub type Trust = FromFiles<Section>;

/// The files of a section of settings.
pub struct Section {
    name: String,
    files: Files,
}

impl Source for Section {
    type Value = ClientConfig;
    type Error = Broken;

    fn files(&self) -> Vec<&Path> {
        let Files { ca, certificate, key } = &self.files;
        [ca, certificate, key].into_iter().filter_map(Option::as_deref).collect()
    }

    fn name(&self) -> String {
        format!("certificates of [{}]", self.name)
    }

    fn read(&self) -> Result<ClientConfig, Broken> {
        self.files.config(&self.name)
    }
}

const CA: &str = "tls_ca_file";
const CERTIFICATE: &str = "tls_cert_file";
const KEY: &str = "tls_key_file";

/// Most bytes of a file with certificates.
const FILE_BYTES_MAX: u64 = 16 << 20;
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
        FromFiles::read(Section { name: section.to_owned(), files: self.clone() })
    }

    fn config(&self, section: &str) -> Result<ClientConfig, Broken> {
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
            return Ok(config.with_no_client_auth());
        };
        let chain = certificates(certificate).map_err(|rule| broken(CERTIFICATE, rule))?;
        let private = private_key(key).map_err(|rule| broken(KEY, rule))?;
        config.with_client_auth_cert(chain, private).map_err(|error| {
            let rule =
                format!("must be the key of the certificate in {}: {error}", name(CERTIFICATE));
            broken(KEY, rule)
        })
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
    let found: Vec<_> = CertificateDer::pem_slice_iter(&bytes_of(path)?)
        .take(CERTIFICATES_MAX)
        .collect::<Result<_, _>>()
        .map_err(|error| unparsable("certificates", &error))?;
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
    let bytes = bytes_of(path)?;
    PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| unparsable("a private key", &error))
}

/// What is in a file.
fn bytes_of(path: &Path) -> Result<Vec<u8>, Refusal> {
    let unreadable = |error: io::Error| format!("must be a readable file: {error}");
    // A named pipe in its place would be waited for.
    let nonblocking = OFlag::O_NONBLOCK.bits();
    let file = File::options().read(true).custom_flags(nonblocking).open(path);
    let file = file.map_err(unreadable)?;
    let found = file.metadata().map_err(unreadable)?;
    if !found.is_file() {
        return Err("must be a readable file, and no directory, pipe or device".to_owned());
    }
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("must have {} MiB at most", FILE_BYTES_MAX >> 20));
    }
    Ok(bytes)
}

/// The parser's own words could quote the file.
fn unparsable(what: &str, error: &pem::Error) -> Refusal {
    match error {
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;
    use tempfile::TempDir;

    use super::*;

    #[test]
    fn what_is_no_file_of_certificates_is_refused_and_not_waited_for() {
        let folder = TempDir::new().unwrap();
        let path = |name: &str| folder.path().join(name);
        mkfifo(&path("pipe"), Mode::S_IRWXU).unwrap();
        fs::create_dir(path("folder")).unwrap();
        symlink(path("loop"), path("loop")).unwrap();
        fs::write(path("empty"), "").unwrap();
        fs::write(path("text"), "-----BEGIN CERTIFICATE-----\nno\n").unwrap();
        File::create(path("huge")).unwrap().set_len(FILE_BYTES_MAX + 1).unwrap();
        for (name, rule) in [
            ("pipe", "no directory, pipe or device"),
            ("folder", "no directory, pipe or device"),
            ("loop", "must be a readable file: "),
            ("missing", "must be a readable file: "),
            ("empty", "in PEM format"),
            ("text", "in PEM format"),
            ("huge", "must have 16 MiB at most"),
        ] {
            for refusal in
                [certificates(&path(name)).unwrap_err(), private_key(&path(name)).unwrap_err()]
            {
                assert!(refusal.contains(rule), "{name}: {refusal}");
            }
        }
    }
}
