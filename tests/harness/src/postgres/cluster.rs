//! The files of a server.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::unistd::{User, geteuid};
use tempfile::TempDir;

use crate::{Program, eventually};

/// A directory with a cluster, its log and its socket.
pub(super) struct Cluster {
    pub(super) port: u16,
    programs: PathBuf,
    /// The server refuses to run as root.
    user: Option<User>,
    has_disk: bool,
    dir: TempDir,
}

impl Cluster {
    /// Makes one with nothing in it.
    pub(super) fn make(port: u16, disk: Option<&str>) -> Result<Cluster, String> {
        let cluster = Cluster::directory(port, disk)?;
        let mut initdb = cluster.command("initdb");
        initdb.args(["--auth", "trust", "--username", "postgres", "--encoding", "UTF8"]);
        initdb.args(["--locale", "C", "--no-sync", "--pgdata"]).arg(cluster.data());
        cluster.run(&mut initdb)?;
        Ok(cluster)
    }

    /// Makes a copy of the one of a running server, which follows that by this name.
    pub(super) fn copy_of_running(&self, name: &str) -> Result<Cluster, String> {
        let copy = Cluster::directory(self.port, None)?;
        let mut backup = copy.command("pg_basebackup");
        backup.args(["--checkpoint=fast", "--no-sync", "--write-recovery-conf", "--dbname"]);
        let dir = self.path().display();
        backup.arg(format!("host={dir} port={} user=postgres application_name={name}", self.port));
        backup.arg("--pgdata").arg(copy.data());
        copy.run(&mut backup)?;
        Ok(copy)
    }

    fn directory(port: u16, disk: Option<&str>) -> Result<Cluster, String> {
        let programs = programs().ok_or("Postgres is not installed: tests/prepare installs it")?;
        let dir = TempDir::with_prefix("postgres-").map_err(|error| error.to_string())?;
        let user = match geteuid().is_root() {
            true => Some(User::from_name("postgres").ok().flatten().ok_or("no user postgres")?),
            false => None,
        };
        let cluster = Cluster { port, programs, user, has_disk: disk.is_some(), dir };
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(cluster.path(), open).map_err(|error| error.to_string())?;
        if let Some(size) = disk {
            fs::create_dir(cluster.data()).map_err(|error| error.to_string())?;
            let mut mount = Command::new("mount");
            mount.args(["-t", "tmpfs", "-o", &format!("size={size},mode=0700"), "tmpfs"]);
            cluster.run(mount.arg(cluster.data()))?;
        }
        cluster.give(cluster.path())?;
        if disk.is_some() {
            cluster.give(&cluster.data())?;
        }
        Ok(cluster)
    }

    /// Gives a file to the server's user.
    pub(super) fn give(&self, path: &Path) -> Result<(), String> {
        let Some(user) = &self.user else { return Ok(()) };
        let (uid, gid) = (user.uid.as_raw(), user.gid.as_raw());
        chown(path, Some(uid), Some(gid)).map_err(|error| error.to_string())
    }

    /// Takes a copy of a file that nobody else may read.
    pub(super) fn take(&self, path: &Path, name: &str) -> Result<(), String> {
        let copy = self.path().join(name);
        fs::copy(path, &copy).map_err(|error| error.to_string())?;
        let private = fs::Permissions::from_mode(0o600);
        fs::set_permissions(&copy, private).map_err(|error| error.to_string())?;
        self.give(&copy)
    }

    fn run(&self, command: &mut Command) -> Result<(), String> {
        let program = command.get_program().to_owned();
        let done = command.stdin(Stdio::null()).stdout(self.log_file()).stderr(self.log_file());
        match done.status().is_ok_and(|status| status.success()) {
            true => Ok(()),
            false => Err(format!("{}: {}", program.display(), self.log())),
        }
    }

    pub(super) fn wait_ready(&self, process: &mut Program) -> Result<(), String> {
        // It listens before it lets anybody in.
        eventually("Postgres to let us in", || {
            if process.ended().is_some() {
                return Some(Err(self.log()));
            }
            let mut asked = Command::new(self.program("pg_isready"));
            asked.args(["--quiet", "--port", &self.port.to_string(), "--host"]).arg(self.path());
            asked.status().is_ok_and(|status| status.success()).then_some(Ok(()))
        })
    }

    /// A program of Postgres, as the user that has the cluster.
    pub(super) fn command(&self, program: &str) -> Command {
        self.command_at(&self.program(program))
    }

    /// The same for any program.
    pub(super) fn command_at(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        if let Some(user) = &self.user {
            command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
        }
        command.current_dir(self.path()).stdin(Stdio::null());
        command
    }

    pub(super) fn program(&self, name: &str) -> PathBuf {
        self.programs.join(name)
    }

    pub(super) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(super) fn data(&self) -> PathBuf {
        self.path().join("data")
    }

    pub(super) fn log_file(&self) -> File {
        let path = self.path().join("postgres.log");
        File::options().create(true).append(true).open(path).expect("the folder is ours")
    }

    pub(super) fn log(&self) -> String {
        fs::read_to_string(self.path().join("postgres.log")).unwrap_or_default()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.has_disk {
            // Files in use go away with their last user.
            let _ = Command::new("umount").arg("-l").arg(self.data()).status();
        }
    }
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
