//! The daemon as a person or a service manager meets it: arguments, exit codes, signals.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

struct Room {
    dir: tempfile::TempDir,
}

impl Room {
    fn new() -> Room {
        let room = Room { dir: tempfile::tempdir().unwrap() };
        room.configure("");
        room
    }

    fn configure(&self, text: &str) {
        std::fs::write(self.path("tenured.toml"), text).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tenured"));
        command
            .env_clear()
            .env("TENURED_RUNTIME_DIR", self.path("run"))
            .env("TENURED_STATE_DIR", self.path("state"))
            .env("TENURED_CONFIG", self.path("tenured.toml"))
            .args(arguments);
        command
    }

    fn run(&self, arguments: &[&str]) -> (i32, String, String) {
        let Output { status, stdout, stderr } = self.command(arguments).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (status.code().unwrap(), text(stdout), text(stderr))
    }

    fn start(&self) -> Agent {
        self.start_with(&[])
    }

    fn start_with(&self, variables: &[(&str, &str)]) -> Agent {
        let mut command = self.command(&[]);
        command.envs(variables.iter().copied()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
        // The log of an agent without a terminal is JSON, and so is this.
        let mut message = || {
            let line = said.next().unwrap().unwrap();
            let line: serde_json::Value = serde_json::from_str(&line).unwrap();
            line["message"].as_str().unwrap().to_owned()
        };
        let (ready, hint) = (message(), message());
        Agent { child, ready, hint, log }
    }
}

struct Agent {
    child: Child,
    ready: String,
    hint: String,
    log: BufReader<ChildStderr>,
}

impl Agent {
    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
    }

    /// Reads the log up to a line with this message.
    fn logged(&mut self, message: &str) -> serde_json::Value {
        loop {
            let mut line = String::new();
            assert_ne!(self.log.read_line(&mut line).unwrap(), 0, "{message:?} is not logged");
            let line: serde_json::Value = serde_json::from_str(&line).unwrap();
            if line["message"].as_str().unwrap().starts_with(message) {
                return line;
            }
        }
    }

