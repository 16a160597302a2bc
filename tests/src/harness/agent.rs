//! A real `tenured` in a directory of its own.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use nix::sys::signal::Signal;
use tempfile::TempDir;
use uuid::Uuid;

use super::{
    Client, Events, Http, MemoryGroup, PageFile, Program, ServiceManager, Session, SmallDisk,
    apart, apart_with_foreign_proc, binary, copy_for_others, eventually, seeing_its_own, skew,
};

/// Lines of the agent's log that a failed test shows.
const LOG_TAIL_LINES: usize = 60;

/// Room of an agent's directories on disks that a test can fill.
const SMALL_DISKS: [(&str, &str); 2] = [("run", "3m"), ("state", "256k")];

/// The file with the marks of an agent.
const MARKS: &str = "marks";

/// In the line that an agent prints when it serves.
const READY_LINE: &str = " ready in ";

/// How an agent is to be started.
#[derive(Default)]
pub struct Setup {
    config: Option<String>,
    upstream: Option<String>,
    open_to_all: bool,
    by: Option<fn(&Path) -> Command>,
    service_manager: Option<ServiceManager>,
    disks: Vec<(&'static str, String)>,
    group: Option<PathBuf>,
    marks: bool,
    skew_seconds: Option<f64>,
    hosts: Option<PathBuf>,
    user: Option<u32>,
    variables: Vec<(&'static str, String)>,
}

impl Setup {
    /// With this variable in its environment.
    #[must_use]
    pub fn variable(mut self, name: &'static str, value: &str) -> Setup {
        self.variables.push((name, value.to_owned()));
        self
    }

    /// With this configuration file.
    #[must_use]
    pub fn config(mut self, toml: &str) -> Setup {
        self.config = Some(toml.to_owned());
        self
    }

    /// With this upstream; without one the agent keeps everything itself.
    #[must_use]
    pub fn upstream(mut self, url: &str) -> Setup {
        self.upstream = Some(url.to_owned());
        self
    }

    /// Lets every user of the machine connect, as a service's group does for its members.
    #[must_use]
    pub fn open_to_all(mut self) -> Setup {
        self.open_to_all = true;
        self
    }

    /// With a small disk for each of its directories, so that a test can fill them. Takes root.
    #[must_use]
    pub fn small_disks(mut self) -> Setup {
        self.disks = SMALL_DISKS.map(|(name, size)| (name, size.to_owned())).into();
        self
    }

    /// In a group with a limit of memory, which its runtime directory counts to: that lies on a disk in memory
    /// of so many MiB. Takes root.
    #[must_use]
    pub fn memory(mut self, group: &MemoryGroup, runtime_mib: u64) -> Setup {
        self.group = Some(group.directory().to_owned());
        self.runtime_in_memory(runtime_mib)
    }

    /// With a runtime directory of so many MiB that lies in memory, as /run does. Takes root.
    #[must_use]
    pub fn runtime_in_memory(mut self, mib: u64) -> Setup {
        self.disks = vec![("run", format!("{mib}m"))];
        self
    }

    /// Starts it as a service of that service manager, at its socket. Takes a `tenured` that is built
    /// with the feature `systemd`.
    #[must_use]
    pub fn service_manager(mut self, service_manager: &ServiceManager) -> Setup {
        self.service_manager = Some(service_manager.clone());
        self
    }

    /// In a PID namespace of its own, as in a container: its clients have no numbers that it could
    /// see. Takes root.
    #[must_use]
    pub fn apart(mut self) -> Setup {
        self.by = Some(apart);
        self
    }

    /// The same with the /proc of the test, as in a container that was given its host's.
    #[must_use]
    pub fn apart_with_foreign_proc(mut self) -> Setup {
        self.by = Some(apart_with_foreign_proc);
        self
    }

    /// Keeping the instants of the stages that calls pass, for [`Agent::stop_for_marks`].
    #[must_use]
    pub fn marks(mut self) -> Setup {
        self.marks = true;
        self
    }

    /// With a clock on the wall that is so many seconds ahead.
    #[must_use]
    pub fn skewed(mut self, seconds: f64) -> Setup {
        self.skew_seconds = Some(seconds);
        self
    }

    /// With that file in place of /etc/hosts, for it alone. Takes root.
    #[must_use]
    pub fn hosts(mut self, file: &Path) -> Setup {
        self.hosts = Some(file.to_owned());
        self
    }

    /// As that user, whose /proc shows the user's own processes alone (`hidepid=2`). Every user may connect. Takes
    /// root.
    #[must_use]
    pub fn seeing_its_own(mut self, uid: u32) -> Setup {
        self.user = Some(uid);
        self.open_to_all()
    }

    /// Starts it and waits until it answers.
    #[track_caller]
    pub fn start(self) -> Agent {
        let dir = TempDir::with_prefix("tenured-").expect("a temporary directory can be made");
        if let Some(config) = &self.config {
            fs::write(dir.path().join("tenured.toml"), config).expect("the directory is ours");
        }
        let mount = |(name, size): &(_, String)| SmallDisk::mount(dir.path().join(name), size);
        let disks = self.disks.iter().map(mount).collect();
        if self.user.is_some() {
            chown(dir.path(), self.user, self.user).expect("this takes root");
        }
        let process = spawn(dir.path(), &self);
        let mut agent = Agent { setup: self, process, disks, dir, starts: 0 };
        agent.wait_ready();
        agent
    }
}

fn with_hosts(hosts: &Path, program: &Path) -> Command {
    let mut command = Command::new("unshare");
    let script = "mount --bind \"$1\" /etc/hosts && shift && exec \"$@\"";
    command.args(["--mount", "sh", "-c", script, "sh"]).arg(hosts).arg(program);
    command
}

fn spawn(dir: &Path, setup: &Setup) -> Program {
    let log = File::options()
        .create(true)
        .append(true)
        .open(dir.join("agent.log"))
        .expect("the directory is ours");
    let program = match setup.user {
        Some(_) => copy_for_others("tenured", dir),
        None => binary("tenured"),
    };
    let by = |program: &Path| match (setup.by, &setup.group, &setup.hosts, setup.user) {
        (Some(by), ..) => by(program),
        (_, Some(group), ..) => MemoryGroup::command(group, program),
        (_, _, Some(hosts), _) => with_hosts(hosts, program),
        (.., Some(user)) => seeing_its_own(user, program),
        _ => Command::new(program),
    };
    let mut command = match &setup.service_manager {
        Some(service_manager) => service_manager.command(by, &program),
        None => by(&program),
    };
    if setup.service_manager.is_none() {
        command.stdin(Stdio::null()).env_remove("NOTIFY_SOCKET");
    }
    let level = std::env::var("TENURED_LOG").unwrap_or_else(|_| "info".to_owned());
    command
        .arg("agent")
        .arg("--socket")
        .arg(socket(dir, setup))
        .arg("--state-dir")
        .arg(dir.join("state"))
        .arg("--runtime-dir")
        .arg(dir.join("run"))
        .args(["--upstream", setup.upstream.as_deref().unwrap_or("embedded:"), "--log", &level])
        .stdout(log.try_clone().expect("a file can be shared"))
        .stderr(log);
    // A proxy of whoever runs the tests would know no test's gateway.
    for name in ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"] {
        command.env_remove(name);
    }
    command.envs(setup.variables.iter().map(|(name, value)| (*name, value)));
    if setup.marks {
        command.env("TENURE_BENCH_MARKS", dir.join(MARKS));
    }
    if let Some(seconds) = setup.skew_seconds {
        skew(&mut command, seconds);
    }
    let config = dir.join("tenured.toml");
    if config.exists() {
        command.arg("--config").arg(config);
    }
    match setup.by {
        Some(_) => Program::start_apart(&mut command),
        None => Program::start(&mut command),
    }
}

fn socket(dir: &Path, setup: &Setup) -> PathBuf {
    setup.service_manager.as_ref().map_or_else(|| dir.join("api.sock"), ServiceManager::socket)
}

/// The instant at which a call has passed a stage.
#[derive(Debug, Clone)]
pub struct Mark {
    pub stage: String,
    /// CLOCK_BOOTTIME, ns.
    pub at_ns: u64,
}

/// A running agent. Dropping it kills it and removes its directory; a test that panics shows the
/// end of its log.
pub struct Agent {
    setup: Setup,
    process: Program,
    disks: Vec<SmallDisk>,
    dir: TempDir,
    starts: usize,
}

impl Agent {
    /// How an agent is to be started.
    pub fn setup() -> Setup {
        Setup::default()
    }

