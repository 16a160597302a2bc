//! What a key does not let its principal do to others, unless it was given the right.

use serde_json::{Value, json};
use tenure_tests::harness::{Gateway, Key, Stranger};

const KINDS: [&str; 4] = ["leader", "master", "lease", "semaphore"];

fn resource(kind: &str) -> Value {
    json!({"tenant": "acme", "kind": kind, "name": "web"})
}

fn revoke(resource: &Value, token: Option<u64>) -> Value {
    let revocation = json!({"by": "root on db1", "reason": "upgrade", "for_ms": 3_600_000});
    json!({"resource": resource, "token": token, "revocation": revocation})
}

fn token(held: &Value) -> u64 {
    held["Held"]["token"].as_u64().unwrap_or_else(|| panic!("{held}"))
}

/// The rows of `keys list` and of the file alike name the rights of a key.
#[test]
fn a_key_has_the_rights_that_its_maker_names_and_no_others() {
    let (none, some) =
        (Key::new("a"), Key::within("b", &["--right", "revoke", "--right", "owners"]));
    let all = Key::within("c", &["--right", "all"]);
    assert!(!none.line.contains("rights"), "{}", none.line);
    assert!(some.line.contains(r#"rights = ["revoke", "owners"]"#), "{}", some.line);
    let gateway = Gateway::start_with("embedded:", &[&none, &some, &all]);
    let list = gateway.keys(&["list"]);
    assert!(list.contains(r#"rights = ["revoke", "owners"]"#), "{list}");
    assert!(list.contains(r#"rights = ["all"]"#), "{list}");
}

#[test]
fn what_others_hold_is_taken_by_those_with_the_right_alone_and_in_the_gateways_words() {
    let keys = [
        Key::within("laptop", &["--tenant", "acme", "--priority-max", "0"]),
        Key::within("prod", &["--tenant", "acme"]),
        Key::within("ops", &["--tenant", "acme", "--right", "revoke"]),
        Key::within("bounded", &["--right", "revoke", "--priority-max", "0"]),
    ];
    let gateway = Gateway::start_with("embedded:", &keys.each_ref());
    let [laptop, prod, ops, bounded] = keys.each_ref().map(|key| Stranger::new(&gateway, key));
    prod.done("announce", &prod.announce("acme", "web"));
    for (number, kind) in KINDS.into_iter().enumerate() {
        let resource = resource(kind);
        let claim =
            prod.claim(number + 1, &resource, if kind == "master" { 100 } else { 1 }, false);
        let held = token(&prod.done("claim", &claim));
        for one in [None, Some(held)] {
            let detail = laptop.lacks("revoke", &revoke(&resource, one), "revoke");
            assert!(detail.contains(kind) && detail.contains("\"web\""), "{detail}");
        }
        // A token that is still to come takes nothing, either.
        let later = laptop.done("revoke", &revoke(&resource, Some(held + 1)));
        assert_eq!(later["revoked"], 0, "{kind}");
        assert!(
            prod.done("renew", &prod.renew(number + 1, &resource))["beats"][0]["Held"].is_object()
        );
        // Its own it takes at any time.
        assert_eq!(prod.done("revoke", &revoke(&resource, Some(held)))["revoked"], 1, "{kind}");
        let mut again =
            prod.claim(number + 10, &resource, if kind == "master" { 100 } else { 1 }, false);
        again["owner"]["session"] = json!(prod.id(900));
        prod.done("claim", &again);
        if kind == "master" {
            // The store does not tell priorities: of masters a bounded key takes its own alone.
            let (status, problem) = bounded.ask("revoke", &revoke(&resource, None));
            assert_eq!((status, &problem["field"]), (403, &json!("priority_max")), "{problem}");
        }
        assert_eq!(ops.done("revoke", &revoke(&resource, None))["revoked"], 1, "{kind}");
        let beats = prod.done("renew", &prod.renew(number + 10, &resource));
        let told = &beats["revocations"]["0"];
        assert_eq!(told["by"], "ops at 127.0.0.1", "{kind}: {beats}");
        assert_eq!((&told["reason"], &told["for_ms"]), (&json!("upgrade"), &json!(3_600_000)));
    }
}

#[test]
fn own_permits_are_taken_one_by_one_while_others_hold_some() {
    let keys = [Key::new("alpha"), Key::new("beta")];
    let gateway = Gateway::start_with("embedded:", &keys.each_ref());
    let [alpha, beta] = keys.each_ref().map(|key| Stranger::new(&gateway, key));
    let gpu = resource("semaphore");
    let own = token(&alpha.done("claim", &alpha.claim(1, &gpu, 3, false)));
    token(&alpha.done("claim", &alpha.claim(2, &gpu, 3, false)));
    assert_eq!(alpha.done("revoke", &revoke(&gpu, Some(own)))["revoked"], 1);
    token(&beta.done("claim", &beta.claim(1, &gpu, 3, false)));
    alpha.lacks("revoke", &revoke(&gpu, None), "revoke");
    assert!(beta.done("renew", &beta.renew(1, &gpu))["beats"][0]["Held"].is_object());
    beta.done("release", &beta.release(1, &gpu));
    assert_eq!(alpha.done("revoke", &revoke(&gpu, None))["revoked"], 1);
}

#[test]
fn a_bound_of_priority_holds_on_the_way_of_surfaces_and_of_leases_that_are_taken_over() {
    let keys = [Key::within("laptop", &["--priority-max", "0"]), Key::new("prod")];
    let gateway = Gateway::start_with("embedded:", &keys.each_ref());
    let [laptop, prod] = keys.each_ref().map(|key| Stranger::new(&gateway, key));
    let register =
        json!({"project_id": "web", "agent_identity": "x", "agent_surface": "claude_desktop"});
    let (status, problem) = laptop.call("POST /api/v1/controller/register", &register.to_string());
    assert_eq!((status, &problem["field"]), (403, &json!("priority_max")), "{problem}");
    let lease = resource("lease");
    token(&prod.done("claim", &prod.claim(1, &lease, 0, false)));
    let mut over = laptop.claim(1, &lease, 0, false);
    over["terms"]["Lease"]["take_over"] =
        json!({"from": prod.id(1), "unbeaten": {"secs": 0, "nanos": 0}});
    assert_eq!(laptop.ask("claim", &over).0, 404);
    assert!(prod.done("renew", &prod.renew(1, &lease))["beats"][0]["Held"].is_object());
}
