//! A program of its own that does what a test tells it. See `src/bin/puppet.rs`.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tenure::wire::Event;
use uuid::Uuid;

use super::{
    Agent, Answer, Client, DEADLINE, EventLog, Program, Seen, apart, binary, copy_for_others,
};

/// Replies that a test has not asked for yet; a puppet beyond waits.
const REPLIES_MAX: usize = 64;

/// A separate client process. Dropping it kills it.
pub struct Puppet {
    program: Program,
    replies: Receiver<Value>,
    /// By the number of the stream: a session's next stream may open before the last words of its
    /// earlier one have come.
    logs: Arc<Mutex<HashMap<u64, Arc<EventLog>>>>,
    streams: u64,
}

impl Puppet {
    /// Starts one as the user of the test.
    #[track_caller]
    pub fn start(agent: &Agent) -> Puppet {
        Puppet::spawn(&agent.socket(), &mut Command::new(binary("puppet")), Program::start)
    }

    /// Starts one as another user and group. Takes root.
    ///
    /// The program is copied, since that user may not be able to reach the build directory.
    #[track_caller]
    pub fn start_as(agent: &Agent, uid: u32) -> Puppet {
        let mut command = Command::new(copy_for_others("puppet", agent.dir()));
        command.uid(uid).gid(uid).current_dir("/");
        Puppet::spawn(&agent.socket(), &mut command, Program::start)
    }

    /// Starts one as another user, in a PID namespace of its own, as in a container. Takes root.
    #[track_caller]
    pub fn start_apart(agent: &Agent, uid: u32) -> Puppet {
        let mut command = apart(Path::new("setpriv"));
        command.args([
            "--clear-groups",
            &format!("--reuid={uid}"),
            &format!("--regid={uid}"),
            "--",
        ]);
        command.arg(copy_for_others("puppet", agent.dir())).current_dir("/");
        Puppet::spawn(&agent.socket(), &mut command, Program::start_apart)
    }

    /// Starts one in the agent's own PID namespace, of a test that started it [apart](super::apart).
    /// Takes root.
    #[track_caller]
    pub fn start_beside(agent: &Agent) -> Puppet {
        let mut command = Command::new("nsenter");
        command.arg(format!("--pid=/proc/{}/ns/pid", agent.pid())).arg(binary("puppet"));
        Puppet::spawn(&agent.socket(), &mut command, Program::start_apart)
    }

    /// Starts one by a command that is given the socket's path as its last argument, and ends when
    /// the puppet does.
    #[track_caller]
    pub fn start_by(command: &mut Command, socket: &Path) -> Puppet {
        Puppet::spawn(socket, command, Program::start)
    }

    #[track_caller]
    fn spawn(
        socket: &Path,
        command: &mut Command,
        start: impl FnOnce(&mut Command) -> Program,
    ) -> Puppet {
        let mut program = start(command.arg(socket).stdin(Stdio::piped()).stdout(Stdio::piped()));
        let out = program.pipes().stdout.take().expect("standard output is piped");
        let logs: Arc<Mutex<HashMap<u64, Arc<EventLog>>>> = Arc::default();
        let (to_test, replies) = sync_channel(REPLIES_MAX);
        std::thread::spawn({
            let logs = Arc::clone(&logs);
            move || {
                for line in BufReader::new(out).lines().map_while(Result::ok) {
                    let line: Value = serde_json::from_str(&line).expect("puppets speak JSON");
                    if let Some(stream) = line["of"].as_u64() {
                        log_of(&logs, stream).push(event_in(&line));
                    } else if let Some(stream) = line["ended"].as_u64() {
                        log_of(&logs, stream).finish();
                    } else if to_test.send(line).is_err() {
                        return;
                    }
                }
                for log in logs.lock().expect("no thread panics with it").values() {
                    log.finish();
                }
            }
        });
        Puppet { program, replies, logs, streams: 0 }
    }

    #[track_caller]
    fn tell(&mut self, command: &Value) -> Value {
        self.tell_only(command);
        self.replies.recv_timeout(DEADLINE).expect("the puppet answers")
    }

