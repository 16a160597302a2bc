//! A Postgres of this run's own.

use std::fs::{self, File};
use std::os::unix::fs::chown;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context;
use nix::sys::signal::Signal;
use nix::unistd::{User, geteuid};
use tempfile::TempDir;

use crate::harness::{Program, until};

/// The socket of its default port.
const SOCKET: &str = ".s.PGSQL.5432";

/// A running Postgres. Dropping it stops it.
pub(super) struct Postgres {
    process: Program,
    dir: TempDir,
}

impl Postgres {
    /// Makes a cluster, starts its server, and waits until it can be connected to.
    pub(super) fn start() -> anyhow::Result<Postgres> {
        let programs = programs().context("Postgres is not installed")?;
        let dir = TempDir::with_prefix("postgres-")?;
        // The server refuses to run as root.
        let user = if geteuid().is_root() {
            let user = User::from_name("postgres")?.context("there is no user postgres")?;
            chown(dir.path(), Some(user.uid.as_raw()), Some(user.gid.as_raw()))?;
            Some(user)
        } else {
            None
        };
        let command = |program: &str| {
            let mut command = Command::new(programs.join(program));
            if let Some(user) = &user {
                command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
            }
            command.current_dir(dir.path()).stdin(Stdio::null());
            command
        };
        let log = File::create(dir.path().join("postgres.log"))?;
        let data = dir.path().join("data");
        let made = command("initdb")
            .args(["--auth", "trust", "--username", "postgres", "--no-sync", "--pgdata"])
            .arg(&data)
            .stdout(log.try_clone()?)
            .stderr(log.try_clone()?)
            .status()?;
        anyhow::ensure!(made.success(), "initdb: {}", log_in(dir.path()));
        let process = Program::start(
            command("postgres")
                .arg("-D")
                .arg(&data)
                .args(["-c", "listen_addresses=", "-k"])
                .arg(dir.path())
                .stdout(log.try_clone()?)
                .stderr(log),
        );
        let socket = dir.path().join(SOCKET);
        let mut postgres = Postgres { process, dir };
        until("Postgres to listen", || {
            assert!(postgres.process.ended().is_none(), "{}", log_in(postgres.dir.path()));
            UnixStream::connect(&socket).is_ok()
        });
        Ok(postgres)
    }

    /// The directory that has its socket.
    pub(super) fn dir(&self) -> &Path {
        self.dir.path()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // Immediate shutdown. Killed outright, it would leave its shared memory behind.
        self.process.signal(Signal::SIGQUIT);
        self.process.wait();
    }
}

fn log_in(dir: &Path) -> String {
    fs::read_to_string(dir.join("postgres.log")).unwrap_or_default()
}

/// The directory of initdb and postgres, of the newest version if there are several. Debian does
/// not put them on the path.
fn programs() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .map(|version| version.path().join("bin"))
        .collect();
    places.sort();
    places.reverse();
    places.extend(std::env::split_paths(&path));
    places.into_iter().find(|dir| dir.join("initdb").is_file() && dir.join("postgres").is_file())
}
