//! The store is away and comes back: what a status says of it, to people and to scripts.

use std::process::Command;

use tenure::wire::UpstreamState;
use tenure_tests::harness::{Client, Fleet, Gateway, RedisServer, binary, start_agent, until};

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

#[test]
fn behind_a_gateway_the_store_is_told_to_be_away_and_not_slow() {
    let mut redis = RedisServer::start();
    let mut gateway = Gateway::start(&redis.url());
    let agent = start_agent(0, &gateway.url(), "");
    let state = || agent.http().status().upstream.state;
    let tenure = |word: &str| {
        let mut command = Command::new(binary("tenure"));
        command.env("TENURE_SOCKET", agent.socket()).arg(word);
        let out = command.output().expect("the command runs");
        let said = String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned();
        println!("$ tenure {word}\n{said}");
        (out.status.code(), said)
    };
    until("the agent to be up", || state() == UpstreamState::Up);
    redis.process().pause();
    until("the agent to be told", || state() == UpstreamState::Down);
    let (code, said) = tenure("status");
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains(", its store (redis) down for "), "{said}");
    assert!(said.contains("status: the gateway's store (redis) is down for "), "{said}");
    let (code, said) = tenure("doctor");
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("answers, its store (redis) is down for "), "{said}");
    assert!(said.contains("failure  redis.connection"), "{said}");
    assert!(!said.contains("too slow"), "{said}");
    // An agent that comes later is told, too.
    let late = start_agent(1, &gateway.url(), "");
    until("the other to be told", || late.http().status().upstream.state == UpstreamState::Down);
    // Nobody knows the store of a gateway that is gone itself.
    gateway.kill();
    until("the gateway to be missed", || {
        let upstream = agent.http().status().upstream;
        upstream.state == UpstreamState::Down && upstream.behind.is_none()
    });
    redis.process().resume();
    gateway.start_again();
    until("it to be back", || state() == UpstreamState::Up);
    redis.process().pause();
    until("it to be away again", || state() == UpstreamState::Down);
    redis.process().resume();
    until("it to be back again", || state() == UpstreamState::Up);
    let (code, said) = tenure("status");
    assert!(code == Some(0) && said.contains("(was down "), "{code:?}: {said}");
}
