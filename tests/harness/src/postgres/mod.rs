//! A Postgres of a test's own.

mod cluster;
mod pooler;
mod setup;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::{Program, runs, until};
use cluster::Cluster;
pub use pooler::Pooler;
pub use setup::PostgresSetup;
use setup::TLS_FILES;

/// The port that is part of its socket's name, unless it listens on TCP as well.
pub const POSTGRES_PORT: u16 = 5432;
/// Lines of the server's log that a failed test shows.
const LOG_TAIL_LINES: usize = 30;

/// A running Postgres, with a superuser `postgres` who needs no password. Dropping it stops it; a test that panics
/// shows the end of its log.
pub struct Postgres {
    process: Program,
    setup: PostgresSetup,
    cluster: Cluster,
}

impl Postgres {
    /// How a server is to be started.
    pub fn setup() -> PostgresSetup {
        PostgresSetup::fast()
    }

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
        PostgresSetup::plain(options, variables).try_start()
    }

    /// The directory that has its socket.
    pub fn dir(&self) -> &Path {
        self.cluster.path()
    }

    /// The port that is part of its socket's name, and its TCP port if it has one.
    pub fn port(&self) -> u16 {
        self.cluster.port
    }

    /// Its socket.
    pub fn socket(&self) -> PathBuf {
        self.dir().join(format!(".s.PGSQL.{}", self.port()))
    }

    /// Its URL as an agent takes it.
    pub fn url(&self) -> String {
        self.url_as("postgres")
    }

    /// The same for another role.
    pub fn url_as(&self, role: &str) -> String {
        unix_url(role, self.dir(), self.port())
    }

    /// Its URL over TCP; `login` is the role, with its password if it has one.
    pub fn tcp_url(&self, login: &str, parameters: &str) -> String {
        format!("postgres://{login}@127.0.0.1:{}/postgres{parameters}", self.port())
    }

    /// Its process.
    pub fn process(&mut self) -> &mut Program {
        &mut self.process
    }

    /// One or several statements; each row is a line, its columns are parted by `|`.
    pub fn try_sql(&self, text: &str) -> Result<String, String> {
        let mut psql = self.psql("postgres");
        let out = psql.args(["-c", text]).output().map_err(|error| error.to_string())?;
        match out.status.success() {
            true => Ok(String::from_utf8_lossy(&out.stdout).trim_end().to_owned()),
            false => Err(String::from_utf8_lossy(&out.stderr).into_owned()),
        }
    }

    /// The same, which must succeed.
    #[track_caller]
    pub fn sql(&self, text: &str) -> String {
        self.try_sql(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    /// A number, which must be there.
    #[track_caller]
    pub fn count(&self, text: &str) -> u64 {
        self.sql(text).parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    /// The client program of that role, without settings of whoever runs the test.
    pub fn psql(&self, role: &str) -> Command {
        let mut psql = Command::new(self.cluster.program("psql"));
        psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", "postgres"]);
        psql.arg("-h").arg(self.dir()).arg("-p").arg(self.port().to_string()).args(["-U", role]);
        psql.stdin(Stdio::null());
        psql
    }

    /// Runs statements in a transaction that stays open until what is returned is dropped.
    #[track_caller]
    pub fn hold(&self, statements: &str) -> OpenTransaction {
        self.try_hold(statements).unwrap_or_else(|| panic!("refused: {statements}"))
    }

    /// The same; `None` if the server lets nobody in or refuses a statement.
    pub fn try_hold(&self, statements: &str) -> Option<OpenTransaction> {
        let mut psql = self.psql("postgres");
        let child = psql.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("psql runs");
        OpenTransaction::begin(child, statements)
    }

    /// Takes these lines for the whole of pg_hba.conf.
    #[track_caller]
    pub fn let_in(&self, lines: &str) {
        let everybody = "local all postgres trust\n";
        fs::write(self.cluster.data().join("pg_hba.conf"), format!("{everybody}{lines}\n"))
            .expect("it is a file of the test's");
        self.sql("select pg_reload_conf()");
    }

    /// Shows this certificate, and takes those of clients of the authorities in this file, from the next connection
    /// on. It was started with others.
    #[track_caller]
    pub fn change_tls(&self, certificate: &Path, key: &Path, clients: &Path) {
        for (path, name) in [certificate, key, clients].into_iter().zip(TLS_FILES) {
            self.cluster.take(path, name).expect("the folder is ours");
        }
        let loaded = || self.sql("select pg_conf_load_time()");
        let before = loaded();
        self.sql("select pg_reload_conf()");
        until("Postgres to read its files", || loaded() != before);
    }

    /// Everything it logged.
    pub fn log(&self) -> String {
        self.cluster.log()
    }

    /// Writes to its disk until there is no room. Takes root, and [`PostgresSetup::disk`].
    #[track_caller]
    pub fn fill_disk(&self) {
        let mut file = fs::File::create(self.ballast()).expect("root makes files");
        while std::io::Write::write_all(&mut file, &[0x5a; 4096]).is_ok() {}
    }

    /// Makes room again.
    #[track_caller]
    pub fn empty_disk(&self) {
        fs::remove_file(self.ballast()).expect("it was filled");
    }

    fn ballast(&self) -> PathBuf {
        self.cluster.data().join("ballast")
    }

    /// The numbers of all its processes.
    pub fn pids(&self) -> Vec<Pid> {
        let own = self.process.pid();
        let children = fs::read_to_string(format!("/proc/{own}/task/{own}/children"));
        let children = children.unwrap_or_default();
        let all = children.split_whitespace().filter_map(|pid| pid.parse().ok());
        let own = i32::try_from(own).expect("process numbers are small");
        std::iter::once(own).chain(all).map(Pid::from_raw).collect()
    }

    /// Stops all its processes.
    #[track_caller]
    pub fn pause(&mut self) {
        // First the one that would start others.
        self.process.pause();
        for pid in self.pids() {
            // Fails for one that has just ended.
            let _ = kill(pid, Signal::SIGSTOP);
        }
    }

    /// Lets them go on.
    pub fn resume(&self) {
        for pid in self.pids() {
            let _ = kill(pid, Signal::SIGCONT);
        }
    }

    /// SIGKILL of the process that starts all others, and waits until those have noticed.
    #[track_caller]
    pub fn kill(&mut self) {
        let pids = self.pids();
        self.process.kill();
        until("every process of Postgres to end", || !pids.iter().any(|pid| runs(*pid)));
    }

    /// Starts it again in the same place, and waits until it can be connected to.
    #[track_caller]
    pub fn start_again(&mut self) {
        assert!(self.process.ended().is_some(), "the earlier one is still running");
        self.process = self.setup.spawn(&self.cluster);
        let ready = self.cluster.wait_ready(&mut self.process);
        ready.unwrap_or_else(|error| panic!("{error}"));
    }

    /// A standby that follows this one by that name, and that is started when it has everything.
    #[track_caller]
    pub fn standby(&self, name: &str) -> Postgres {
        let cluster = self.cluster.copy_of_running(name);
        let cluster = cluster.unwrap_or_else(|error| panic!("{error}"));
        let setup = self.setup.clone();
        setup.start_in(cluster).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Makes a standby the server that takes changes.
    #[track_caller]
    pub fn promote(&self) {
        assert_eq!(self.sql("select pg_promote()"), "t", "it is promoted");
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            let tail = &lines[lines.len().saturating_sub(LOG_TAIL_LINES)..];
            eprintln!("--- end of the log of Postgres\n{}\n---", tail.join("\n"));
        }
        // Immediate shutdown. Killed outright, it would leave its shared memory behind.
        self.resume();
        self.process.signal(Signal::SIGQUIT);
        self.process.wait();
    }
}

/// A transaction that somebody else has open. Dropping it ends its connection.
pub struct OpenTransaction {
    psql: Child,
}

impl OpenTransaction {
    fn begin(psql: Child, statements: &str) -> Option<OpenTransaction> {
        use std::io::{BufRead, BufReader, Write};
        let mut open = OpenTransaction { psql };
        let stdin = open.psql.stdin.as_mut().expect("it is a pipe");
        // Fails for one that was not let in, and has ended.
        write!(stdin, "begin;\n{statements};\n\\echo is open\n").ok()?;
        stdin.flush().ok()?;
        let stdout = open.psql.stdout.as_mut().expect("it is a pipe");
        let opened = BufReader::new(stdout).lines().map_while(Result::ok);
        opened.into_iter().any(|line| line == "is open").then_some(open)
    }
}

impl Drop for OpenTransaction {
    fn drop(&mut self) {
        // Fail only when it has ended.
        let _ = self.psql.kill();
        let _ = self.psql.wait();
    }
}

/// The URL of a Postgres whose socket is in that directory.
pub(crate) fn unix_url(role: &str, dir: &Path, port: u16) -> String {
    format!("postgres://{role}@/postgres?host={}&port={port}", dir.display())
}
