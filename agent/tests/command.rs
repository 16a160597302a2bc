//! The daemon as a person or a service manager meets it: arguments, exit codes, signals.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

struct Room {
    dir: tempfile::TempDir,
}

impl Room {
    fn new() -> Room {
        Room { dir: tempfile::tempdir().unwrap() }
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
            .args(["--config", "/dev/null"])
            .args(arguments);
        command
    }

    fn run(&self, arguments: &[&str]) -> (i32, String, String) {
        let Output { status, stdout, stderr } = self.command(arguments).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (status.code().unwrap(), text(stdout), text(stderr))
    }

    fn start(&self) -> Agent {
        let mut child =
            self.command(&[]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
        let ready = said.next().unwrap().unwrap();
        let hint = said.next().unwrap().unwrap();
        Agent { child, ready, hint }
    }
}

struct Agent {
    child: Child,
    ready: String,
    hint: String,
}

impl Agent {
    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
    }

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
    for wrong in [&["--sokcet", "/s"][..], &["gateway"], &["check-config", "x"]] {
        assert_eq!(room.run(wrong).0, 64, "{wrong:?}");
    }
    let (code, _, stderr) = room.run(&["--upstream", "redis://:hunter2@h/0"]);
    assert_eq!(code, 78);
    assert_eq!(
        stderr,
        "tenured: --upstream: upstream = ***: redis: upstreams are not supported; this version keeps \
         everything itself: use \"embedded:\"\n"
    );
    let (code, _, stderr) = room.run(&["--config", "/no/such/file", "check-config"]);
    assert_eq!(code, 64, "a flag given twice: {stderr}");
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
    assert!(stdout.contains("[leader]\nttl = \"30s\"\nbeat = \"10s\"\n"), "{stdout}");
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
    assert_eq!(agent.hint, format!("try: curl --unix-socket {shown} http://localhost/v1/status"));
    assert_eq!(room.path("state").metadata().unwrap().mode() & 0o7777, 0o700);

    let (code, _, stderr) = room.run(&[]);
    assert_eq!(code, 69);
    let pid = agent.child.id();
    assert!(
        stderr.contains(&format!("another agent (pid {pid}) serves {shown}; stop it (kill {pid})")),
        "{stderr}"
    );

    agent.signal(Signal::SIGHUP);
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