    #[expect(clippy::disallowed_methods, reason = "only for how long the test is patient")]
    fn exit_code(&mut self) -> Option<i32> {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < deadline, "the agent does not end");
            std::thread::yield_now();
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn exit_codes() {
    let room = Room::new();
    assert_eq!(room.run(&["--version"]), (0, "tenured 0.1.0\n".into(), String::new()));
    assert_eq!(room.run(&["--help"]).0, 0);
    for wrong in [&["--sokcet", "/s"][..], &["serve"], &["check-config", "x"]] {
        assert_eq!(room.run(wrong).0, 64, "{wrong:?}");
    }
    let (code, _, stderr) = room.run(&["--upstream", "hunter2://h/0"]);
    assert_eq!(code, 78);
    assert_eq!(
        stderr,
        "tenured: --upstream: upstream = ***: not the URL of an upstream; use \"embedded:\", or a Redis \
         such as \"redis://127.0.0.1:6379/0\", or a Postgres such as \"postgres://tenure@127.0.0.1/tenure\", or a \
         gateway such as \"https://gateway.example\", or several with one store, as \
         \"https://a.example,b.example\"\n"
    );
    let (code, _, stderr) = room.run(&["--config", "/no/such/file", "check-config"]);
    assert_eq!(code, 78);
    let expected =
        "tenured: cannot read configuration file /no/such/file: No such file or directory";
    assert!(stderr.starts_with(expected), "{stderr}");
    let long = format!("/tmp/{}", "x".repeat(200));
    let (code, _, stderr) = room.run(&["--socket", &long]);
    assert_eq!(code, 69, "{stderr}");
    assert!(stderr.contains("has 205 bytes, at most"), "{stderr}");
}

#[test]
fn check_config_prints_what_is_in_effect() {
    let room = Room::new();
    let (code, stdout, stderr) = room.run(&["check-config", "--log", "debug"]);
    assert_eq!((code, stderr.as_str()), (0, ""));
    assert!(stdout.contains("log = \"debug\"  # --log\n"), "{stdout}");
    let leader = "[leader]\nttl = \"30s\"  # default\nbeat = \"10s\"  # default\n";
    assert!(stdout.contains(leader), "{stdout}");
    assert!(!room.path("run").exists(), "checking changes nothing");
}

#[test]
fn starts_stops_and_restarts() {
    let room = Room::new();
    let socket = room.path("run/api.sock");
    let mut agent = room.start();
    let shown = socket.display();
    assert!(agent.ready.starts_with("tenured 0.1.0 ready in "), "{}", agent.ready);
    let rest = format!(" ms — socket {shown}, upstream embedded, guarantee: one host");
    assert!(agent.ready.ends_with(&rest), "{}", agent.ready);
    assert_eq!(agent.hint, format!("try: tenure --socket {shown} lock hello -- sleep 5"));
    assert_eq!(room.path("state").metadata().unwrap().mode() & 0o7777, 0o700);

    let (code, _, stderr) = room.run(&[]);
    assert_eq!(code, 69);
    let pid = agent.child.id();
    assert!(
        stderr.contains(&format!(
            "another agent (pid {pid}) uses {}; give this one --runtime-dir and --state-dir of its \
             own, or stop that one (kill {pid})",
            room.path("run").display()
        )),
        "{stderr}"
    );

    agent.signal(Signal::SIGUSR2);
    assert_eq!(agent.exit_code(), Some(0));
    assert!(socket.exists(), "left for the next agent");

    let mut agent = room.start();
    agent.signal(Signal::SIGTERM);
    assert_eq!(agent.exit_code(), Some(0));
    assert!(!socket.exists());

    let mut agent = room.start();
    agent.signal(Signal::SIGKILL);
    assert_eq!(agent.exit_code(), None);
    let mut agent = room.start();
    agent.signal(Signal::SIGINT);
    assert_eq!(agent.exit_code(), Some(0));
}

#[test]
fn speaks_with_systemd_or_says_that_it_cannot() {
    let room = Room::new();
    let notify = room.path("notify");
    let socket = std::os::unix::net::UnixDatagram::bind(&notify).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut agent = room.start_with(&[("NOTIFY_SOCKET", notify.to_str().unwrap())]);
    if cfg!(feature = "systemd") {
        let mut message = [0; 64];
        let length = socket.recv(&mut message).unwrap();
        assert_eq!(&message[..length], b"READY=1");
    } else {
        let said = agent.logged("systemd set NOTIFY_SOCKET, but this build does not speak with");
        assert_eq!(said["level"], "WARN");
    }
    agent.signal(Signal::SIGTERM);
    assert_eq!(agent.exit_code(), Some(0));
}

#[test]
#[cfg(feature = "systemd")]
fn refuses_what_systemd_would_not_hand_over() {
    let room = Room::new();
    let run = |variables: &str| {
        let script = format!("{variables} exec {} 3</dev/null", env!("CARGO_BIN_EXE_tenured"));
        // Only the process itself knows its number.
        let mut shell = Command::new("sh");
        shell.args(["-c", &script]).env_clear();
        shell.envs(room.command(&[]).get_envs().filter_map(|(name, value)| Some((name, value?))));
        let Output { status, stderr, .. } = shell.output().unwrap();
        (status.code().unwrap(), String::from_utf8(stderr).unwrap())
    };
    let (code, stderr) = run("LISTEN_FDS=3 LISTEN_PID=$$");
    assert_eq!(code, 69);
    assert!(stderr.contains("LISTEN_FDS and LISTEN_FDNAMES are wrong; start"), "{stderr}");
    let (code, stderr) = run("WATCHDOG_USEC=soon");
    assert_eq!(code, 69);
    assert!(stderr.contains("WATCHDOG_USEC and WATCHDOG_PID are wrong; start"), "{stderr}");
    let (code, stderr) = run("LISTEN_FDS=1 LISTEN_FDNAMES=api LISTEN_PID=$$");
    assert_eq!(code, 69);
    assert!(stderr.contains("not a listening Unix stream socket"), "{stderr}");
}

#[test]
fn reloads_what_it_can() {
    let room = Room::new();
    let mut agent = room.start();
    room.configure("log = \"debug\"\n[leader]\nttl = \"40s\"\n[[allow]]\nuid = 0\n");
    agent.signal(Signal::SIGHUP);
    let log = agent.logged("setting changed");
    assert_eq!((&log["key"], &log["old"]), (&"log".into(), &"\"info\"".into()));
    assert_eq!(log["new"], "\"debug\"");
    let allow = agent.logged("setting changed");
    assert_eq!((&allow["key"], &allow["new"]), (&"allow".into(), &"1 rule".into()));
    let ttl = agent.logged("setting not changed: it takes a restart");
    assert_eq!((&ttl["level"], &ttl["key"]), (&"WARN".into(), &"leader.ttl".into()));
    assert_eq!((&ttl["old"], &ttl["new"]), (&"\"30s\"".into(), &"\"40s\"".into()));
    let summary = agent.logged("configuration reloaded");
    assert_eq!(
        (&summary["changed"], &summary["restart"]),
        (&"log, allow".into(), &"leader.ttl".into())
    );
    assert_eq!(summary["unchanged"], 63);

    // A slip changes nothing.
    room.configure("[leader]\ntll = \"40s\"\n");
    agent.signal(Signal::SIGHUP);
    let refused = agent.logged("configuration not reloaded");
    let message = refused["message"].as_str().unwrap();
    let rule = "tenured.toml:2: there is no key leader.tll; did you mean leader.ttl?";
    assert!(message.ends_with(rule), "{message}");

    agent.signal(Signal::SIGTERM);
    assert_eq!(agent.exit_code(), Some(0));
    agent.logged("stopped");
}
