//! Callers that go away while their answer is on its way.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::thread;

use serde_json::{Value, json};
use tenure::wire::HoldState;
use tenure_tests::harness::{Agent, Client, until};
use uuid::Uuid;

/// The bytes of a request.
fn request(path: &str, body: &Value) -> Vec<u8> {
    let body = body.to_string();
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nhost: agent\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

fn waits(agent: &Agent, session: Uuid) -> bool {
    let status = agent.http().status();
    let mut holds =
        status.sessions.iter().filter(|it| it.session == session).flat_map(|it| &it.holds);
    holds.any(|hold| hold.state == HoldState::Waiting)
}

/// In each round a caller that waits goes away, without reading, just when it is granted what it
/// waits for. Nothing may be left in its name: the next one gets it at once.
fn race(rounds: usize) {
    let agent = Agent::start();
    let mut http = agent.http();
    let [holder, gone, next] =
        [(); 3].map(|()| http.register(&json!({"keepalive_ms": 3_600_000})).session);
    let kinds = [("leader", json!({})), ("semaphore", json!({"limit": 1})), ("lease", json!({}))];
    for round in 0..rounds {
        let (kind, more) = &kinds[round % kinds.len()];
        let held = http.acquire(holder, kind, "contended", more);
        let mut caller = UnixStream::connect(agent.socket()).expect("the agent listens");
        let ask = json!({"session": gone, "kind": kind, "name": "contended", "wait": "block"});
        caller.write_all(&request("/v1/acquire", &ask)).expect("the agent reads");
        until("the caller to wait", || waits(&agent, gone));

        let mut releases = UnixStream::connect(agent.socket()).expect("the agent listens");
        let release = request("/v1/release", &json!({"session": holder, "hold": held.hold}));
        match round % 4 {
            0 => {
                releases.write_all(&release).expect("the agent reads");
                drop(caller);
            }
            1 => {
                drop(caller);
                releases.write_all(&release).expect("the agent reads");
            }
            2 => {
                let leaves = thread::spawn(move || drop(caller));
                releases.write_all(&release).expect("the agent reads");
                leaves.join().expect("closing does not fail");
            }
            // It is granted, and goes without reading what is there to be read.
            _ => {
                releases.write_all(&release).expect("the agent reads");
                until("the grant", || !waits(&agent, gone));
                drop(caller);
            }
        }
        let more = json!({"wait": "block", "timeout_ms": 60_000});
        let granted = http.acquire(next, kind, "contended", &more);
        assert!(http.release(next, granted.hold), "round {round}");
    }
    until("nothing to be left", || agent.counts() == (3, 0, 0));
}

#[test]
fn a_grant_whose_caller_has_gone_goes_to_the_next() {
    race(200);
}

/// `cargo test -p tenure-tests --test agent gone_callers -- --ignored`
#[test]
#[ignore = "takes long; the same as above, ten times as often"]
fn a_grant_whose_caller_has_gone_goes_to_the_next_two_thousand_times() {
    race(2000);
}
