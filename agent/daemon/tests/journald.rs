//! The log in the journal of systemd, as its daemon gets it: in a mount namespace in which that daemon's
//! socket is the test's own. Takes root and unshare(1).

#![cfg(feature = "systemd")]
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// How long anything may take before the test gives up on it.
const PATIENCE: Duration = Duration::from_secs(60);
/// More than the queue of the log and the socket's own together.
const LINES: usize = 12_000;

/// A file with a name that is two lines.
const CONFIG: &str = "tenured\nPRIORITY=0.toml";

struct Room {
    dir: tempfile::TempDir,
    journal: UnixDatagram,
    agent: Child,
}

impl Room {
    /// `None` where this is not root.
    fn new() -> Option<Room> {
        if !nix::unistd::geteuid().is_root() {
            eprintln!("left out: a mount namespace takes root");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("run/systemd/journal");
        std::fs::create_dir_all(&run).unwrap();
        let journal = UnixDatagram::bind(run.join("socket")).unwrap();
        journal.set_read_timeout(Some(PATIENCE)).unwrap();
        std::fs::write(dir.path().join(CONFIG), "").unwrap();
        let script = "mount --bind \"$1\" /run && shift && exec \"$@\"";
        let mut agent = Command::new("unshare")
            .args(["--mount", "sh", "-c", script, "sh"])
            .arg(dir.path().join("run"))
            .arg(env!("CARGO_BIN_EXE_tenured"))
            .arg("--config")
            .arg(dir.path().join(CONFIG))
            .args(["--log-format", "journald", "--runtime-dir"])
            .arg(dir.path().join("runtime"))
            .arg("--state-dir")
            .arg(dir.path().join("state"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = String::new();
        BufReader::new(agent.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        assert!(ready.contains(" ready in "), "{ready:?}");
        Some(Room { dir, journal, agent })
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("runtime/api.sock")
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.agent.id().cast_signed()), signal).unwrap();
    }

    /// The next entry whose message has this.
    fn entry(&self, message: &str) -> HashMap<String, String> {
        let mut datagram = vec![0; 64 * 1024];
        loop {
            let length = self.journal.recv(&mut datagram).unwrap_or_else(|error| {
                panic!("no entry {message:?} came: {error}");
            });
            let entry = fields(&datagram[..length]);
            if entry.get("MESSAGE").is_some_and(|found| found.contains(message)) {
                return entry;
            }
        }
    }
}

/// As <https://systemd.io/JOURNAL_NATIVE_PROTOCOL> says: `NAME=value` on a line, or the name on a line,
/// and then the length of the value as eight bytes, the value, and a line break.
fn fields(mut datagram: &[u8]) -> HashMap<String, String> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let mut fields = HashMap::new();
    while let Some(end) = datagram.iter().position(|byte| *byte == b'\n') {
        let (line, rest) = (&datagram[..end], &datagram[end + 1..]);
        datagram = rest;
        if let Some(equals) = line.iter().position(|byte| *byte == b'=') {
            fields.insert(text(&line[..equals]), text(&line[equals + 1..]));
        } else if let Some((length, rest)) = rest.split_first_chunk() {
            let length = usize::try_from(u64::from_le_bytes(*length)).unwrap();
            fields.insert(text(line), text(&rest[..length]));
            datagram = &rest[length + 1..];
        }
    }
    fields
}

impl Drop for Room {
    fn drop(&mut self) {
        let _ = self.agent.kill();
        let _ = self.agent.wait();
    }
}

fn call(stream: &mut UnixStream, method: &str, path: &str, body: &str) -> String {
    let length = body.len();
    let request =
        format!("{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    let mut buffer = [0; 16 * 1024];
    loop {
        let read = stream.read(&mut buffer).unwrap();
        assert_ne!(read, 0, "the agent hung up");
        answer.extend_from_slice(&buffer[..read]);
        let text = String::from_utf8_lossy(&answer);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        if length.is_some_and(|length| length.parse::<usize>().unwrap() <= body.len()) {
            return text.into_owned();
        }
    }
}

#[test]
fn lines_have_their_fields_and_nobody_waits_for_the_journal() {
    let Some(mut room) = Room::new() else { return };
    let mut api = UnixStream::connect(room.socket()).unwrap();
    api.set_read_timeout(Some(PATIENCE)).unwrap();
    let registered = call(&mut api, "POST", "/v1/register", r#"{"name":"nightly"}"#);
    let session = registered.split_once("\"session\":\"").unwrap().1[..36].to_owned();
    let entry = room.entry("registered \"nightly\"");
    assert_eq!(entry["TENURE_UID"], "0");
    assert_eq!(entry["TENURE_PID"], std::process::id().to_string());
    let acquire = format!(r#"{{"session":"{session}","kind":"leader","name":"a b"}}"#);
    call(&mut api, "POST", "/v1/acquire", &acquire);
    call(&mut api, "POST", "/v1/revoke", r#"{"kind":"leader","name":"a b"}"#);
    let granted = room.entry("granted leader \"a b\"");
    let lost = room.entry("lost leader \"a b\": revoked (by=root on ");
    for (field, value) in [
        ("PRIORITY", "4"),
        ("SYSLOG_IDENTIFIER", "tenured"),
        ("CODE_MODULE", "tenured::telemetry::notes"),
        ("TENURE_SESSION", session.as_str()),
        ("TENURE_HOLD", &granted["TENURE_HOLD"]),
        ("TENURE_TENANT", "default"),
        ("TENURE_KIND", "leader"),
        ("TENURE_NAME", "a b"),
        ("TENURE_TOKEN", &granted["TENURE_TOKEN"]),
        ("TENURE_REASON", "revoked"),
    ] {
        assert_eq!(lost[field], value, "{field} in {lost:?}");
    }
    assert_eq!(granted["PRIORITY"], "6");

    std::fs::write(room.dir.path().join(CONFIG), "loggg = 1").unwrap();
    room.signal(Signal::SIGHUP);
    let refused = room.entry("there is no key loggg; did you mean log?");
    assert!(refused["MESSAGE"].contains("/tenured\nPRIORITY=0.toml:1: "), "{refused:?}");
    assert_eq!(refused["PRIORITY"], "3");

    // From here on the journal takes nothing.
    for _ in 0..LINES {
        let answer = call(&mut api, "PUT", "/v1/log", r#"{"filter":"info"}"#);
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    let metrics = call(&mut api, "GET", "/metrics", "");
    let dropped =
        metrics.lines().find_map(|line| line.strip_prefix("tenured_log_lines_dropped_total "));
    assert!(dropped.unwrap().parse::<u64>().unwrap() > 0);
    let entry =
        room.entry("log lines dropped: the log could not be written, or is read too slowly");
    assert_eq!(entry["PRIORITY"], "4");

    // The end does not wait for it either.
    for _ in 0..LINES {
        call(&mut api, "PUT", "/v1/log", r#"{"filter":"info"}"#);
    }
    room.signal(Signal::SIGTERM);
    assert!(room.agent.wait().unwrap().success());
}