    #[track_caller]
    fn tell_only(&mut self, command: &Value) {
        let stdin = self.program.pipes().stdin.as_mut().expect("standard input is piped");
        stdin.write_all(format!("{command}\n").as_bytes()).expect("the puppet listens");
    }

    /// Opens an event stream of a session; it must open. Returns what comes out of it.
    #[track_caller]
    pub fn open_events(&mut self, session: Uuid) -> Arc<EventLog> {
        self.open_events_after(session, None)
    }

    /// The same after the event that was seen last.
    #[track_caller]
    pub fn open_events_after(&mut self, session: Uuid, last: Option<u64>) -> Arc<EventLog> {
        self.streams += 1;
        let stream = self.streams;
        let open = json!({"do": "events", "session": session, "stream": stream, "last": last});
        let reply = self.tell(&open);
        assert_eq!(reply["status"], 200, "the stream did not open: {reply}");
        log_of(&self.logs, stream)
    }

    /// Tries to open the event stream of a session, which must be refused.
    #[track_caller]
    pub fn refused_events(&mut self, session: Uuid) -> Answer {
        answer_in(&self.tell(&json!({"do": "events", "session": session})))
    }

    /// Closes the event stream of a session.
    #[track_caller]
    pub fn close_events(&mut self, session: Uuid) {
        self.tell(&json!({"do": "close_events", "session": session}));
    }

    /// Starts a child that inherits the connection of the session's event stream. The test must
    /// end it.
    #[track_caller]
    pub fn spawn_heir(&mut self, session: Uuid) -> u32 {
        let reply = self.tell(&json!({"do": "heir", "session": session}));
        let pid = reply["pid"].as_u64().unwrap_or_else(|| panic!("no child: {reply}"));
        u32::try_from(pid).expect("process numbers are small")
    }

    /// Reads a file with the puppet's rights: its size, or the error.
    #[track_caller]
    pub fn read_file(&mut self, path: &str) -> Result<u64, String> {
        let reply = self.tell(&json!({"do": "read_file", "path": path}));
        reply["bytes"].as_u64().ok_or_else(|| reply["error"].to_string())
    }

    /// Starts a call without waiting for its answer; [`Puppet::answer`] gets it.
    #[track_caller]
    pub fn start_call(&mut self, method: &str, path: &str, body: &Value) {
        let body = body.to_string();
        self.tell_only(&json!({"do": "call", "method": method, "path": path, "body": body}));
    }

    /// The answer to the call that was started first.
    #[track_caller]
    pub fn answer(&mut self) -> Answer {
        answer_in(&self.replies.recv_timeout(DEADLINE).expect("the puppet answers"))
    }

    /// Its process.
    pub fn program(&mut self) -> &mut Program {
        &mut self.program
    }
}

impl Client for Puppet {
    #[track_caller]
    fn call(&mut self, method: &str, path: &str, body: Option<&Value>) -> Answer {
        let body = body.map(Value::to_string).unwrap_or_default();
        answer_in(&self.tell(&json!({"do": "call", "method": method, "path": path, "body": body})))
    }
}

#[track_caller]
fn answer_in(reply: &Value) -> Answer {
    assert!(reply["error"].is_null(), "the puppet's call failed: {reply}");
    Answer {
        status: u16::try_from(reply["status"].as_u64().unwrap_or(0)).expect("an HTTP status"),
        headers: serde_json::from_value(reply["headers"].clone()).expect("pairs of text"),
        body: reply["body"].as_str().unwrap_or_default().as_bytes().to_vec(),
    }
}

fn event_in(line: &Value) -> Seen {
    let text = |key: &str| line[key].as_str().unwrap_or_default();
    let number = |key: &str| line[key].as_u64().unwrap_or_default();
    let event = Event::parse(text("name"), text("data")).expect("the puppet parsed it before");
    let event = event.expect("the puppet knew its name");
    Seen { id: number("id"), at_ns: number("at_ns"), event }
}

fn log_of(logs: &Mutex<HashMap<u64, Arc<EventLog>>>, stream: u64) -> Arc<EventLog> {
    Arc::clone(logs.lock().expect("no thread panics with it").entry(stream).or_default())
}
