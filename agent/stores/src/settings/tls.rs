//! Settings of TLS.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{fmt, io};

use nix::fcntl::OFlag;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tracing::{info, warn};

use super::{Broken, Refusal};

/// The settings of TLS connections: trusted authorities, and the agent's own certificate if it has one. A connection
/// that begins after a file was replaced has the new settings, so that a rotation takes no restart. Clones share the
/// settings that were read last.
#[derive(Clone)]
pub struct Trust(Arc<Origin>);

struct Origin {
    section: String,
    files: Files,
    latest: Mutex<Latest>,
    /// Held by whoever reads the files.
    reading: Mutex<()>,
}

/// The settings that were read last.
struct Latest {
    config: Arc<ClientConfig>,
    /// The state of the files before they were read.
    stamps: Stamps,
    /// What was wrong with the files since then.
    broken: Option<Broken>,
}

impl fmt::Debug for Trust {
    /// Without the private key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Trust")
    }
}

impl Trust {
    /// The settings for a connection that begins now. Those that were read last if something is wrong with the files
    /// at this moment: one of them may be replaced, and another not yet.
    ///
    /// Reads on another thread, and waits for it a second at most: beats go on meanwhile. Within a runtime.
    pub async fn config(&self) -> Arc<ClientConfig> {
        let origin = Arc::clone(&self.0);
        // A disk that hangs leaves the settings as they were.
        let _read = timeout(READ_MAX, spawn_blocking(move || origin.look())).await;
        Arc::clone(&lock(&self.0.latest).config)
    }

    /// Reads the files again, and the authorities of this host where no file has others, for connections from now on.
    ///
    /// # Errors
    ///
    /// With the key of the file that is not what it should be. Then nothing changes.
    pub fn reload(&self) -> Result<(), Broken> {
        let _reading = lock(&self.0.reading);
        self.0.read_again(self.0.files.stamps())
    }
}

impl Origin {
    /// Reads the files again if one of them has changed.
    fn look(&self) {
        // Somebody reads already, or waits for a disk.
        let Ok(_reading) = self.reading.try_lock() else { return };
        let stamps = self.files.stamps();
        {
            let mut latest = lock(&self.latest);
            if stamps == latest.stamps {
                latest.broken = None;
                return;
            }
        }
        let Err(broken) = self.read_again(stamps) else { return };
        let mut latest = lock(&self.latest);
        // An agent without a connection looks several times a second.
        if latest.broken.as_ref() != Some(&broken) {
            let Broken { key, rule } = &broken;
            warn!("connecting with the certificates that were read last: {key} {rule}");
            latest.broken = Some(broken);
        }
    }

    /// Reads the files, of which these are the stamps. For whoever has `reading`.
    fn read_again(&self, stamps: Stamps) -> Result<(), Broken> {
        let config = Arc::new(self.files.config(&self.section)?);
        let mut latest = lock(&self.latest);
        if stamps != latest.stamps {
            info!("read the certificates of [{}] again, for new connections", self.section);
        }
        *latest = Latest { config, stamps, broken: None };
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The state of each file of a section. One state may stand for two contents of a file that changed twice at once;
/// a reload reads the files anyway.
type Stamps = [Option<Stamp>; 3];

#[derive(Debug, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    length: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// That of a file; `None` while it cannot be looked at.
    fn of(path: &Path) -> Option<Stamp> {
        let found = fs::metadata(path).ok()?;
        Some(Stamp {
            inode: found.ino(),
            length: found.size(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        })
    }
}

const CA: &str = "tls_ca_file";
const CERTIFICATE: &str = "tls_cert_file";
const KEY: &str = "tls_key_file";

/// The longest wait for a disk, before a connection begins with the settings that were read last.
const READ_MAX: Duration = Duration::from_secs(1);
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
        // Before they are read: what changes meanwhile is noticed.
        let stamps = self.stamps();
        let config = Arc::new(self.config(section)?);
        let latest = Mutex::new(Latest { config, stamps, broken: None });
        let (section, files) = (section.to_owned(), self.clone());
        Ok(Trust(Arc::new(Origin { section, files, latest, reading: Mutex::default() })))
    }

    fn stamps(&self) -> Stamps {
        let Files { ca, certificate, key } = self;
        [ca, certificate, key].map(|file| file.as_deref().and_then(Stamp::of))
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
