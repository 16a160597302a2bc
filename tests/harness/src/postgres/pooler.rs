//! PgBouncer before a Postgres.

use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use super::Postgres;
use crate::{Program, until};

/// The port that is part of its socket's name.
const PORT: u16 = 6432;

/// A running PgBouncer. Dropping it kills it.
pub struct Pooler {
    _process: Program,
    dir: TempDir,
}

impl Pooler {
    /// Starts one in that mode, as `pool_mode` has it.
    #[track_caller]
    pub fn before(server: &Postgres, mode: &str) -> Pooler {
        let dir = TempDir::with_prefix("pgbouncer-").expect("a temporary directory can be made");
        server.cluster.give(dir.path()).expect("it is ours");
        let (path, users) = (dir.path().join("pgbouncer.ini"), dir.path().join("users"));
        let (socket, own) = (server.dir().display(), dir.path().display());
        let settings = format!(
            "[databases]\n* = host={socket} port={}\n[pgbouncer]\nlisten_port = {PORT}\n\
             unix_socket_dir = {own}\nauth_type = trust\nauth_file = {}\npool_mode = {mode}\n",
            server.port(),
            users.display()
        );
        fs::write(&path, settings).expect("the directory is ours");
        fs::write(users, "\"postgres\" \"\"\n").expect("the directory is ours");
        let mut command = server.cluster.command_at(Path::new("/usr/sbin/pgbouncer"));
        command.arg("--quiet").arg(&path);
        let log = server.cluster.log_file();
        command.stdout(log.try_clone().expect("a file can be shared")).stderr(log);
        let process = Program::start(&mut command);
        let pooler = Pooler { _process: process, dir };
        until("PgBouncer to let us in", || {
            let mut asked = Command::new(server.cluster.program("pg_isready"));
            asked.args(["--quiet", "--port", &PORT.to_string(), "--host"]).arg(pooler.dir.path());
            asked.status().is_ok_and(|status| status.success())
        });
        pooler
    }

    /// Its URL as an agent takes it.
    pub fn url(&self) -> String {
        super::unix_url("postgres", self.dir.path(), PORT)
    }
}
