//! Each command of `tenure` while its output goes nowhere: a full disk is an error with its reason, and a reader that
//! has enough ends it without a word.

use std::fs::OpenOptions;
use std::process::{Child, Command, ExitStatus, Stdio};

use nix::sys::signal::Signal;
use tenure_tests::harness::{Agent, binary};

const COMMANDS: [&[&str]; 17] = [
    &["--help"],
    &["--version"],
    &["run", "--help"],
    &["lock", "--help"],
    &["completions", "bash"],
    &["socket"],
    &["status"],
    &["status", "--json"],
    &["ls"],
    &["agents"],
    &["standing", "leader", "role"],
    &["why", "leader", "role"],
    &["history", "leader", "role"],
    &["observe", "leader", "role"],
    &["doctor"],
    &["log"],
    &["acquire", "--leader", "role", "--for", "1h"],
];

/// Runs a command with that standard output: how it ended, and what it said on stderr.
fn run(agent: &Agent, words: &[&str], output: impl Into<Stdio>) -> (ExitStatus, String) {
    let mut command = Command::new(binary("tenure"));
    command.env("TENURE_SOCKET", agent.socket()).args(words);
    command.stdin(Stdio::null()).stdout(output).stderr(Stdio::piped());
    let ended = command.spawn().and_then(Child::wait_with_output).expect("it can be started");
    (ended.status, String::from_utf8(ended.stderr).expect("it is UTF-8"))
}

#[test]
fn a_full_disk_is_told() {
    let agent = Agent::start();
    for words in COMMANDS {
        let full = OpenOptions::new().write(true).open("/dev/full").expect("every Linux has it");
        let (status, said) = run(&agent, words, full);
        assert_eq!(status.code(), Some(1), "{words:?}: {said}");
        assert!(said.contains("standard output: No space left on device"), "{words:?}: {said}");
    }
    assert_eq!(agent.counts().1, 0, "nobody has what nobody was told of");
}

#[test]
fn a_reader_that_has_enough_is_no_error() {
    let agent = Agent::start();
    for words in COMMANDS {
        let (reader, writer) = std::io::pipe().expect("there are descriptors");
        drop(reader);
        let (status, said) = run(&agent, words, writer);
        assert_eq!((status.code(), &*said), (Some(128 + Signal::SIGPIPE as i32), ""), "{words:?}");
    }
    assert_eq!(agent.counts().1, 0, "nobody has what nobody was told of");
}
