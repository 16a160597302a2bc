//! Passwords, and the files that they are kept in.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::fcntl::OFlag;
use secrecy::{ExposeSecret, SecretString};
use tracing::warn;

use super::Refusal;

/// Longest password, bytes.
const SECRET_MAX: usize = 4096;
/// A stand-in for the directory into which systemd puts the credentials of a service, see
/// systemd.exec(5), LoadCredential=.
const CREDENTIALS: &str = "CREDENTIALS_DIRECTORY";
/// The credential that is looked for when no file is named.
const CREDENTIAL: &str = "upstream-secret";
/// Anybody else may read it, or write another one into it.
const FOR_OTHERS: u32 = 0o006;

/// A password. Printed as `***`, and wiped from memory when it is dropped.
#[derive(Clone)]
pub struct Secret(SecretString);

impl Secret {
    /// Takes a password.
    pub fn new(password: impl Into<String>) -> Secret {
        Secret(SecretString::from(password.into()))
    }

    /// The password itself, for the server alone.
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// To notice that a password was changed; nobody is let in by this comparison.
impl PartialEq for Secret {
    fn eq(&self, other: &Secret) -> bool {
        self.expose() == other.expose()
    }
}

impl Eq for Secret {}

/// The origin of a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SecretSource {
    /// The configuration itself, such as a URL with a password.
    Given(Secret),
    File(SecretFile),
}

impl SecretSource {
    /// The secret for a sign-in that begins now: a file is read again.
    pub fn read(&self) -> Secret {
        match self {
            SecretSource::Given(secret) => secret.clone(),
            SecretSource::File(file) => file.read(),
        }
    }

    /// The secret that was used last; reads nothing.
    pub fn latest(&self) -> Secret {
        match self {
            SecretSource::Given(secret) => secret.clone(),
            SecretSource::File(file) => file.latest(),
        }
    }

    pub fn is_file(&self) -> bool {
        matches!(self, SecretSource::File(_))
    }
}

impl From<Secret> for SecretSource {
    fn from(secret: Secret) -> SecretSource {
        SecretSource::Given(secret)
    }
}

/// A file with a secret. Each sign-in reads the file again, so that a rotated secret takes no restart. Clones
/// share the secret that was read last.
#[derive(Debug, Clone)]
pub struct SecretFile {
    path: PathBuf,
    credentials: Credentials,
    latest: Arc<Mutex<FileState>>,
}

/// The state of a file with a secret when it was read last.
#[derive(Debug)]
struct FileState {
    secret: Secret,
    /// The rule that the file broke since `secret` was read.
    refusal: Option<Refusal>,
}

impl SecretFile {
    /// Reads the file for the first time.
    ///
    /// # Errors
    ///
    /// With the rule that the file breaks.
    pub fn open(path: &Path, credentials: &Credentials) -> Result<SecretFile, Refusal> {
        let latest = FileState { secret: read(path, credentials)?, refusal: None };
        let (path, credentials) = (path.to_owned(), credentials.clone());
        Ok(SecretFile { path, credentials, latest: Arc::new(Mutex::new(latest)) })
    }

    /// The secret in the file now. The secret that was read last if the file breaks a rule at this moment: the
    /// file may be half written, and the server may still take the earlier secret.
    pub fn read(&self) -> Secret {
        let found = read(&self.path, &self.credentials);
        let mut latest = self.lock();
        match found {
            Ok(secret) => *latest = FileState { secret, refusal: None },
            Err(refusal) => {
                // Agents without a connection sign in several times a second.
                if latest.refusal.as_ref() != Some(&refusal) {
                    let file = self.path.display();
                    warn!("signing in with the secret that was read last: {file} {refusal}");
                }
                latest.refusal = Some(refusal);
            }
        }
        latest.secret.clone()
    }

    /// The secret that was read last.
    pub fn latest(&self) -> Secret {
        self.lock().secret.clone()
    }

