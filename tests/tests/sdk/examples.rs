//! The examples of the Rust SDK, as they are built beside the tests, against a real agent.

use std::io::{BufRead, BufReader, Read};
use std::process::{ChildStdout, Command, Stdio};

use nix::sys::signal::Signal;
use serde_json::json;
use tenure_tests::harness::{Agent, Client, Program, RedisServer, binary, until};

struct Example {
    program: Program,
    said: BufReader<ChildStdout>,
}

impl Example {
    #[track_caller]
    fn start(agent: &Agent, name: &str, arguments: &[&str]) -> Example {
        let examples = binary("tenure").with_file_name("examples");
        let path = examples.join(name);
        assert!(path.exists(), "{} is missing: cargo build -p tenure --examples", path.display());
        let mut command = Command::new(path);
        command.args(arguments).env("TENURE_SOCKET", agent.socket()).stdout(Stdio::piped());
        let mut program = Program::start(&mut command);
        let said = program.pipes().stdout.take().expect("standard output is piped");
        Example { program, said: BufReader::new(said) }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.said.read_line(&mut line).expect("it speaks UTF-8");
        line.trim_end().to_owned()
    }

    /// Its last words; it must succeed.
    #[track_caller]
    fn finish(mut self) -> String {
        let mut rest = String::new();
        self.said.read_to_string(&mut rest).expect("it speaks UTF-8");
        let status = self.program.wait();
        assert!(status.success(), "{status}: {rest}");
        rest
    }
}

#[test]
fn leaders_take_over_term_after_term() {
    let agent = Agent::start();
    let mut first = Example::start(&agent, "campaign", &[]);
    let told = first.line();
    assert!(told.starts_with("I lead, with the fencing token "), "{told}");
    let mut second = Example::start(&agent, "campaign", &[]);
    until("the second to wait", || agent.counts().2 == 1);
    agent.http().post("/v1/revoke", &json!({"kind": "leader", "name": "nightly"})).json(200);
    assert!(second.line().starts_with("I lead"));
    // The first one has seen its loss, and stands again.
    until("the first to wait", || agent.counts().2 == 1);
    second.program.signal(Signal::SIGKILL);
    assert!(first.line().starts_with("I lead"));
}

#[test]
fn workers_stay_below_their_limit() {
    let agent = Agent::start();
    let said = Example::start(&agent, "workers", &[]).finish();
    assert_eq!(said.lines().filter(|line| line.contains("runs with token")).count(), 10, "{said}");
    assert!(said.ends_with("all is done\n"), "{said}");
    until("nothing to be left", || agent.counts() == (0, 0, 0));
}

#[test]
fn guarded_work_ends_with_its_result() {
    let agent = Agent::start();
    assert!(Example::start(&agent, "guarded", &[]).finish().ends_with(" rows\n"));
    assert_eq!(agent.counts(), (0, 0, 0), "it gave back before it ended");
}

#[test]
fn a_service_is_ready_where_it_leads() {
    let agent = Agent::start();
    let mut service = Example::start(&agent, "readiness", &[]);
    let url = service.line();
    let ready = || {
        let mut curl = Command::new("curl");
        let status = curl.args(["--silent", "--fail", "--output", "/dev/null", &url]).status();
        status.expect("curl can be started").success()
    };
    until("it to lead", ready);
    let mut other = Example::start(&agent, "readiness", &[]);
    let other_url = other.line();
    assert_ne!(url, other_url);
    until("the other to wait", || agent.counts().2 == 1);
    agent.http().post("/v1/revoke", &json!({"kind": "leader", "name": "service"})).json(200);
    until("it not to lead any more", || !ready());
}

#[test]
fn a_late_write_is_refused() {
    let (agent, redis) = (Agent::start(), RedisServer::start());
    let said = Example::start(&agent, "fencing", &[&redis.url()]).finish();
    assert_eq!(said, "the holder's write: true\na late write of an earlier holder: false\n");
}
