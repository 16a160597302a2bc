//! A Postgres of a test's own.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use nix::unistd::{User, geteuid};
use tempfile::TempDir;

use crate::{Program, until};

/// The port that is part of its socket's name.
pub const POSTGRES_PORT: u16 = 5432;

/// A running Postgres, with a superuser `postgres` who needs no password. Dropping it stops it.
pub struct Postgres {
    process: Program,
    dir: TempDir,
}

impl Postgres {
    /// Makes a cluster, starts its server, and waits until it can be connected to. Fails where Postgres is not
    /// installed.
    pub fn start() -> Result<Postgres, String> {
        Postgres::start_with(&[], &[])
    }

    /// The same with these options on its command line, and these variables for the server.
    pub fn start_with(
        options: &[&str],
        variables: &[(&str, OsString)],
    ) -> Result<Postgres, String> {
        let programs = programs().ok_or("Postgres is not installed: tests/prepare installs it")?;
        let dir = TempDir::with_prefix("postgres-").map_err(|error| error.to_string())?;
        // The server refuses to run as root.
        let user = match geteuid().is_root() {
            true => Some(User::from_name("postgres").ok().flatten().ok_or("no user postgres")?),
            false => None,
        };
        if let Some(user) = &user {
            let (uid, gid) = (user.uid.as_raw(), user.gid.as_raw());
            chown(dir.path(), Some(uid), Some(gid)).map_err(|error| error.to_string())?;
        }
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(dir.path(), open).map_err(|error| error.to_string())?;
        let command = |program: &str| {
            let mut command = Command::new(programs.join(program));
            if let Some(user) = &user {
                command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
            }
            command.current_dir(dir.path()).stdin(Stdio::null());
            command
        };
        let log = File::create(dir.path().join("postgres.log")).expect("the folder is ours");
        let log = || log.try_clone().expect("a file can be used twice");
        let data = dir.path().join("data");
        let made = command("initdb")
            .args(["--auth", "trust", "--username", "postgres", "--encoding", "UTF8"])
            .args(["--locale", "C", "--no-sync", "--pgdata"])
            .arg(&data)
            .stdout(log())
            .stderr(log())
            .status();
        if !made.is_ok_and(|status| status.success()) {
            return Err(format!("initdb: {}", log_in(dir.path())));
        }
        let mut server = command("postgres");
        server.arg("-D").arg(&data).args(["-c", "listen_addresses=", "-k"]).arg(dir.path());
        server.args(options).envs(variables.iter().map(|(name, value)| (name, value)));
        let process = Program::start(server.stdout(log()).stderr(log()));
        let mut postgres = Postgres { process, dir };
        // It listens before it lets anybody in.
        until("Postgres to let us in", || {
            assert!(postgres.process.ended().is_none(), "{}", log_in(postgres.dir.path()));
            let mut asked = Command::new(programs.join("pg_isready"));
            asked.args(["--quiet", "--host"]).arg(postgres.dir.path());
            asked.status().is_ok_and(|status| status.success())
        });
        Ok(postgres)
    }

    /// The directory that has its socket.
    pub fn dir(&self) -> &Path {
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
