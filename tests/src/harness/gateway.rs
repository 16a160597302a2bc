//! A real `tenured-gateway` in a directory of its own.

use std::fs::{self, File, Permissions};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output, Stdio};

use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::TempDir;

use super::one_store::{self, CLUSTER, EMBEDDED};
use super::{Agent, ChangeStream, Client, Program, Skew, binary, eventually, free_port};

/// Lines of the gateway's log that a failed test shows.
const LOG_TAIL_LINES: usize = 60;

/// A running gateway. Dropping it kills it and removes its directory; a test that panics shows the end of
/// its log.
pub struct Gateway {
    process: Program,
    upstream: String,
    args: Vec<String>,
    port: u16,
    clock: Option<Skew>,
    dir: TempDir,
}

/// The header of those who call it by a name that it has.
const HOST: &str = "Host: localhost\r\n";
/// The line that says that a gateway serves.
const READY: &str = "tenured-gateway: ready at";

impl Gateway {
    /// Starts one with this store, and waits until it answers.
    #[track_caller]
    pub fn start(upstream: &str) -> Gateway {
        Gateway::start_with(upstream, &[])
    }

    /// The same with keys, which everybody is then asked for.
    #[track_caller]
    pub fn start_with(upstream: &str, keys: &[&Key]) -> Gateway {
        Gateway::start_in(upstream, keys, false, &[])
    }

    /// The same with an audit trail.
    #[track_caller]
    pub fn start_audited(upstream: &str, keys: &[&Key]) -> Gateway {
        Gateway::start_in(upstream, keys, true, &[])
    }

    /// The same with more arguments.
    #[track_caller]
    pub fn start_by(upstream: &str, keys: &[&Key], args: &[String]) -> Gateway {
        Gateway::start_in(upstream, keys, false, args)
    }

    #[track_caller]
    fn start_in(upstream: &str, keys: &[&Key], audits: bool, args: &[String]) -> Gateway {
        let dir = directory();
        if !keys.is_empty() {
            write_keys(dir.path(), keys);
        }
        let port = free_port();
        let args = match audits {
            true => [args, &[format!("--audit={}", trail(dir.path()).display())]].concat(),
            false => args.to_vec(),
        };
        Gateway::start_at(upstream, args, port, None, dir)
    }

    /// Starts one whose clock on the wall is so many seconds ahead, and can be set.
    #[track_caller]
    pub(super) fn start_with_clock(upstream: &str, args: &[String], ahead_s: f64) -> Gateway {
        let dir = directory();
        let clock = Some(Skew::new(dir.path(), ahead_s));
        Gateway::start_at(upstream, args.to_vec(), free_port(), clock, dir)
    }

    #[track_caller]
    fn start_at(
        upstream: &str,
        mut args: Vec<String>,
        port: u16,
        clock: Option<Skew>,
        dir: TempDir,
    ) -> Gateway {
        let begins_cluster = upstream == EMBEDDED && one_store::is_cluster();
        let upstream = match begins_cluster {
            true => {
                args.push(one_store::listen());
                CLUSTER
            }
            false => upstream,
        };
        let process = spawn(dir.path(), upstream, &args, port, clock.as_ref());
        let mut gateway =
            Gateway { process, upstream: upstream.to_owned(), args, port, clock, dir };
        gateway.wait_ready(1);
        if begins_cluster {
            gateway.cluster(&["init"]);
        }
        gateway
    }

    /// Sets the clock that it was started with.
    #[track_caller]
    pub(super) fn set_clock(&self, ahead_s: f64) {
        self.clock.as_ref().expect("it was started with one").set(ahead_s);
    }

    /// The arguments that it was started with, besides those of every gateway.
    pub(super) fn args(&self) -> &[String] {
        &self.args
    }

    /// What an agent calls it.
    pub fn url(&self) -> String {
        let is_secure = self.args.iter().any(|arg| arg.starts_with("--tls-cert-file"));
        format!("http{}://127.0.0.1:{}", if is_secure { "s" } else { "" }, self.port)
    }

