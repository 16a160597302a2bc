//! Programs in other languages that a test talks to: one JSON command a line, one JSON line back. See `tests/python/lines.py`
//! and `tests/go/lines.go`.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;

use serde_json::{Value, json};

use super::{Program, Watched};

/// A program that obeys commands side by side. Dropping it kills it.
pub struct Foreign {
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

impl Foreign {
    /// Starts it.
    #[track_caller]
    pub(super) fn start(command: &mut Command) -> Foreign {
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
        Foreign { program, state, commands: 0 }
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
        assert!(answer["error"].is_null(), "the client failed: {answer}");
        answer["result"].clone()
    }

    /// Waits for the answer to a command: `result` or `error`, and of a Python program `at_ns`.
    #[track_caller]
    pub fn answer(&self, pending: Pending) -> Value {
        self.wait("an answer of a client", |state| state.answers.get(&pending.0).cloned())
    }

    /// The answer to a command, if it has come.
    pub fn answered(&self, pending: Pending) -> Option<Value> {
        self.state.lock().answers.get(&pending.0).cloned()
    }

    /// Cancels a command of a Python program; its answer is an error.
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
        self.event_after(after, &format!("{name} of a client"), pick)
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
        stdin.write_all(format!("{command}\n").as_bytes()).expect("the client listens");
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
