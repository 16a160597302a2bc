use tenure_wire::{Acquire, Beat, Register, Release, Revoke};

use super::*;

const SESSION: &str = "00000000-0000-4000-8000-000000000001";

#[track_caller]
fn check<T: Ask>(body: &str, field: Option<&str>, says: &[&str]) {
    let body = body.replace("SESSION", SESSION);
    let problem = parse::<T>(body.as_bytes()).err().expect("refused");
    assert_eq!(problem.field.as_deref(), field, "{}", problem.detail);
    for word in says {
        assert!(problem.detail.contains(word), "{word:?} is not in {:?}", problem.detail);
    }
    assert!(problem.detail.len() < 600, "{}", problem.detail);
}

#[test]
fn what_is_wrong_is_named() {
    check::<Beat>("", None, &["is empty", "{\"session\""]);
    check::<Beat>("  \n ", None, &["is empty"]);
    check::<Beat>("session=1", None, &["not a JSON object"]);
    check::<Beat>(r#"["SESSION"]"#, None, &["not a JSON object"]);
    check::<Beat>("{", None, &["not JSON", "line 1"]);
    check::<Beat>("{}", Some("session"), &["missing field `session`", "{\"session\""]);
    check::<Beat>(r#"{"session":"x"}"#, Some("session"), &["'x'", "UUID"]);
    check::<Beat>(r#"{"session":7}"#, Some("session"), &["session is 7", "UUID"]);
    check::<Beat>(r#"{"session":"SESSION"} x"#, None, &["goes on after"]);
    check::<Beat>(r#"{"session":"SESSION","session":"SESSION"}"#, Some("session"), &["duplicate"]);
    check::<Beat>(
        r#"{"session":"SESSION","x":1}"#,
        Some("x"),
        &["unknown field `x`", "expected `session`"],
    );
    check::<Beat>(
        "{\"x\u{202e}\\n\":1}",
        Some("x\\u{202e}\\n"),
        &["unknown field `x\\u{202e}\\n`"],
    );
    check::<Acquire>(
        r#"{"session":"SESSION","kind":"lock"}"#,
        Some("kind"),
        &["'lock'", "one of `master`, `leader`, `lease`, `semaphore`"],
    );
    check::<Acquire>(
        r#"{"session":"SESSION","kind":true}"#,
        Some("kind"),
        &["kind is true", "one of `master`, `leader`, `lease`, `semaphore`"],
    );
    check::<Acquire>(
        r#"{"session":"SESSION","kind":"leader","wait":null}"#,
        Some("wait"),
        &["wait is null", "one of `none`, `block`, `queue`"],
    );
    check::<Acquire>(
        r#"{"session":"SESSION","kind":"lease","attributes":{"port":1}}"#,
        Some("attributes.port"),
        &["attributes.port is 1", "one of `address`, `proxy_id`, `partition`, `status`"],
    );
    check::<Acquire>(
        r#"{"session":"SESSION","kind":"lease","attributes":{"partition":-1}}"#,
        Some("attributes.partition"),
        &["is -1", "u16"],
    );
    check::<Acquire>(
        r#"{"session":"SESSION","kind":"lease","attributes":["a"]}"#,
        Some("attributes"),
        &["is a list"],
    );
    check::<Acquire>(
        r#"{"session":"SESSION","kind":"leader","ttl_ms":1e999}"#,
        Some("ttl_ms"),
        &["number out of range"],
    );
    check::<Acquire>(
        r#"{"session":"SESSION","kind":"leader","ttl_ms":1.5}"#,
        Some("ttl_ms"),
        &["is 1.5", "u64"],
    );
    check::<Register>(r#"{"resume":{"session":"SESSION"}}"#, Some("resume.secret"), &["missing"]);
    check::<Register>(r#"{"guarded":"yes"}"#, Some("guarded"), &["guarded is 'yes'", "a boolean"]);
    check::<Register>(r#"{"name":["a"]}"#, Some("name"), &["a list", "a string"]);
    check::<Release>(r#"{"session":"SESSION","hold":{}}"#, Some("hold"), &["an object"]);
    check::<Revoke>(r#"{"kind":"leader"}"#, Some("name"), &["missing"]);
}

#[test]
fn long_values_are_cut() {
    let long = "x".repeat(10_000);
    check::<Beat>(&format!(r#"{{"session":"{long}"}}"#), Some("session"), &["xxx…'"]);
    check::<Beat>(&format!(r#"{{"{long}":1}}"#), Some(&format!("{}…", "x".repeat(60))), &[]);
}

#[test]
fn depth_is_bounded() {
    let depth = BODY_MAX / 2;
    check::<Beat>(&"[".repeat(depth), None, &["not a JSON object"]);
    check::<Beat>(&"{\"session\":".repeat(depth / 10), Some("session"), &[]);
    let bomb =
        format!(r#"{{"session":"SESSION","kind":"lease","attributes":{}"#, "[".repeat(depth));
    check::<Acquire>(&bomb, Some("attributes"), &["is a list"]);
}

#[test]
fn garbage_is_refused() {
    for bytes in [&b"{\"session\":\"\xff\xfe\"}"[..], b"\0\0\0", b"{\xff", b"{\"a\":\"\\ud800\"}"] {
        assert!(parse::<Beat>(bytes).is_err(), "{bytes:?}");
    }
}

#[test]
fn a_registration_may_be_empty() {
    assert_eq!(parse::<Register>(b"").unwrap(), Register::default());
    assert_eq!(parse::<Register>(b" {} ").unwrap(), Register::default());
}

#[test]
fn a_whole_number_may_be_written_as_a_float() {
    let session = "00000000-0000-4000-8000-000000000001";
    let body =
        |number: &str| format!(r#"{{"session":"{session}","kind":"leader","ttl_ms":{number}}}"#);
    let ttl = |number| parse::<tenure_wire::Acquire>(body(number).as_bytes());
    assert_eq!(ttl("30000.0").unwrap().ttl_ms, Some(30_000));
    assert_eq!(ttl("3e4").unwrap().ttl_ms, Some(30_000));
    for wrong in ["0.5", "-1.0", "1e300"] {
        assert_eq!(ttl(wrong).unwrap_err().field.as_deref(), Some("ttl_ms"), "{wrong}");
    }
}