    fn lock(&self) -> MutexGuard<'_, FileState> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// To compare configurations: the same file, with the same secret in it.
impl PartialEq for SecretFile {
    fn eq(&self, other: &SecretFile) -> bool {
        self.path == other.path && self.latest() == other.latest()
    }
}

impl Eq for SecretFile {}

/// The circumstances in which files with passwords are read.
#[derive(Debug, Clone, Default)]
pub struct Credentials {
    /// The directory of the service manager's credentials, if it brought some.
    pub directory: Option<PathBuf>,
    /// The user who reads.
    pub uid: u32,
}

impl Credentials {
    /// The environment variable that names [`Credentials::directory`].
    pub const VARIABLE: &str = CREDENTIALS;
}

/// The path of a file with a secret: an absolute one, or one in systemd's directory of credentials.
///
/// # Errors
///
/// With the rule that the text breaks.
pub fn path(text: &str) -> Result<PathBuf, Refusal> {
    let path = PathBuf::from(text);
    if path.is_absolute() || in_credentials(&path).is_some() {
        Ok(path)
    } else {
        Err("must be an absolute path, or $CREDENTIALS_DIRECTORY/NAME for a credential of the \
             service manager"
            .to_owned())
    }
}

/// The name of a credential, if the path is that of one.
fn in_credentials(path: &Path) -> Option<&Path> {
    path.strip_prefix(format!("${CREDENTIALS}")).ok().filter(|name| name.components().count() == 1)
}

/// The credential that the service manager brings for the upstream, if it does.
pub fn credential(credentials: &Credentials) -> Option<PathBuf> {
    let path = credentials.directory.as_ref()?.join(CREDENTIAL);
    path.exists().then(|| Path::new(&format!("${CREDENTIALS}")).join(CREDENTIAL))
}

/// Reads the secret in a file. One line break at its end is not part of it.
fn read(path: &Path, credentials: &Credentials) -> Result<Secret, Refusal> {
    let path = match in_credentials(path) {
        None => path.to_owned(),
        Some(name) => credentials
            .directory
            .as_ref()
            .ok_or_else(|| {
                format!(
                    "the service manager brought no credentials ({CREDENTIALS} is not set): add \
                     LoadCredential={}:FILE to the service, or name a file",
                    name.display()
                )
            })?
            .join(name),
    };
    let unreadable =
        |error: io::Error| format!("must be a file that uid {} can read: {error}", credentials.uid);
    // A named pipe in its place would be waited for.
    let flags = OFlag::O_NONBLOCK.bits();
    let file = File::options().read(true).custom_flags(flags).open(&path).map_err(unreadable)?;
    let found = file.metadata().map_err(unreadable)?;
    if !found.is_file() {
        return Err("must be a file".to_owned());
    }
    if found.mode() & FOR_OTHERS != 0 {
        return Err(format!(
            "must not be open to every user of this host, and has mode {:04o}: chmod 600 it, and \
             change the password in it if somebody may have read it",
            found.mode() & 0o7777
        ));
    }
    let mut text = String::new();
    let most = u64::try_from(SECRET_MAX).unwrap_or(u64::MAX).saturating_add(2);
    let read = file.take(most).read_to_string(&mut text);
    let text = SecretString::from(text);
    read.map_err(|error| match error.kind() {
        io::ErrorKind::InvalidData => "must contain a password in UTF-8".to_owned(),
        _ => unreadable(error),
    })?;
    let secret = text.expose_secret();
    let secret = secret.strip_suffix('\n').unwrap_or(secret);
    let secret = secret.strip_suffix('\r').unwrap_or(secret);
    if secret.is_empty() || secret.len() > SECRET_MAX {
        return Err(format!("must contain a password of 1 to {SECRET_MAX} bytes"));
    }
    if secret.contains(['\n', '\r', '\0']) {
        return Err("must contain one line with the password, and nothing else".to_owned());
    }
    Ok(Secret::new(secret))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn credentials(directory: Option<&Path>) -> Credentials {
        Credentials { directory: directory.map(Path::to_owned), uid: 7 }
    }

    fn written(text: impl AsRef<[u8]>, mode: u32) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(CREDENTIAL);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        (dir, path)
    }

    #[test]
    fn a_line_is_read() {
        for text in ["open sesame", "open sesame\n", "open sesame\r\n"] {
            let (_dir, path) = written(text, 0o640);
            assert_eq!(read(&path, &credentials(None)).unwrap().expose(), "open sesame");
        }
        let longest = "x".repeat(SECRET_MAX);
        let (_dir, path) = written(format!("{longest}\n"), 0o400);
        assert_eq!(read(&path, &credentials(None)).unwrap(), Secret::new(longest));
    }

