//! Deeds that concern other principals, which a key lets its bearer do with the right alone.

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

#[test]
fn a_limit_that_others_go_by_is_changed_with_the_right_alone() {
    let keys = [Key::new("laptop"), Key::new("prod"), Key::within("ops", &["--right", "limit"])];
    let gateway = Gateway::start_with("embedded:", &keys.each_ref());
    limits_stay(&gateway, &keys);
}

/// The only user of a semaphore sets the limit; while others hold or wait it stays.
fn limits_stay(gateway: &Gateway, keys: &[Key; 3]) {
    let [laptop, prod, ops] = keys.each_ref().map(|key| Stranger::new(gateway, key));
    let gpu = resource("semaphore");
    let limit = |answer: &Value, stage: &str| answer[stage]["limit"].as_u64();
    // Alone, with holds of its own.
    assert_eq!(limit(&prod.done("claim", &prod.claim(1, &gpu, 1, false)), "Held"), Some(1));
    assert_eq!(limit(&prod.done("claim", &prod.claim(2, &gpu, 2, true)), "Held"), Some(2));
    for enqueue in [false, true] {
        for asked in [1, 1000] {
            let detail = laptop.lacks("claim", &laptop.claim(1, &gpu, asked, enqueue), "limit");
            assert!(detail.contains(&format!("from 2 to {asked}")), "{detail}");
        }
    }
    let standing = prod.done("inspect", &json!({"resource": gpu}));
    assert_eq!((&standing["limit"], &standing["waiting"]), (&json!(2), &json!(0)), "{standing}");
    // With the limit in force it queues as everybody does, and then the holder must leave the limit, too.
    let waiting = laptop.done("claim", &laptop.claim(2, &gpu, 2, true));
    assert_eq!(waiting["Waiting"]["position"], 1, "{waiting}");
    prod.lacks("claim", &prod.claim(3, &gpu, 3, true), "limit");
    assert_eq!(limit(&ops.done("claim", &ops.claim(1, &gpu, 4, true)), "Held"), Some(4));
    assert!(laptop.done("renew", &laptop.renew(2, &gpu))["beats"][0]["Held"].is_object());
}

fn of_grant(caller: &Stranger<'_>, id: usize, resource: &Value, token: u64, what: &str) -> Value {
    json!({"resource": resource, "claim": caller.id(id), "token": token, "what": what,
        "owner": {"session": caller.id(0), "host": "db1", "name": "dba on call"},
        "holder": {"program": {"user": "root", "command": "rm -rf /"}},
        "end": {"reason": "revoked", "by": "root on db1"},
        "held": {"secs": 500_000, "nanos": 0}, "ago": {"secs": 500_000, "nanos": 0}})
}

#[test]
fn nobody_fills_the_history_of_what_others_hold() {
    let keys =
        [Key::new("evil"), Key::within("prod", &["--right", "history", "--right", "owners"])];
    let gateway = Gateway::start_with("embedded:", &keys.each_ref());
    let [evil, prod] = keys.each_ref().map(|key| Stranger::new(&gateway, key));
    let payroll = resource("leader");
    let held = token(&prod.done("claim", &prod.claim(1, &payroll, 0, false)));
    let told = |caller: &Stranger<'_>, changes: Vec<Value>| {
        caller.done("record", &json!({"changes": changes}));
    };
    told(&prod, vec![of_grant(&prod, 1, &payroll, held, "granted")]);
    // Under ids of its own, as one that was granted, and under the id of another.
    let flood = (0..60).map(|at| of_grant(&evil, 100 + at, &payroll, held, "granted")).collect();
    told(&evil, flood);
    told(&evil, vec![of_grant(&prod, 1, &payroll, held, "lost")]);
    // Its own hold does not vouch for another resource, or token, or a second time.
    let own = json!({"tenant": "acme", "kind": "leader", "name": "own"});
    let of_own = token(&evil.done("claim", &evil.claim(1, &own, 0, false)));
    let grant = of_grant(&evil, 1, &own, of_own, "granted");
    told(
        &evil,
        vec![
            of_grant(&evil, 1, &payroll, of_own, "granted"),
            of_grant(&evil, 1, &own, of_own + 1, "granted"),
            grant.clone(),
            grant,
        ],
    );
    let history = |of: &Value| prod.done("history", &json!({"resource": of}))["changes"].clone();
    let changes = history(&payroll);
    assert_eq!(changes.as_array().map(Vec::len), Some(1), "{changes}");
    assert_eq!(changes[0]["holder"]["program"]["user"], "root at prod");
    let changes = history(&own);
    assert_eq!(changes.as_array().map(Vec::len), Some(1), "{changes}");
    let change = &changes[0];
    assert_eq!(change["holder"]["program"]["user"], "root at evil", "{change}");
    assert!(change["end"]["by"].is_null(), "no revocation is known: {change}");
    assert!(change["ago"]["secs"].as_u64() < Some(60), "it was granted here just now: {change}");
    evil.lacks("history", &json!({"resource": own}), "history");
}