    /// Starts one with the defaults.
    #[track_caller]
    pub fn start() -> Agent {
        Setup::default().start()
    }

    /// Its socket.
    pub fn socket(&self) -> PathBuf {
        socket(self.dir.path(), &self.setup)
    }

    /// The directory that holds everything of this agent; ends with it.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Its runtime directory.
    pub fn runtime_dir(&self) -> PathBuf {
        self.dir.path().join("run")
    }

    /// Its journal.
    pub fn journal(&self) -> PathBuf {
        self.runtime_dir().join("journal.log")
    }

    /// The small disks of its runtime and its state directory.
    pub fn disks(&self) -> [&SmallDisk; 2] {
        let [runtime, state] = &self.disks[..] else { panic!("it has no small disks") };
        [runtime, state]
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// A new connection to it.
    pub fn http(&self) -> Http {
        Http::new(&self.socket())
    }

    /// A new event stream.
    #[track_caller]
    pub fn events(&self, session: Uuid) -> Events {
        Events::open(&self.socket(), session)
    }

    /// The page of a session.
    #[track_caller]
    pub fn page(&self, session: &Session) -> PageFile {
        PageFile::open(Path::new(&session.page))
    }

    /// All pages that exist.
    pub fn pages(&self) -> Vec<PathBuf> {
        let pages = fs::read_dir(self.runtime_dir().join("pages"));
        pages.into_iter().flatten().flatten().map(|entry| entry.path()).collect()
    }

    /// Everything it logged.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("agent.log")).unwrap_or_default()
    }