    #[track_caller]
    fn refused(text: impl AsRef<[u8]>, mode: u32, expected: &str) {
        let (_dir, path) = written(text, mode);
        let refusal = read(&path, &credentials(None)).unwrap_err();
        assert!(refusal.contains(expected), "{refusal}");
        assert!(!refusal.contains("hunter2"), "{refusal}");
    }

    #[test]
    fn what_is_no_secret_is_refused() {
        refused("hunter2", 0o644, "must not be open to every user of this host, and has mode 0644");
        refused("hunter2", 0o602, "has mode 0602: chmod 600 it");
        refused("", 0o600, "must contain a password of 1 to 4096 bytes");
        refused("\n", 0o600, "must contain a password of 1 to 4096 bytes");
        refused("x".repeat(SECRET_MAX + 1), 0o600, "must contain a password of 1 to 4096 bytes");
        refused("hunter2\nhunter2\n", 0o600, "one line");
        refused(b"hunter2\xff", 0o600, "in UTF-8");
        let (dir, _) = written("", 0o600);
        assert_eq!(read(dir.path(), &credentials(None)).unwrap_err(), "must be a file");
        let refusal = read(&dir.path().join("no"), &credentials(None)).unwrap_err();
        assert!(refusal.starts_with("must be a file that uid 7 can read: No such"), "{refusal}");
    }

    #[test]
    fn credentials_come_from_the_service_manager() {
        let (dir, _) = written("open sesame", 0o400);
        let named = path("$CREDENTIALS_DIRECTORY/upstream-secret").unwrap();
        let brought = credentials(Some(dir.path()));
        assert_eq!(read(&named, &brought).unwrap().expose(), "open sesame");
        assert_eq!(credential(&brought), Some(named.clone()));

        let nowhere = Credentials::default();
        assert_eq!(credential(&nowhere), None);
        let refusal = read(&named, &nowhere).unwrap_err();
        assert!(refusal.contains("LoadCredential=upstream-secret:FILE"), "{refusal}");
        for wrong in ["secret", "$CREDENTIALS_DIRECTORY", "$CREDENTIALS_DIRECTORY/../a", "$HOME/a"]
        {
            path(wrong).unwrap_err();
        }
    }

    fn rewrite(path: &Path, text: &str) {
        fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn a_file_is_read_again_and_clones_share_it() {
        let (dir, path) = written("first\n", 0o600);
        let file = SecretFile::open(&path, &credentials(None)).unwrap();
        let clone = file.clone();
        let next = dir.path().join("next");
        fs::write(&next, "second\n").unwrap();
        fs::set_permissions(&next, Permissions::from_mode(0o600)).unwrap();
        fs::rename(&next, &path).unwrap();
        assert_eq!(file.latest().expose(), "first");
        assert_eq!(file.read().expose(), "second");
        assert_eq!(clone.latest().expose(), "second");
        assert!(!format!("{file:?}").contains("second"));
    }

    #[test]
    fn a_file_that_breaks_a_rule_later_leaves_the_secret_that_was_read_last() {
        let (_dir, path) = written("first", 0o600);
        let file = SecretFile::open(&path, &credentials(None)).unwrap();
        let source = SecretSource::File(file.clone());
        for broken in ["", "two\nlines\n"] {
            rewrite(&path, broken);
            assert_eq!(source.read().expose(), "first");
        }
        rewrite(&path, "open to all");
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        assert_eq!(source.read().expose(), "first");
        fs::remove_file(&path).unwrap();
        assert_eq!(source.read().expose(), "first");
        assert!(file.lock().refusal.as_ref().unwrap().contains("No such file"));
        fs::write(&path, "second").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        assert_eq!(source.read().expose(), "second");
        assert_eq!(file.lock().refusal, None);
        fs::remove_file(&path).unwrap();
        assert_eq!(source.read().expose(), "second");
        SecretFile::open(&path, &credentials(None)).unwrap_err();
    }

    #[test]
    fn a_named_pipe_is_refused_and_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
        assert_eq!(read(&path, &credentials(None)).unwrap_err(), "must be a file");
    }

    #[test]
    fn a_secret_does_not_print() {
        let secret = Secret::new("hunter2");
        assert_eq!(format!("{secret:?}"), "***");
        assert!(secret == secret.clone() && secret != Secret::new("hunter3"));
    }
}
