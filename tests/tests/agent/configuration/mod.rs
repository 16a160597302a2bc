//! The configuration as an administrator meets it: wrong values, the sources of values, reloads.

mod wrong_values;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;
use tenure_tests::harness::{Agent, Client, Program, binary, eventually, until};

/// `tenured check-config`: its exit code, and what it said on standard output and error.
fn check(environment: &[(&str, &str)], arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(binary("tenured"))
        .env_clear()
        .envs(environment.iter().copied())
        .arg("check-config")
        .args(arguments)
        .output()
        .expect("it starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// A directory in place of /etc/tenured.
struct Etc(TempDir);

impl Etc {
    fn new() -> Etc {
        let etc = Etc(TempDir::new().expect("a directory"));
        fs::create_dir(etc.path("conf.d")).expect("it is ours");
        etc
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("it is ours");
    }

    fn directory(&self) -> &str {
        self.0.path().to_str().expect("a plain path")
    }
}

#[test]
fn what_is_printed_says_where_from_and_loads_to_the_same() {
    let etc = Etc::new();
    etc.write("tenured.toml", "host_name = \"a\"\n[leader]\nttl = \"40s\"\nbeat = \"5s\"\n");
    etc.write(
        "conf.d/10-x.toml",
        "[leader]\n# longer\nttl = \"50s\"\n[[allow]]\nuid = 0\nnames = [\"a*\"]\n",
    );
    etc.write("conf.d/20-y.toml", "metrics_listen = \"127.0.0.1:9464\"\n");
    let environment = [("TENURED_LEASE_GRACE", "30s"), ("TENURED_LOG", "warn")];
    let arguments = ["--config", etc.directory(), "--log", "debug"];
    let (code, out, err) = check(&environment, &arguments);
    assert_eq!((code, err.as_str()), (Some(0), ""));
    let drop_in = etc.path("conf.d/10-x.toml");
    let (main, drop_in) = (etc.path("tenured.toml").display().to_string(), drop_in.display());
    for line in [
        format!("host_name = \"a\"  # {main}:1"),
        format!("ttl = \"50s\"  # {drop_in}:3"),
        format!("beat = \"5s\"  # {main}:4"),
        "grace = \"30s\"  # TENURED_LEASE_GRACE".to_owned(),
        "log = \"debug\"  # --log".to_owned(),
        "log_format = \"auto\"  # default".to_owned(),
        format!("[[allow]]  # {drop_in}:4"),
    ] {
        assert!(out.lines().any(|found| found == line), "{line} is not in\n{out}");
    }
    let printed = etc.path("printed.toml");
    fs::write(&printed, &out).expect("it is ours");
    let (code, again, err) = check(&[], &["--config", printed.to_str().expect("plain")]);
    assert_eq!(code, Some(0), "{err}");
    let without_comments = |text: &str| -> Vec<String> {
        let lines =
            text.lines().map(|line| line.split("  # ").next().unwrap_or_default().to_owned());
        lines.filter(|line| !line.starts_with('#')).collect()
    };
    assert_eq!(without_comments(&again), without_comments(&out));
}

/// An agent with that directory in place of /etc/tenured.
struct Service {
    etc: Etc,
    dir: TempDir,
    program: Program,
}

impl Service {
    fn start(etc: Etc) -> Service {
        let dir = TempDir::new().expect("a directory");
        let log = fs::File::create(dir.path().join("log")).expect("it is ours");
        let mut command = Command::new(binary("tenured"));
        command.env_clear().args(["--config", etc.directory(), "--log-format", "json"]);
        command.arg("--runtime-dir").arg(dir.path().join("run"));
        command.arg("--state-dir").arg(dir.path().join("state"));
        command.stdout(std::process::Stdio::null()).stderr(log);
        let program = Program::start(&mut command);
        let service = Service { etc, dir, program };
        until("the agent to answer", || {
            service.http().try_call("GET", "/healthz", b"").is_ok_and(|answer| answer.status == 200)
        });
        service
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("run/api.sock")
    }

    fn http(&self) -> tenure_tests::harness::Http {
        tenure_tests::harness::Http::new(&self.socket())
    }

    fn lines(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
        // The last line may not be complete yet.
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Reloads, and returns what it logs up to that message.
    #[track_caller]
    fn reload(&self, last: &str) -> Vec<Value> {
        let before = self.lines().len();
        self.program.signal(Signal::SIGHUP);
        eventually(last, || {
            let lines = self.lines().split_off(before);
            let says_last = |line: &Value| {
                line["message"].as_str().is_some_and(|message| message.starts_with(last))
            };
            let at = lines.iter().position(says_last)?;
            Some(lines[..=at].to_vec())
        })
    }
}

#[track_caller]
fn find<'a>(lines: &'a [Value], message: &str, field: &str, value: &str) -> &'a Value {
    let found = lines.iter().find(|line| {
        line["message"].as_str().is_some_and(|found| found.starts_with(message))
            && line[field] == value
    });
    found.unwrap_or_else(|| panic!("no {message:?} with {field} = {value:?} in {lines:#?}"))
}

#[test]
fn a_reload_reports_what_changed_and_what_takes_a_restart() {
    let etc = Etc::new();
    etc.write("tenured.toml", "log = \"info\"\n");
    let service = Service::start(etc);
    service.etc.write(
        "conf.d/10-new.toml",
        "log = \"debug\"\nmetrics_listen = \"127.0.0.1:9464\"\n[leader]\nttl = \"40s\"\n\
         [[allow]]\nuid = \"*\"\n",
    );
    let lines = service.reload("configuration reloaded");
    let file = service.etc.path("conf.d/10-new.toml").display().to_string();
    find(&lines, "configuration file added", "file", &file);
    let log = find(&lines, "setting changed", "key", "log");
    assert_eq!((&log["old"], &log["new"]), (&json!("\"info\""), &json!("\"debug\"")));
    let allow = find(&lines, "setting changed", "key", "allow");
    assert_eq!((&allow["old"], &allow["new"]), (&json!("0 rules"), &json!("1 rule")));
    let listen = find(&lines, "setting not changed: it takes a restart", "key", "metrics_listen");
    assert_eq!((&listen["old"], &listen["new"]), (&json!("unset"), &json!("\"127.0.0.1:9464\"")));
    find(&lines, "setting not changed: it takes a restart", "key", "leader.ttl");
    let summary = lines.last().expect("the summary");
    assert_eq!(summary["changed"], "log, allow");
    assert_eq!(summary["restart"], "metrics_listen, leader.ttl");
    assert_eq!(summary["unchanged"], 62);

    // With anything wrong in any file nothing changes.
    service.etc.write("conf.d/20-wrong.toml", "log = \"error\"\n\n[leader]\nttl = \"1s\"\n");
    let lines = service.reload("configuration not reloaded");
    let message = lines.last().and_then(|line| line["message"].as_str()).expect("a message");
    assert!(
        message.contains("20-wrong.toml:4: leader.ttl = \"1s\": must be more than twice"),
        "{message}"
    );
    let log: Value = service.http().get("/v1/log").json(200);
    assert_eq!(log, json!({"filter": "debug", "configured": "debug"}));
    let page = service.http().get("/metrics").text();
    assert!(page.contains("tenured_reloads_total{outcome=\"done\"} 1\n"), "{page}");
    assert!(page.contains("tenured_reloads_total{outcome=\"refused\"} 1\n"), "{page}");

    for name in ["conf.d/10-new.toml", "conf.d/20-wrong.toml"] {
        fs::remove_file(service.etc.path(name)).expect("it is there");
    }
    let lines = service.reload("configuration reloaded");
    find(&lines, "configuration file gone", "file", &file);
    find(&lines, "setting changed", "key", "log");
    assert_eq!(lines.last().expect("the summary")["restart"], "");
}

#[test]
fn what_is_logged_changes_for_the_time_being() {
    let etc = Etc::new();
    etc.write("tenured.toml", "log = \"warn\"\n");
    let service = Service::start(etc);
    let tenure = |arguments: &[&str]| {
        let output = Command::new(binary("tenure"))
            .arg("--socket")
            .arg(service.socket())
            .arg("log")
            .args(arguments)
            .output()
            .expect("it starts");
        let text =
            String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        (output.status.code(), text.into_owned())
    };
    assert_eq!(tenure(&[]), (Some(0), "logs warn, as configured\n".to_owned()));
    let now = "logs debug for the time being; configured is warn (tenure log --reset)\n";
    assert_eq!(tenure(&["debug"]), (Some(0), now.to_owned()));
    let session = service.http().register(&json!({"name": "seen"})).session;
    until("the registration to be logged", || {
        let seen = |line: &Value| line["message"] == "registered" && line["name"] == "seen";
        service.lines().iter().any(seen)
    });
    service.http().acquire(session, "leader", "a", &json!({}));

    // A reload that has nothing new to say of it does not end it.
    service.etc.write("conf.d/a.toml", "[lease]\ngrace = \"30s\"\n");
    service.reload("configuration reloaded");
    assert_eq!(tenure(&[]).1, now);
    let (code, said) = tenure(&["loud"]);
    assert_eq!(code, Some(64), "{said}");
    assert!(said.contains("filter is 'loud', but must be error, warn"), "{said}");
    assert_eq!(tenure(&["--reset"]).1, "logs warn, as configured\n");
    // One that changes it does.
    tenure(&["debug"]);
    service.etc.write("tenured.toml", "log = \"info\"\n");
    service.reload("configuration reloaded");
    assert_eq!(
        tenure(&["--json"]).1.replace(['\n', ' '], ""),
        r#"{"filter":"info","configured":"info"}"#
    );
}

#[test]
fn a_journal_that_is_not_there_cannot_be_chosen() {
    let arguments = ["--config", "/dev/null", "--log-format", "journald"];
    let (code, _, said) = check(&[], &arguments);
    if code == Some(78) {
        let rule = "must be auto, human or json: this build cannot write to the journal; take one with \
                    the Cargo feature systemd";
        assert!(said.starts_with("tenured: --log-format: log_format = \"journald\": "), "{said}");
        assert!(said.contains(rule), "{said}");
        return;
    }
    // A build that can write to a journal, so one that is there would be taken.
    if Path::new("/run/systemd/journal/socket").exists() {
        return;
    }
    let dir = TempDir::new().expect("a directory");
    let output = Command::new(binary("tenured"))
        .env_clear()
        .args(arguments)
        .arg("--runtime-dir")
        .arg(dir.path().join("run"))
        .arg("--state-dir")
        .arg(dir.path().join("state"))
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(69), "{said}");
    assert!(said.contains("there is no journal at /run/systemd/journal/socket"), "{said}");
}

#[test]
fn an_agent_starts_with_the_sample_file() {
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/tenured.toml");
    let sample = fs::read_to_string(sample).expect("it is there");
    let agent = Agent::setup().config(&sample).start();
    assert_eq!(agent.counts(), (0, 0, 0));
}
