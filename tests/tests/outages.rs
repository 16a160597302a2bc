//! The store is away and comes back: what a status says of it, to people and to scripts.

use std::process::Command;

use tenure::wire::UpstreamState;
use tenure_tests::harness::{Client, Fleet, RedisServer, binary, until};

#[test]
fn a_status_says_since_when_and_fails_while_the_store_is_away() {
    let mut fleet = Fleet::start_with(RedisServer::start(), 1, "");
    let agent = &fleet.agents[0];
    let status = || {
        let out = Command::new(binary("tenure"))
            .env("TENURE_SOCKET", agent.socket())
            .arg("status")
            .output()
            .expect("the command runs");
        let said = String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned();
        (out.status.code(), said)
    };
    until("the agent to be up", || agent.http().status().upstream.state == UpstreamState::Up);
    let (code, said) = status();
    assert!(code == Some(0) && said.contains("redis up for "), "{code:?}: {said}");
    assert!(!said.contains("was down"), "to connect for the first time is no outage: {said}");
    fleet.redis.pause();
    until("the agent to notice", || agent.http().status().upstream.state == UpstreamState::Down);
    let (code, said) = status();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("redis down for ") && said.contains("last error"), "{said}");
    assert!(said.contains("the upstream is down for "), "{said}");
    fleet.redis.resume();
    until("it to be back", || agent.http().status().upstream.state == UpstreamState::Up);
    let upstream = agent.http().status().upstream;
    let outage = upstream.outage.expect("it was away");
    assert!(outage.lasted_ms > 0 && upstream.since_ms.is_some(), "{upstream:?}");
    let (code, said) = status();
    assert!(code == Some(0) && said.contains("(was down "), "{code:?}: {said}");
}
