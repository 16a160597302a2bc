//! `tenure limit`.

use std::process::Command;

use serde_json::json;
use tenure_tests::harness::{Agent, Client, Fleet, binary};

fn limit(agent: &Agent, args: &[&str]) -> (Option<i32>, String) {
    let out = Command::new(binary("tenure"))
        .env("TENURE_SOCKET", agent.socket())
        .arg("limit")
        .args(args)
        .output()
        .expect("the command runs");
    let said = [out.stdout, out.stderr].concat();
    (out.status.code(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn it_is_shown_and_changed_for_everybody_whether_a_permit_is_free_or_not() {
    let fleet = Fleet::start();
    let [here, there] = &fleet.agents[..] else { panic!("two agents") };
    let (code, said) = limit(here, &["encode", "3"]);
    assert!(code == Some(1) && said.contains("nobody holds or waits"), "{code:?}: {said}");
    let mut http = there.http();
    let session = http.register(&json!({})).session;
    http.acquire(session, "semaphore", "encode", &json!({"limit": 2}));
    let shown = "semaphore/encode: limit 2; 1 held\n";
    assert_eq!(limit(here, &["encode"]), (Some(0), shown.to_owned()));
    let changed = "semaphore/encode: limit 1 instead of 2, for everybody; 1 held\n";
    assert_eq!(limit(here, &["encode", "1"]), (Some(0), changed.to_owned()), "one is free");
    let raised = "semaphore/encode: limit 5 instead of 1, for everybody; 1 held\n";
    assert_eq!(limit(here, &["encode", "5"]), (Some(0), raised.to_owned()), "none is free");
    let lowered = "semaphore/encode: limit 1 instead of 5, for everybody; 1 held\n";
    assert_eq!(limit(here, &["encode", "1"]), (Some(0), lowered.to_owned()));
    assert_eq!(http.standing("semaphore", "encode").limit, Some(1));
    assert_eq!(here.counts(), (0, 0, 0), "no permit, and no session");
    let (code, said) = limit(here, &["encode", "0"]);
    assert_ne!(code, Some(0), "{said}");
}
