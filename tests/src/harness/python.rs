//! Foreign programs in Python. See `tests/python/`.

use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::binaries::build_directory;
use super::foreign::Foreign;

/// A Python program that obeys commands side by side. Dropping it kills it.
pub struct Python(Foreign);

impl Python {
    /// Starts a program of `tests/python/`.
    #[track_caller]
    pub fn start(script: &str, arguments: &[&str]) -> Python {
        Python(Foreign::start(&mut command(script, arguments)))
    }

    /// Starts a program of `tests/python/` in the network of another process. Takes root.
    #[track_caller]
    pub fn start_in_network(of: u32, script: &str, arguments: &[&str]) -> Python {
        let program = command(script, arguments);
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{of}/ns/net")).arg("--").arg(program.get_program());
        command.args(program.get_args()).env("PYTHONDONTWRITEBYTECODE", "1");
        Python(Foreign::start(&mut command))
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

    /// Ends its standard input, and waits until it has ended.
    #[track_caller]
    pub fn finish(self) {
        self.0.finish();
    }
}

impl Deref for Python {
    type Target = Foreign;

    fn deref(&self) -> &Foreign {
        &self.0
    }
}

impl DerefMut for Python {
    fn deref_mut(&mut self) -> &mut Foreign {
        &mut self.0
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
    let interpreter = build_directory().join("python").join("bin").join("python");
    assert!(
        interpreter.exists(),
        "{} is missing: run tests/run once, which makes it",
        interpreter.display()
    );
    interpreter
}
