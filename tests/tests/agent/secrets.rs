//! A password shows nowhere: not in logs at any level, answers, errors, metrics, check-config, the list of
//! processes, or a core dump; however it came to the agent, and whatever became of it.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use serde_json::json;
use tempfile::TempDir;
use tenure_tests::harness::{Client, Http, Program, RedisServer, binary, until};

/// Letters that no URL has to escape, and that nothing else contains.
const SECRET: &str = "Xyzzy7Plugh";
const WRONG_SECRET: &str = "Abrac9Adabra";

/// An agent in a directory of its own, logging everything.
struct Room {
    dir: TempDir,
    environment: Vec<(String, String)>,
    arguments: Vec<String>,
}

impl Room {
    fn new() -> Room {
        let dir = TempDir::new().expect("a directory");
        let room = Room { dir, environment: Vec::new(), arguments: Vec::new() };
        room.configure("");
        room
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn text_of(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    fn configure(&self, text: &str) -> &Room {
        self.write("tenured.toml", text);
        self
    }

    /// Writes a file for the agent alone; returns its path.
    fn write(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        fs::write(&path, text).expect("it is ours");
        fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("it is ours");
        path.to_str().expect("a plain path").to_owned()
    }

    fn variable(mut self, name: &str, value: &str) -> Room {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    fn argument(mut self, flag: &str, value: &str) -> Room {
        self.arguments.extend([flag.to_owned(), value.to_owned()]);
        self
    }

    fn command(&self, command: &str) -> Command {
        let mut tenured = Command::new(binary("tenured"));
        tenured
            .env_clear()
            .envs(self.environment.iter().cloned())
            .env("RUST_BACKTRACE", "full")
            .arg(command)
            .args(&self.arguments)
            .args(["--log", "trace", "--config"])
            .arg(self.path("tenured.toml"))
            .arg("--runtime-dir")
            .arg(self.path("run"))
            .arg("--state-dir")
            .arg(self.path("state"));
        tenured
    }

    /// Lives through an agent's life, and returns all that could be seen of it. `log_says` is what the
    /// log must have before the end.
    fn seen(&self, log_says: &str) -> String {
        let check = self.command("check-config").output().expect("it starts");
        let mut seen = String::from_utf8_lossy(&check.stdout).into_owned();
        seen += &String::from_utf8_lossy(&check.stderr);

        let log = File::create(self.path("log")).expect("it is ours");
        let mut command = self.command("agent");
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("shared")).stderr(log);
        let mut agent = Program::start(&mut command);
        let mut http = Http::new(&self.path("run/api.sock"));
        until("the agent to answer", || {
            assert!(agent.ended().is_none(), "{}", self.text_of("log"));
            http.try_call("GET", "/healthz", b"").is_ok_and(|answer| answer.status == 200)
        });
        until(log_says, || self.text_of("log").contains(log_says));
        let registered = http.register(&json!({"name": "looks"})).session;
        let more = json!({"wait": "none"});
        seen += &http.ask(registered, "leader", "a", &more).text();
        for path in ["/v1/status", "/v1/doctor", "/readyz", "/metrics", "/v1/log"] {
            seen += &http.get(path).text();
        }
        for command in [&["status"][..], &["doctor"], &["log"]] {
            let output = Command::new(binary("tenure"))
                .arg("--socket")
                .arg(self.path("run/api.sock"))
                .args(command)
                .output()
                .expect("it starts");
            seen += &String::from_utf8_lossy(&output.stdout);
            seen += &String::from_utf8_lossy(&output.stderr);
        }
        let listed = fs::read(format!("/proc/{}/cmdline", agent.pid())).expect("it runs");
        seen += &String::from_utf8_lossy(&listed);
        seen += &fs::read_to_string(format!("/proc/{}/comm", agent.pid())).expect("it runs");

        // A configuration that says something else, one that is wrong, and the former one again.
        let configured = self.text_of("tenured.toml");
        let (done, refused) = ("\"configuration reloaded\"", "configuration not reloaded");
        for (text, expected) in [
            (format!("{configured}\n[leader]\nttl = \"40s\"\n"), done),
            (format!("{configured}\n[leader]\nttl = \"1s\"\n"), refused),
            (format!("{configured}\nnonsense"), refused),
            (configured, done),
        ] {
            self.configure(&text);
            let before = self.text_of("log").matches(expected).count();
            agent.signal(Signal::SIGHUP);
            until(expected, || self.text_of("log").matches(expected).count() > before);
        }
        agent.signal(Signal::SIGTERM);
        agent.wait();
        seen + &self.text_of("log")
    }
}

#[track_caller]
fn check(seen: &str) {
    // The searched text has the expected content.
    for word in
        ["uptime_ms", "tenured_build_info", "\"filter\":\"trace\"", "\"checks\"", "registered"]
    {
        assert!(seen.contains(word), "{word} was not seen");
    }
    for secret in [SECRET, WRONG_SECRET] {
        let at = seen.find(secret).map(|at| seen[..at].lines().count());
        let line = at.and_then(|line| seen.lines().nth(line.saturating_sub(1)));
        assert_eq!(line, None, "{secret} shows");
    }
}

const CONNECTED: &str = "upstream connected";
const NOT_CONNECTED: &str = "upstream not connected";

fn with_password(url: &str, password: &str) -> String {
    let (scheme, rest) = url.split_once("://").expect("a URL");
    format!("{scheme}://:{password}@{rest}")
}

fn redis() -> RedisServer {
    RedisServer::setup().password(SECRET).start()
}

/// Without the password that tests sign in with.
fn plain_url(redis: &RedisServer) -> String {
    format!("redis+unix://{}", redis.socket().display())
}

#[test]
fn a_password_in_the_url_of_a_file() {
    let redis = redis();
    for (password, says) in [(SECRET, CONNECTED), (WRONG_SECRET, NOT_CONNECTED)] {
        let url = with_password(&plain_url(&redis), password);
        let room = Room::new();
        room.configure(&format!("upstream = \"{url}\"\n"));
        let seen = room.seen(says);
        check(&seen);
        assert!(seen.contains("redis+unix://:***@/"));
    }
}

#[test]
fn a_password_in_the_environment() {
    let redis = redis();
    let url = with_password(&plain_url(&redis), SECRET);
    check(&Room::new().variable("TENURED_UPSTREAM", &url).seen(CONNECTED));
}

#[test]
fn a_password_in_a_file_of_its_own() {
    let redis = redis();
    for (password, says) in [(SECRET, CONNECTED), (WRONG_SECRET, NOT_CONNECTED)] {
        let room = Room::new().argument("--upstream", &plain_url(&redis));
        let file = room.write("secret", &format!("{password}\n"));
        room.configure(&format!("upstream_secret_file = \"{file}\"\n"));
        check(&room.seen(says));
    }
}

#[test]
fn a_password_that_the_service_manager_brings() {
    let redis = redis();
    let room = Room::new();
    room.write("upstream-secret", SECRET);
    let credentials = room.dir.path().to_str().expect("plain").to_owned();
    let room = room.variable("CREDENTIALS_DIRECTORY", &credentials);
    room.configure(&format!("upstream = \"{}\"\n", plain_url(&redis)));
    let seen = room.seen(CONNECTED);
    check(&seen);
    assert!(seen.contains("$CREDENTIALS_DIRECTORY/upstream-secret"));
}

#[test]
fn a_password_for_a_server_that_is_not_there() {
    let room = Room::new();
    let nowhere = room.path("no.sock").display().to_string();
    room.configure(&format!("upstream = \"redis+unix://me:{SECRET}@{nowhere}\"\n"));
    check(&room.seen(NOT_CONNECTED));
}

#[test]
fn a_password_of_sentinels() {
    // A server that wants a password and is no Sentinel has something to say of both.
    let redis = RedisServer::setup().password(SECRET).tcp().start();
    for password in [SECRET, WRONG_SECRET] {
        let room = Room::new();
        let (master, own) = (room.write("master", WRONG_SECRET), room.write("sentinel", password));
        let port = redis.port();
        room.configure(&format!(
            "upstream = \"redis+sentinel://127.0.0.1:{port}/main\"\nupstream_secret_file = \"{master}\"\n\
             [redis]\nsentinel_secret_file = \"{own}\"\n"
        ));
        check(&room.seen(NOT_CONNECTED));
    }
}

#[test]
fn a_password_on_the_command_line_is_warned_of() {
    let redis = redis();
    let url = with_password(&plain_url(&redis), SECRET);
    let room = Room::new().argument("--upstream", &url);
    let seen = room.seen(CONNECTED);
    assert!(
        seen.contains("--upstream has a password, which every user of this host sees"),
        "{seen}"
    );
    assert!(seen.contains("put it into a file that only the agent can read"));
    // Only where nothing can hide it.
    let elsewhere = seen.replace(&url, "");
    assert_eq!(seen.matches(SECRET).count(), 1);
    check(&elsewhere);
}

#[test]
fn wrong_configurations_do_not_quote_passwords() {
    let room = Room::new();
    let secret = room.write("open", SECRET);
    fs::set_permissions(&secret, Permissions::from_mode(0o644)).expect("it is ours");
    let lines = room.write("lines", &format!("{SECRET}\n{SECRET}\n"));
    for text in [
        format!("upstream = \"redis://:{SECRET}@h:x\""),
        format!("upstream = \"redis://{SECRET}@h\""),
        format!("upstream = \"mysql://:{SECRET}@h\""),
        format!("upstream = \"{SECRET}"),
        format!("upstream = {SECRET}"),
        format!("upstream = [\"{SECRET}\"]"),
        format!("upstream = \"redis://:{SECRET}@h\"\nupstream = \"redis://:{SECRET}@h\""),
        format!("upstream = \"redis+sentinel://h/m?sentinel_password={SECRET}&x=1\""),
        format!("upstream = \"redis://:{SECRET}@h\"\nupstream_secret_file = \"{lines}\""),
        format!("upstream = \"redis://h\"\nupstream_secret_file = \"{secret}\""),
        format!("upstream = \"redis://:{SECRET}@h\"\n[redis]\ntls_ca_file = \"/x\""),
    ] {
        room.configure(&text);
        for command in ["check-config", "agent"] {
            let output = room.command(command).output().expect("it starts");
            let said =
                String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(78), "{text}: {said}");
            assert!(!said.contains(SECRET), "{said}");
        }
    }
}

#[test]
fn a_crash_leaves_no_memory_behind() {
    let redis = redis();
    let url = with_password(&plain_url(&redis), SECRET);
    let room = Room::new();
    room.configure(&format!("upstream = \"{url}\"\n"));
    let log = File::create(room.path("log")).expect("it is ours");
    let mut command = room.command("agent");
    command.current_dir(room.dir.path()).stdout(Stdio::null()).stderr(log);
    let mut agent = Program::start(&mut command);
    until("the connection", || room.text_of("log").contains(CONNECTED));
    let proc = PathBuf::from(format!("/proc/{}", agent.pid()));
    let limits = fs::read_to_string(proc.join("limits")).expect("it runs");
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).expect("a limit");
    let sizes: Vec<_> = core.split_whitespace().skip(4).take(2).collect();
    assert_eq!(sizes, ["0", "0"], "{core}");
    // The /proc files of an undumpable process belong to root: see proc(5).
    use std::os::unix::fs::MetadataExt;
    assert_eq!(proc.join("environ").metadata().expect("it runs").uid(), 0);
    agent.signal(Signal::SIGABRT);
    let ended = agent.wait();
    use std::os::unix::process::ExitStatusExt;
    assert!(!ended.core_dumped(), "{ended}");
    assert!(!has_core(room.dir.path()), "a core dump was left");
}

fn has_core(directory: &Path) -> bool {
    let entries = fs::read_dir(directory).expect("it is ours");
    entries.flatten().any(|entry| entry.file_name().to_string_lossy().starts_with("core"))
}
