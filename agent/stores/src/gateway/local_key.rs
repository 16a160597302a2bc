//! The key that a gateway of this host leaves for programs of its user.

use std::fs::File;
use std::io::Read;
use std::net::IpAddr;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use nix::unistd::geteuid;

use super::key::Shown;
use crate::remote::Endpoint;
use crate::settings::secret::Secret;

/// Its name in the runtime directory of the gateway.
pub const LOCAL_KEY: &str = "key";
/// Longest file that is read, bytes.
const BYTES_MAX: u64 = 256;
/// Anybody else may read it, or put a key of their own there.
const FOR_OTHERS: u32 = 0o077;

/// The directories in which gateways of this host leave it: of the user's own, then the host's.
fn directories() -> impl Iterator<Item = PathBuf> {
    let own = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let own = own.filter(|path| path.is_absolute()).map(|path| path.join("tenured-gateway"));
    let shared = PathBuf::from(format!("/tmp/tenured-gateway-{}", geteuid()));
    own.into_iter().chain([PathBuf::from("/run/tenured-gateway"), shared])
}

/// The key for a gateway at this address, if that is one of this host alone. It is read anew for each connection: another
/// run of the gateway has another one.
pub(super) fn local_key(endpoint: &Endpoint) -> Option<Secret> {
    let Endpoint::Tcp(host, _) = endpoint else { return None };
    let is_here = host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    is_here.then(|| directories().find_map(|path| read(&path.join(LOCAL_KEY))))?
}

/// The key in a file, unless another user could have put it there, or can read it.
fn read(path: &Path) -> Option<Secret> {
    // Neither a link, which may lead to another secret of this user, nor a named pipe, which would be waited for.
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let file = File::options().read(true).custom_flags(flags.bits()).open(path).ok()?;
    let found = file.metadata().ok()?;
    let is_trusted = found.is_file()
        && (found.uid() == 0 || found.uid() == geteuid().as_raw())
        && found.mode() & FOR_OTHERS == 0;
    let mut text = String::new();
    is_trusted.then(|| file.take(BYTES_MAX).read_to_string(&mut text).ok())??;
    let text = text.trim_end();
    Shown::parse(text).map(|_| Secret::new(text))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::super::key::New;
    use super::*;

    #[test]
    fn only_a_key_that_no_other_user_wrote_or_can_read_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(LOCAL_KEY);
        let text = New::make().unwrap().text;
        fs::write(&path, format!("{text}\n")).unwrap();
        for (mode, is_taken) in
            [(0o600, true), (0o400, true), (0o640, false), (0o604, false), (0o620, false)]
        {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(read(&path).is_some_and(|key| key.expose() == text), is_taken, "{mode:o}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let link = dir.path().join("link");
        symlink(&path, &link).unwrap();
        assert_eq!(read(&link), None);
        assert_eq!(read(dir.path()), None);
        fs::write(&path, "a password").unwrap();
        assert_eq!(read(&path), None);
    }

    #[test]
    fn no_other_host_is_shown_one() {
        for host in ["gateway.example", "10.0.0.1", "localhost.evil.example", "0.0.0.0"] {
            assert_eq!(local_key(&Endpoint::Tcp(host.to_owned(), 8740)), None);
        }
    }
}
