//! Names that a terminal, a log, a protocol or a store would interpret: no face of a gateway takes them.

use std::process::Command;

use serde_json::{Value, json};
use tenure_tests::harness::{Gateway, Key, Stranger, binary};

/// Longest name that is taken, bytes.
const LONGEST: usize = 200;

/// Names that are good for nothing.
fn bad_names() -> Vec<String> {
    let written = [
        "",
        "a\u{1b}[31m",
        "a\r\nb",
        "a\0b",
        "a\u{202e}b",
        "a\u{200d}b",
        "a\u{9b}b",
        "cafe\u{301}",
    ];
    let long = [LONGEST + 1, 240_000].map(|length| "x".repeat(length));
    written.map(str::to_owned).into_iter().chain(long).collect()
}

#[test]
fn no_name_that_something_would_interpret_is_taken_of_agents() {
    let key = Key::within("laptop", &["--right", "all"]);
    let gateway = Gateway::start_with("embedded:", &[&key]);
    let caller = Stranger::new(&gateway, &key);
    let good = |kind: &str| json!({"tenant": "acme", "kind": kind, "name": "web"});
    // Each place in which a name may stand.
    let calls: Vec<(&str, Value, &str)> = ["leader", "master", "lease", "semaphore"]
        .into_iter()
        .flat_map(|kind| {
            let claim = caller.claim(1, &good(kind), 1, false);
            ["/resource/name", "/resource/tenant", "/owner/name", "/owner/host"]
                .map(|place| ("claim", claim.clone(), place))
        })
        .chain([
            ("claim", caller.claim(1, &good("lease"), 1, false), "/terms/Lease/attributes/address"),
            ("announce", caller.announce("acme", "web"), "/project"),
            ("announce", caller.announce("acme", "web"), "/tenant"),
            ("announce", caller.announce("acme", "web"), "/surface"),
        ])
        .collect();
    for (operation, body, place) in calls {
        for name in bad_names() {
            let mut body = body.clone();
            *body.pointer_mut(place).expect("the call has it") = json!(name);
            let (status, problem) = caller.ask(operation, &body);
            let shown: String = name.escape_debug().take(30).collect();
            assert_eq!(status, 422, "{operation} {place} {shown:?}: {problem}");
            assert!(problem["field"].is_string(), "{operation} {place} {shown:?}: {problem}");
            let detail = problem["detail"].as_str().expect("a refusal has a detail");
            let is_quoted = !detail.contains(char::is_control) && detail.len() < 1000;
            assert!(is_quoted, "{operation} {place} {shown:?}: {detail:?}");
        }
    }
    // What stores put between the parts of a key.
    for place in ["/resource/tenant", "/owner/host"] {
        let mut body = caller.claim(1, &good("leader"), 1, false);
        *body.pointer_mut(place).expect("a claim has it") = json!("a:b");
        let status = caller.ask("claim", &body).0;
        assert_eq!(status, if place == "/owner/host" { 200 } else { 422 }, "{place}");
    }
    let log = gateway.log();
    assert!(!log.contains(|letter: char| letter.is_control() && letter != '\n'), "{log:?}");
}

#[test]
fn no_key_is_made_for_a_name_that_could_not_be_used() {
    for bound in ["--tenant=a:b", "--tenant=a\u{1b}[31m", "--project=a:b", "--subject=a\u{202e}b"] {
        let mut command = Command::new(binary("tenured-gateway"));
        command.args(["keys", "new"]).arg(bound);
        if !bound.starts_with("--subject") {
            command.arg("--subject=laptop");
        }
        let output = command.output().expect("it can be run");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && output.stdout.is_empty(), "{bound:?}: {output:?}");
        assert!(!said.contains(['\u{1b}', '\u{202e}']), "{bound:?}: {said:?}");
    }
}
