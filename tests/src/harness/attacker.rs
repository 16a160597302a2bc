//! A program that takes all that it is given, as a user of its own. See `src/bin/attacker.rs`.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

use anyhow::Context as _;
use serde_json::Value;

use super::{Agent, Program, copy_for_others};

/// A process of `attacker`. Dropping it kills it.
pub struct Attacker {
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    _program: Program,
}

impl Attacker {
    /// Starts it as a user, which need not exist, and waits until it is ready. Takes root, and an agent that is
    /// open to all.
    pub fn start(agent: &Agent, uid: u32, attack: &[&str]) -> anyhow::Result<Attacker> {
        let mut command = Command::new(copy_for_others("attacker", agent.dir()));
        command.arg(agent.socket()).args(attack).uid(uid).gid(uid).current_dir("/");
        let mut program = Program::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
        let orders = program.pipes().stdin.take().context("its input is piped")?;
        let answers = program.pipes().stdout.take().context("its output is piped")?;
        let mut attacker = Attacker { orders, answers: BufReader::new(answers), _program: program };
        attacker.answer()?;
        Ok(attacker)
    }

    /// Lets it begin.
    pub fn begin(&mut self) -> anyhow::Result<()> {
        Ok(self.orders.write_all(b"\n")?)
    }

    /// The things it saw, and how often.
    pub fn seen(&mut self) -> anyhow::Result<Value> {
        self.begin()?;
        self.answer()
    }

    fn answer(&mut self) -> anyhow::Result<Value> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        serde_json::from_str(&line).context("it ended")
    }
}
