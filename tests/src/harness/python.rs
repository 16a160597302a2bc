//! Foreign programs in Python. See `tests/python/`.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use serde_json::{Value, json};

use super::{Program, Watched, binary};

/// A Python program that obeys commands side by side. Dropping it kills it.
pub struct Python {
    program: Program,
    state: Arc<Watched<State>>,
    commands: u64,
}

/// A command that was given and may not be answered yet.
#[derive(Debug, Clone, Copy)]
pub struct Pending(u64);

#[derive(Default)]
struct State {
    answers: HashMap<u64, Value>,
    events: Vec<Value>,
    finished: bool,
}

impl Python {
    /// Starts a program of `tests/python/`.
    #[track_caller]
    pub fn start(script: &str, arguments: &[&str]) -> Python {
        Python::start_by(&mut command(script, arguments))
    }

    /// Starts a program of `tests/python/` in the network of another process. Takes root.
    #[track_caller]
    pub fn start_in_network(of: u32, script: &str, arguments: &[&str]) -> Python {
        let program = command(script, arguments);
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{of}/ns/net")).arg("--").arg(program.get_program());
        command.args(program.get_args()).env("PYTHONDONTWRITEBYTECODE", "1");
        Python::start_by(&mut command)
    }

    /// A program of the documentation, which speaks to nobody here.
    pub fn example(path: &str, arguments: &[&str]) -> Command {
        command(&format!("../../docs/{path}"), arguments)
    }

    /// A module of the environment, run as a program.
    pub fn module(name: &str) -> Command {
        let mut command = Command::new(interpreter());
        command.args(["-m", name]).env("PYTHONDONTWRITEBYTECODE", "1");
        command
    }

    /// A program of a package of the environment.
    pub fn tool(name: &str) -> Command {
        Command::new(interpreter().with_file_name(name))
    }

    #[track_caller]
    fn start_by(command: &mut Command) -> Python {
        let mut program = Program::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
        let out = program.pipes().stdout.take().expect("standard output is piped");
        let state = Arc::new(Watched::<State>::default());
        std::thread::spawn({
            let state = Arc::clone(&state);
            move || {
                for line in BufReader::new(out).lines().map_while(Result::ok) {
                    let line: Value = serde_json::from_str(&line).expect("clients speak JSON");
                    state.change(|state| match line["id"].as_u64() {
                        Some(id) => drop(state.answers.insert(id, line)),
                        None => state.events.push(line),
                    });
                }
                state.change(|state| state.finished = true);
            }
        });
        Python { program, state, commands: 0 }
    }

    /// Runs a program of `tests/python/` to its end, which must succeed. Returns the JSON that it
    /// printed.
    #[track_caller]
    pub fn run(script: &str, arguments: &[&str]) -> Value {
        let output = command(script, arguments).output().expect("the interpreter can be started");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{script} {arguments:?}: {errors}");
        serde_json::from_slice(&output.stdout).expect("it prints JSON")
    }

    /// A client of the semaphore package.
    #[track_caller]
    pub fn package(url: &str) -> Python {
        Python::start("package_client.py", &[url])
    }

    /// A candidate of ADR-0004.
    #[track_caller]
    pub fn candidate(url: &str) -> Python {
        Python::start("leader_client.py", &[url])
    }

    /// A backend of the session plane.
    #[track_caller]
    pub fn backend(url: &str) -> Python {
        Python::start("session_client.py", &[url])
    }

    /// Gives a command without waiting for its answer.
    #[track_caller]
    pub fn begin(&mut self, what: &str, with: &Value) -> Pending {
        self.commands += 1;
        let mut command = with.clone();
        command["do"] = json!(what);
        command["id"] = json!(self.commands);
        self.tell(&command);
        Pending(self.commands)
    }

    /// Gives a command, which must succeed.
    #[track_caller]
    pub fn call(&mut self, what: &str, with: &Value) -> Value {
        let pending = self.begin(what, with);
        self.result(pending)
    }

    /// Waits for the result of a command, which must succeed.
    #[track_caller]
    pub fn result(&self, pending: Pending) -> Value {
        let answer = self.answer(pending);
        assert!(answer["error"].is_null(), "the Python client failed: {answer}");
        answer["result"].clone()
    }

    /// Waits for the answer to a command: `at_ns`, and `result` or `error`.
    #[track_caller]
    pub fn answer(&self, pending: Pending) -> Value {
        self.wait("an answer of a Python client", |state| state.answers.get(&pending.0).cloned())
    }

    /// The answer to a command, if it has come.
    pub fn answered(&self, pending: Pending) -> Option<Value> {
        self.state.lock().answers.get(&pending.0).cloned()
    }

    /// Cancels a command; its answer is an error.
    #[track_caller]
    pub fn cancel(&mut self, pending: Pending) {
        self.tell(&json!({"do": "cancel", "of": pending.0}));
    }

    /// All events so far.
    pub fn events(&self) -> Vec<Value> {
        self.state.lock().events.clone()
    }

    /// Waits for the first event from the `after`th on for which `pick` finds something.
    #[track_caller]
    pub fn event_after<T>(
        &self,
        after: usize,
        what: &str,
        mut pick: impl FnMut(&Value) -> Option<T>,
    ) -> T {
        self.wait(what, |state| state.events.get(after..)?.iter().find_map(&mut pick))
    }

    /// Waits for the first event with this name from the `after`th on.
    #[track_caller]
    pub fn event(&self, after: usize, name: &str) -> Value {
        let pick = |event: &Value| (event["event"] == name).then(|| event.clone());
        self.event_after(after, &format!("{name} of a Python client"), pick)
    }

    /// Its process.
    pub fn program(&mut self) -> &mut Program {
        &mut self.program
    }

    /// Ends its standard input, and waits until it has ended.
    #[track_caller]
    pub fn finish(mut self) {
        drop(self.program.pipes().stdin.take());
        self.program.wait();
    }

    #[track_caller]
    fn tell(&mut self, command: &Value) {
        let stdin = self.program.pipes().stdin.as_mut().expect("standard input is piped");
        stdin.write_all(format!("{command}\n").as_bytes()).expect("the Python client listens");
    }

    #[track_caller]
    fn wait<T>(&self, what: &str, mut look: impl FnMut(&State) -> Option<T>) -> T {
        // Found, or in vain because it has ended.
        let found = self.state.wait(|state| {
            look(state).map(Ok).or_else(|| state.finished.then(|| Err(state.events.clone())))
        });
        let (why, events) = match found {
            Ok(Ok(found)) => return found,
            Ok(Err(events)) => ("it has ended", events),
            Err(state) => ("it is silent", state.events.clone()),
        };
        panic!("waited in vain for {what}: {why}; its events were {events:#?}")
    }
}

pub(super) fn command(script: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(interpreter());
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("python").join(script));
    // Its bytecode would lie in the source tree.
    command.args(arguments).env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

/// The interpreter of the environment that `tests/run` makes in the build directory.
pub fn interpreter() -> PathBuf {
    let puppet = binary("puppet");
    let target = puppet.parent().and_then(Path::parent).expect("a profile lies in a directory");
    let interpreter = target.join("python").join("bin").join("python");
    assert!(
        interpreter.exists(),
        "{} is missing: run tests/run once, which makes it",
        interpreter.display()
    );
    interpreter
}
