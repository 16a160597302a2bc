//! Another user cannot see, use or end a session that is not its own.

use serde_json::json;
use tenure::wire::Code;
use tenure_tests::harness::{Agent, Client, Puppet, Session, other_users};
use uuid::Uuid;

struct Scene {
    agent: Agent,
    owner: Puppet,
    session: Session,
    hold: Uuid,
    stranger: Puppet,
}

/// `None` without root.
fn scene() -> Option<Scene> {
    let [owner, stranger] = other_users()?;
    let agent = Agent::setup().open_to_all().start();
    let mut owner = Puppet::start_as(&agent, owner);
    let stranger = Puppet::start_as(&agent, stranger);
    let with = json!({"name": "secretive", "keepalive_ms": 600_000});
    let session = owner.register(&with);
    let hold = owner.acquire(session.session, "leader", "role", &json!({})).hold;
    Some(Scene { agent, owner, session, hold, stranger })
}

/// The owner's hold is untouched.
#[track_caller]
fn check_untouched(scene: &mut Scene) {
    let snapshot = scene.owner.post("/v1/checkpoint", &json!({"session": scene.session.session}));
    let holds = snapshot.json(200)["holds"].clone();
    assert_eq!(holds[0]["hold"], json!(scene.hold), "{holds}");
    assert_eq!(holds[0]["state"], "held", "{holds}");
}

#[test]
fn every_call_on_a_strangers_session_says_that_there_is_none() {
    let Some(mut scene) = scene() else { return };
    let session = scene.session.session;
    let stranger = &mut scene.stranger;
    let own = stranger.register(&json!({})).session;
    let unknown = stranger.post("/v1/beat", &json!({"session": Uuid::nil()}));
    let unknown = unknown.problem(Code::SessionUnknown).detail;

    for path in ["/v1/beat", "/v1/checkpoint", "/v1/release"] {
        let problem =
            stranger.post(path, &json!({"session": session})).problem(Code::SessionUnknown);
        assert_eq!(
            problem.detail.replace(&session.to_string(), ""),
            unknown.replace(&Uuid::nil().to_string(), ""),
            "{path}: existence is not disclosed"
        );
    }
    let release = json!({"session": session, "hold": scene.hold});
    stranger.post("/v1/release", &release).problem(Code::SessionUnknown);
    stranger.ask(session, "leader", "other", &json!({})).problem(Code::SessionUnknown);
    stranger.refused_events(session).problem(Code::SessionUnknown);
    for secret in [scene.session.secret.as_str(), "00"] {
        let resume = json!({"session": session, "secret": secret});
        let resumed = stranger.post("/v1/register", &json!({"resume": resume}));
        resumed.problem(Code::SessionUnknown);
    }
    // Nor does the hold's id help with a session of one's own.
    assert!(!stranger.release(own, scene.hold));
    check_untouched(&mut scene);
}

#[test]
fn the_status_shows_a_stranger_nothing_and_root_everything() {
    let Some(mut scene) = scene() else { return };
    let own = scene.stranger.register(&json!({})).session;
    let seen: Vec<Uuid> = scene.stranger.status().sessions.iter().map(|s| s.session).collect();
    assert_eq!(seen, [own]);
    let root = scene.agent.http().status();
    assert!(root.sessions.iter().any(|s| s.session == scene.session.session));
    assert_eq!(root.sessions.len(), 2);
}

#[test]
fn the_page_is_for_its_owner_alone() {
    let Some(mut scene) = scene() else { return };
    let page = scene.session.page.clone();
    assert_eq!(scene.owner.read_file(&page), Ok(4096));
    let refused = scene.stranger.read_file(&page).expect_err("it is not the stranger's");
    assert!(refused.contains("denied"), "{refused}");
    let journal = scene.agent.journal().display().to_string();
    for puppet in [&mut scene.owner, &mut scene.stranger] {
        let refused = puppet.read_file(&journal).expect_err("the journal holds secrets");
        assert!(refused.contains("denied"), "{refused}");
    }
}

#[test]
fn a_stranger_contends_but_cannot_revoke() {
    let Some(mut scene) = scene() else { return };
    let own = scene.stranger.register(&json!({})).session;
    scene.stranger.ask(own, "leader", "role", &json!({})).problem(Code::Contended);
    let revoke = json!({"kind": "leader", "name": "role"});
    scene.stranger.post("/v1/revoke", &revoke).problem(Code::Forbidden);
    // Nor may an owner, even of its own.
    scene.owner.post("/v1/revoke", &revoke).problem(Code::Forbidden);
    check_untouched(&mut scene);
}

#[test]
fn only_the_agents_user_has_the_upstream_examined() {
    let Some(mut scene) = scene() else { return };
    scene.stranger.get("/v1/doctor").problem(Code::Forbidden);
    let found = scene.agent.http().get("/v1/doctor").json(200);
    assert_eq!(found["checks"][0]["name"], "embedded.journal", "{found}");
    assert_eq!(found["checks"][0]["verdict"], "ok", "{found}");
}

#[test]
fn root_may_end_and_revoke_what_others_hold() {
    let Some(mut scene) = scene() else { return };
    let events = scene.owner.open_events(scene.session.session);
    let revoke = json!({"kind": "leader", "name": "role"});
    let revoked = scene.agent.http().post("/v1/revoke", &revoke).json(200);
    assert_eq!(revoked["revoked"], 1);
    assert_eq!(events.lost(scene.hold).reason, tenure::wire::LostReason::Revoked);
    assert!(scene.agent.http().end(scene.session.session));
    assert_eq!(events.shutdown().cause, "session_ended");
}

#[test]
fn a_page_does_not_outlive_its_session() {
    let Some(mut scene) = scene() else { return };
    assert_eq!(scene.agent.pages().len(), 1);
    scene.owner.end(scene.session.session);
    assert!(scene.agent.pages().is_empty(), "{:?}", scene.agent.pages());
}