    /// SIGKILL, and waits until it is gone.
    #[track_caller]
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// SIGTERM, and waits until it has exited.
    #[track_caller]
    pub fn stop(&mut self) -> ExitStatus {
        self.process.signal(Signal::SIGTERM);
        self.process.wait()
    }

    /// Stops it. The stages that its calls have passed, in the order of their instants.
    #[track_caller]
    pub fn stop_for_marks(&mut self) -> Vec<Mark> {
        self.stop();
        let marks = fs::read_to_string(self.dir.path().join(MARKS)).expect("it keeps marks");
        let mark = |line: &str| {
            let (stage, at) = line.split_once(' ')?;
            Some(Mark { stage: stage.to_owned(), at_ns: at.parse().ok()? })
        };
        let mut marks: Vec<_> = marks.lines().filter_map(mark).collect();
        marks.sort_by_key(|mark| mark.at_ns);
        marks
    }

    /// Sends a signal.
    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Waits until it has exited.
    #[track_caller]
    pub fn wait_exit(&mut self) -> ExitStatus {
        self.process.wait()
    }

    /// Stops all its threads.
    #[track_caller]
    pub fn pause(&mut self) {
        self.process.pause();
    }

    /// Lets it go on.
    #[track_caller]
    pub fn resume(&self) {
        self.process.resume();
    }

    /// Removes what the agent knows of sessions and holds, as a lost runtime directory would.
    pub fn delete_journal(&self) {
        fs::remove_file(self.journal()).expect("the agent wrote a journal");
    }

    /// Starts it again in the same place, and waits until it answers.
    #[track_caller]
    pub fn start_again(&mut self) {
        assert!(self.process.ended().is_some(), "the earlier one is still running");
        self.process = spawn(self.dir.path(), &self.setup);
        self.wait_ready();
    }

    /// Starts the next one in the same place while this one is on its way out, and waits until that
    /// has ended and the next one answers. How the earlier one ended.
    #[track_caller]
    pub fn start_next(&mut self) -> ExitStatus {
        let next = spawn(self.dir.path(), &self.setup);
        let status = std::mem::replace(&mut self.process, next).wait();
        self.wait_ready();
        status
    }

    #[track_caller]
    fn wait_ready(&mut self) {
        let socket = self.socket();
        self.starts += 1;
        let (process, setup, dir, starts) =
            (&mut self.process, &self.setup, &self.dir, &self.starts);
        eventually("the agent to answer", || {
            if let Some(status) = process.ended() {
                panic!("the agent ended while starting: {status}");
            }
            // A service manager's socket lets clients wait, whether there will be an agent or not.
            if setup.service_manager.is_some() {
                let log = fs::read_to_string(dir.path().join("agent.log")).unwrap_or_default();
                assert!(
                    !log.contains("does not speak with systemd"),
                    "this takes `cargo build --workspace --bins --features tenured/systemd,tenure-cluster-simulation/run`"
                );
                if log.matches(READY_LINE).count() < *starts {
                    return None;
                }
            }
            let answer = Http::new(&socket).try_call("GET", "/healthz", b"").ok()?;
            (answer.status == 200).then_some(())
        });
        if self.setup.open_to_all {
            let open = |path: &Path, mode| {
                fs::set_permissions(path, Permissions::from_mode(mode)).expect("it is ours");
            };
            open(self.dir.path(), 0o755);
            open(&socket, 0o666);
        }
    }

    /// The numbers of sessions, holds and waiters.
    #[track_caller]
    pub fn counts(&self) -> (u64, u64, u64) {
        let agent = self.http().status().agent;
        (agent.sessions, agent.holds, agent.waiters)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            let tail = &lines[lines.len().saturating_sub(LOG_TAIL_LINES)..];
            eprintln!("--- end of the agent's log\n{}\n---", tail.join("\n"));
        }
    }
}
