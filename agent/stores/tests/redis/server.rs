//! Servers, and the settings with which an agent connects to them.

use std::fs;
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tenure_stores::redis::settings::{Login, Place, RedisAccess, RedisServer};
use tenure_stores::settings::secret::{Credentials, Secret, SecretFile, SecretSource};

/// A server on a Unix socket and a port.
pub(crate) struct Server(tenure_harness::RedisServer);

impl Deref for Server {
    type Target = tenure_harness::RedisServer;

    fn deref(&self) -> &tenure_harness::RedisServer {
        &self.0
    }
}

impl DerefMut for Server {
    fn deref_mut(&mut self) -> &mut tenure_harness::RedisServer {
        &mut self.0
    }
}

impl Server {
    pub(crate) fn start(arguments: &[&str]) -> Server {
        Server(tenure_harness::RedisServer::setup().tcp().arguments(arguments).start())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.socket().with_file_name(name)
    }

    /// Says something to it, as redis-cli does.
    #[track_caller]
    pub(crate) fn say(&self, words: &[&str]) -> String {
        say(&["-s", self.socket().to_str().unwrap()], words)
    }

    pub(crate) fn unix(&self) -> RedisAccess {
        access(RedisServer::Unix(self.socket()))
    }

    pub(crate) fn tcp(&self) -> RedisAccess {
        access(RedisServer::Tcp(local(self.port())))
    }
}

#[track_caller]
pub(crate) fn say(to: &[&str], words: &[&str]) -> String {
    let output =
        Command::new("redis-cli").args(to).args(words).output().expect("redis-cli can be run");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

pub(crate) fn local(port: u16) -> Place {
    Place { host: "127.0.0.1".to_owned(), port }
}

/// With deadlines that a loaded machine keeps.
pub(crate) fn access(server: RedisServer) -> RedisAccess {
    let patience = Duration::from_secs(10);
    RedisAccess { connect_timeout: patience, timeout: patience, ..RedisAccess::plain(server) }
}

pub(crate) fn login(user: Option<&str>, password: &str) -> Login {
    Login { user: user.map(str::to_owned), password: Some(Secret::new(password).into()) }
}

/// Puts a file with that password in the place of the one before it.
pub(crate) fn write_secret(path: &Path, password: &str) {
    let next = path.with_extension("next");
    fs::write(&next, format!("{password}\n")).unwrap();
    fs::set_permissions(&next, fs::Permissions::from_mode(0o600)).unwrap();
    fs::rename(next, path).unwrap();
}

/// With the password in that file, which must be there.
pub(crate) fn login_by_file(path: &Path) -> Login {
    let file = SecretFile::open(path, &Credentials::default()).unwrap();
    Login { user: None, password: Some(SecretSource::File(file)) }
}