    /// What an agent calls several of them.
    pub fn urls<'a>(gateways: impl IntoIterator<Item = &'a Gateway>) -> String {
        let named = gateways.into_iter().map(|gateway| format!("127.0.0.1:{}", gateway.port));
        format!("http://{}", named.collect::<Vec<_>>().join(","))
    }

    /// Which of several gateways an agent uses.
    pub fn used_by(gateways: &[Gateway], agent: &Agent) -> usize {
        let told = agent.http().status().upstream.gateways;
        assert_eq!(told.len(), gateways.len(), "{told:?}");
        let used = told.into_iter().find(|told| told.in_use).expect("one is in use");
        let is_it = |it: &Gateway| used.address == format!("127.0.0.1:{}", it.port);
        gateways.iter().position(is_it).expect("it was named")
    }

    /// Lets in these keys, and no others, from now on.
    #[track_caller]
    pub fn set_keys(&self, keys: &[&Key]) {
        write_keys(self.dir.path(), keys);
        self.process.signal(Signal::SIGHUP);
    }

    /// Has it read its files again.
    pub fn reload(&self) {
        self.process.signal(Signal::SIGHUP);
    }

    /// Asks it to end, without waiting.
    pub fn terminate(&self) {
        self.process.signal(Signal::SIGTERM);
    }

    /// Waits until it has exited.
    pub fn ended(&mut self) -> ExitStatus {
        self.process.wait()
    }

    /// The folder of its state.
    pub fn state_dir(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// The configuration of an agent that shows this key.
    pub fn config(&self, key: &Key) -> String {
        let path = self.secret_file(key);
        write_secret(&path, &key.text);
        format!("upstream_secret_file = {:?}\n", path.display().to_string())
    }

    /// Puts another key in the place of that one, for the agents that were given it.
    pub fn change_key(&self, key: &Key, new: &str) {
        let (path, place) = (self.dir.path().join("key.new"), self.secret_file(key));
        write_secret(&path, new);
        fs::rename(path, place).expect("it is ours");
    }

    fn secret_file(&self, key: &Key) -> PathBuf {
        self.dir.path().join(format!("key-{}", key.id()))
    }

    /// One call; the status and everything that came.
    pub fn call(&self, head: &str, body: &str) -> std::io::Result<(u16, String)> {
        self.call_with("", head, body)
    }

    /// The same with more headers, each with the end of its line.
    pub fn call_with(
        &self,
        headers: &str,
        head: &str,
        body: &str,
    ) -> std::io::Result<(u16, String)> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        let length = body.len();
        let given = headers.to_ascii_lowercase();
        let has = |name: &str| given.lines().any(|line| line.starts_with(name));
        let json = if has("content-type:") { "" } else { "Content-Type: application/json\r\n" };
        let host = if has("host:") { "" } else { HOST };
        write!(
            stream,
            "{head} HTTP/1.1\r\n{host}Connection: close\r\n{json}{headers}Content-Length: {length}\r\n\r\n{body}"
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
        Ok((status.unwrap_or(0), answer))
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

    /// Opens the change stream with this key, which must be let in.
    #[track_caller]
    pub fn changes(&self, key: &Key) -> ChangeStream {
        ChangeStream::open(self.port, key)
    }

    /// The status of a call that changes nothing, with this key.
    #[track_caller]
    pub fn status_for(&self, key: &Key) -> u16 {
        let beats = self.call_with(&key.header(), "POST /v1/upstream/renew", r#"{"beats":[]}"#);
        beats.expect("the gateway answers").0
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Starts it again in the same place, and waits until it answers.
    #[track_caller]
    pub fn start_again(&mut self) {
        let starts = self.starts();
        let clock = self.clock.as_ref();
        self.process = spawn(self.dir.path(), &self.upstream, &self.args, self.port, clock);
        self.wait_ready(starts + 1);
    }

    /// The lines of its audit trail.
    pub fn trail(&self) -> Vec<Value> {
        let text = fs::read_to_string(trail(self.dir.path())).unwrap_or_default();
        // One that is being written is for the next look.
        let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        whole.map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
    }

    /// Runs a command about its keys; what it printed.
    #[track_caller]
    pub fn keys(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(binary("tenured-gateway"));
        command.arg("keys").args(arguments).arg("--keys-file").arg(keys_file(self.dir.path()));
        let output = command.output().expect("it can be run");
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).expect("it speaks UTF-8").trim_end().to_owned()
    }

    /// The same about the keys in its store.
    #[track_caller]
    pub fn store_keys(&self, arguments: &[&str]) -> String {
        let output = self.try_store_keys(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).expect("it speaks UTF-8").trim_end().to_owned()
    }

    /// The same, whatever becomes of it.
    pub fn try_store_keys(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(binary("tenured-gateway"));
        command.arg("keys").args(arguments).args(["--keys-in-store", "--upstream", &self.upstream]);
        command.arg("--state-dir").arg(self.state_dir());
        command.output().expect("it can be run")
    }

    /// Adds a key to those in its store.
    #[track_caller]
    pub fn add_store_key(&self, subject: &str, more: &[&str]) -> Key {
        let text = self.store_keys(&[&["add", "--subject", subject], more].concat());
        Key { text, line: String::new() }
    }

    /// Everything it logged.
    pub fn log(&self) -> String {
        fs::read_to_string(log(self.dir.path())).unwrap_or_default()
    }

    /// How often it has become ready.
    fn starts(&self) -> usize {
        self.log().matches(READY).count()
    }

    #[track_caller]
    fn wait_ready(&mut self, starts: usize) {
        eventually("the gateway to answer", || {
            if let Some(status) = self.process.ended() {
                panic!("the gateway ended while starting: {status}\n{}", self.log());
            }
            (self.starts() >= starts).then_some(())
        });
    }
}

pub(super) fn write_secret(path: &Path, text: &str) {
    fs::write(path, text).expect("it is ours");
    fs::set_permissions(path, Permissions::from_mode(0o600)).expect("it is ours");
}

fn trail(dir: &Path) -> PathBuf {
    dir.join("audit.jsonl")
}

fn log(dir: &Path) -> PathBuf {
    dir.join("gateway.log")
}

fn directory() -> TempDir {
    TempDir::with_prefix("tenured-gateway-").expect("a temporary directory")
}

fn spawn(dir: &Path, upstream: &str, args: &[String], port: u16, clock: Option<&Skew>) -> Program {
    let log = File::options().create(true).append(true).open(log(dir)).expect("it is ours");
    let mut command = Command::new(binary("tenured-gateway"));
    command
        .arg(format!("--listen=127.0.0.1:{port}"))
        .args(["--upstream", upstream])
        .arg("--runtime-dir")
        .arg(dir.join("run"))
        .arg("--state-dir")
        .arg(dir.join("state"))
        .args(args)
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a file can be shared"))
        .stderr(log);
    if keys_file(dir).exists() {
        command.arg("--keys-file").arg(keys_file(dir));
    }
    if let Some(clock) = clock {
        clock.show(&mut command);
    }
    Program::start(&mut command)
}

/// A key, as `tenured-gateway keys new` makes it.
pub struct Key {
    /// The key itself.
    pub text: String,
    /// The lines that let it in.
    pub line: String,
}

impl Key {
    /// Makes one.
    #[track_caller]
    pub fn new(subject: &str) -> Key {
        Key::within(subject, &[])
    }

    /// The same with bounds.
    #[track_caller]
    pub fn within(subject: &str, bounds: &[&str]) -> Key {
        let mut command = Command::new(binary("tenured-gateway"));
        let output = command.args(["keys", "new", "--subject", subject]).args(bounds).output();
        let output = output.expect("it can be run").stdout;
        let output = String::from_utf8(output).expect("it speaks UTF-8");
        let (line, text) = output.trim_end().rsplit_once('\n').expect("two parts");
        Key { text: text.to_owned(), line: line.to_owned() }
    }

    /// Its id.
    pub fn id(&self) -> &str {
        self.text.get(4..12).expect("it has one")
    }

    /// The header that shows it.
    pub fn header(&self) -> String {
        format!("Authorization: Bearer {}\r\n", self.text)
    }
}

fn keys_file(dir: &Path) -> PathBuf {
    dir.join("keys.toml")
}

fn write_keys(dir: &Path, keys: &[&Key]) {
    let text: String = keys.iter().map(|key| key.line.as_str()).collect();
    // By another name first: it may be read at any time.
    let new = dir.join("keys.new");
    fs::write(&new, text).expect("it is ours");
    fs::set_permissions(&new, Permissions::from_mode(0o600)).expect("it is ours");
    fs::rename(&new, keys_file(dir)).expect("it is ours");
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            let tail = &lines[lines.len().saturating_sub(LOG_TAIL_LINES)..];
            eprintln!("--- end of the gateway's log\n{}\n---", tail.join("\n"));
        }
    }
}
