//! A Redis of the test's own.

use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tenure_stores::redis::settings::{Login, Place, RedisAccess, RedisServer};
use tenure_stores::secret::Secret;

/// How long anything may take before a test gives up on it.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// A server in a directory of its own, on a Unix socket and a port.
pub(crate) struct Server {
    dir: tempfile::TempDir,
    pub(crate) port: u16,
    arguments: Vec<String>,
    child: Option<Child>,
}

impl Server {
    pub(crate) fn start(arguments: &[&str]) -> Server {
        Server::start_on("--port", arguments)
    }

    /// With another option for the port.
    pub(crate) fn start_on(port_option: &str, arguments: &[&str]) -> Server {
        let port = free_port();
        let mut all = match port_option {
            "--port" => Vec::new(),
            _ => vec!["--port".to_owned(), "0".to_owned()],
        };
        all.extend([port_option.to_owned(), port.to_string()]);
        all.extend(arguments.iter().map(ToString::to_string));
        let dir = tempfile::tempdir().unwrap();
        let mut server = Server { dir, port, arguments: all, child: None };
        server.run();
        server
    }

    /// A Sentinel with this configuration in its directory.
    pub(crate) fn sentinel(dir: tempfile::TempDir, file: &Path) -> Server {
        let port = free_port();
        let arguments = vec![
            file.to_str().unwrap().to_owned(),
            "--sentinel".to_owned(),
            "--port".to_owned(),
            port.to_string(),
        ];
        let mut server = Server { dir, port, arguments, child: None };
        server.run();
        server
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.path("redis.sock")
    }

    /// More options, for the next start.
    pub(crate) fn arguments(&mut self, more: &[&str]) {
        self.arguments.extend(more.iter().map(ToString::to_string));
    }

    /// Starts it, again, and waits until it answers.
    pub(crate) fn run(&mut self) {
        self.spawn();
        until("the server answers", || !self.say(&["PING"]).is_empty());
    }

    /// Starts it, again, and waits until it listens.
    pub(crate) fn spawn(&mut self) {
        assert!(self.child.is_none(), "it runs");
        // A socket that a killed server left would be taken for that of the new one.
        let _ = std::fs::remove_file(self.socket());
        let child = Command::new("redis-server")
            .args(&self.arguments)
            .args(["--bind", "127.0.0.1", "--dir", self.dir.path().to_str().unwrap()])
            .args(["--unixsocket", self.socket().to_str().unwrap()])
            .args(["--save", "", "--daemonize", "no", "--loglevel", "warning"])
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server can be run");
        self.child = Some(child);
        until("the server listens", || UnixStream::connect(self.socket()).is_ok());
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = self.child.as_ref().unwrap().id();
        kill(Pid::from_raw(pid.cast_signed()), signal).unwrap();
    }

    /// Kills it, and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Says something to it, as redis-cli does.
    #[track_caller]
    pub(crate) fn say(&self, words: &[&str]) -> String {
        let output = Command::new("redis-cli")
            .args(["-s", self.socket().to_str().unwrap()])
            .args(words)
            .output()
            .expect("redis-cli can be run");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    pub(crate) fn unix(&self) -> RedisAccess {
        access(RedisServer::Unix(self.socket()))
    }

    pub(crate) fn tcp(&self) -> RedisAccess {
        access(RedisServer::Tcp(local(self.port)))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
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
    Login { user: user.map(str::to_owned), password: Some(Secret::new(password)) }
}

pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    listener.local_addr().unwrap().port()
}

/// Looks again and again until the condition holds.
#[track_caller]
#[expect(clippy::disallowed_methods, reason = "only for how long the test is patient")]
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !holds() {
        assert!(Instant::now() < deadline, "waited {DEADLINE:?} in vain until {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