#[test]
fn who_others_are_is_told_with_the_right_alone_and_work_goes_on() {
    let keys = [
        Key::within("alpha", &["--right", "history"]),
        Key::new("beta"),
        Key::within("gamma", &["--right", "owners", "--right", "history"]),
    ];
    let gateway = Gateway::start_with("embedded:", &keys.each_ref());
    let [alpha, beta, gamma] = keys.each_ref().map(|key| Stranger::new(&gateway, key));
    let leader = resource("leader");
    let held = token(&beta.done("claim", &beta.claim(1, &leader, 0, false)));
    beta.done("record", &json!({"changes": [of_grant(&beta, 1, &leader, held, "granted")]}));
    for (caller, sees) in [(&alpha, false), (&gamma, true)] {
        let contended = caller.done("claim", &caller.claim(1, &leader, 0, false));
        let holder = &contended["Contended"]["holder"];
        let standing = caller.done("inspect", &json!({"resource": leader}));
        for entry in [holder, &standing["holders"][0]] {
            assert_eq!(entry["token"], held, "{entry}");
            assert_eq!(beta.owns(&entry["claim"]), sees, "{entry}");
            assert_eq!(beta.owns(&entry["owner"]["session"]), sees, "{entry}");
            assert_eq!(entry["owner"]["name"] == "another principal", !sees, "{entry}");
        }
        let history = caller.done("history", &json!({"resource": leader}));
        assert_eq!(history.to_string().contains("dba on call"), sees, "{history}");
    }
    // Members of one project: an own session is as it is, and the other is there without its name.
    for caller in [&alpha, &beta] {
        caller.done("announce", &caller.announce("acme", "web"));
    }
    let within =
        json!({"within": {"project": {"tenant": "acme", "project": "web"}}, "listed": true});
    let members = alpha.done("members", &within)["sessions"].clone();
    let members = members.as_array().expect("a list");
    let (own, others): (Vec<_>, Vec<_>) =
        members.iter().partition(|member| alpha.owns(&member["session"]));
    assert_eq!((own.len(), others.len()), (1, 1), "{members:?}");
    assert!(
        others.iter().all(|it| it["name"] == "another principal" && !beta.owns(&it["session"]))
    );
    let (status, state) =
        alpha.call("GET /api/v1/controller/status?project_id=web&tenant_id=acme", "");
    assert_eq!(status, 200, "{state}");
    assert!(!state.to_string().contains(&beta.id(0)), "{state}");
    assert!(state.to_string().contains(&alpha.id(0)), "{state}");
}

#[test]
fn numbers_and_examinations_take_rights_of_their_own() {
    let keys = [Key::new("none"), Key::within("ops", &["--right", "all"])];
    let gateway = Gateway::start_with("embedded:", &keys.each_ref());
    let [none, ops] = keys.each_ref().map(|key| Stranger::new(&gateway, key));
    for (head, right) in [("GET /metrics", "metrics"), ("POST /v1/upstream/examine", "examine")] {
        let (status, problem) = none.call(head, "");
        assert_eq!((status, &problem["field"]), (403, &json!(right)), "{problem}");
        assert_eq!(ops.call(head, "").0, 200, "{head}");
    }
    let agents = json!({"within": {"project": {"tenant": "tenure.agents", "project": "agents"}}, "listed": true});
    none.lacks("members", &agents, "agents");
    ops.done("members", &agents);
}
