//! Callers of the control plane that mean no good, or are broken: each is told so, nothing is held, and others go on.

use std::process::Command;

use serde_json::json;
use tenure_tests::harness::{Gateway, MAILBOX, RfcRunners, eventually, rss_kib};

const ACQUIRE: &str = "/prism.admin.v1.ControlPlane/AcquireLease";
const HEARTBEAT: &str = "/prism.admin.v1.ControlPlane/MailboxHeartbeat";
const RELEASE: &str = "/prism.admin.v1.ControlPlane/ReleaseLease";
const REGISTER: &str = "/prism.ControlPlane/RegisterProxy";
const WATCH: &str = "/tenure.v1.Routes/Watch";

/// A value on the wire.
#[derive(Debug, Clone)]
enum Sent {
    Text(Vec<u8>),
    Number(i64),
}

fn text(text: impl Into<Vec<u8>>) -> Sent {
    Sent::Text(text.into())
}

fn varint(mut number: u64, into: &mut Vec<u8>) {
    while number >= 0x80 {
        into.push(u8::try_from(number & 0x7f).unwrap() | 0x80);
        number >>= 7;
    }
    into.push(u8::try_from(number).unwrap());
}

/// A message; of a field that is there twice the last value counts.
fn message(fields: &[(u64, Sent)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (number, value) in fields {
        match value {
            Sent::Text(text) => {
                varint(number << 3 | 2, &mut bytes);
                varint(text.len() as u64, &mut bytes);
                bytes.extend(text);
            }
            Sent::Number(value) => {
                varint(number << 3, &mut bytes);
                varint(value.cast_unsigned(), &mut bytes);
            }
        }
    }
    bytes
}

/// Calls with one wrong field each.
struct Wrong<'a> {
    path: &'a str,
    good: Vec<(u64, Sent)>,
    gateway: &'a Gateway,
}

impl Wrong<'_> {
    /// The answer says the field, the value or its length, and the rule.
    #[track_caller]
    fn is_refused(&self, runners: &mut RfcRunners, number: u64, value: Sent, words: [&str; 2]) {
        let mut fields = self.good.clone();
        fields.push((number, value.clone()));
        let answer = runners.raw("a", self.path, &message(&fields));
        let shown = format!("{} {number} = {value:.60?}: {answer}", self.path);
        assert_eq!(answer["code"], "INVALID_ARGUMENT", "{shown}");
        let details = answer["details"].as_str().unwrap();
        assert!(words.iter().all(|word| details.contains(word)), "{shown}");
        nothing_is_held(self.gateway);
    }
}

#[track_caller]
fn nothing_is_held(gateway: &Gateway) {
    let body = json!({"tenant": "default", "name": null, "page": {"after": null, "limit": 9}});
    let (_, answer) = gateway.call("POST /v1/upstream/routes", &body.to_string()).unwrap();
    assert!(answer.contains("\"routes\":[]"), "{answer}");
}

const NO_UTF8: &[u8] = b"a\xff\xfe";

/// Texts that are wrong in any call.
fn wrong_texts(field: &str, least: usize) -> Vec<(Sent, [String; 2])> {
    let rule = "1 to 200 bytes of visible UTF-8".to_owned();
    let mut wrong = vec![
        (text("x".repeat(201)), [field.to_owned(), "this has 201".to_owned()]),
        (text("x".repeat(20_000)), [field.to_owned(), "this has 20000".to_owned()]),
        (text("a\nb"), [field.to_owned(), rule.clone()]),
        (text("a\0"), [field.to_owned(), rule.clone()]),
        (text("\u{85}"), [field.to_owned(), rule.clone()]),
        (text(NO_UTF8), [field.to_owned(), "UTF-8".to_owned()]),
        // A number where a text is expected.
        (Sent::Number(1), [field.to_owned(), "wire type".to_owned()]),
    ];
    if least > 0 {
        wrong.push((text(""), [field.to_owned(), rule]));
    }
    wrong
}

#[test]
fn every_field_that_is_wrong_is_named_and_nothing_is_held() {
    let gateway = Gateway::start("embedded:");
    let mut runners = RfcRunners::start();
    runners.open("a", &gateway, &json!({}));
    let ids = vec![(1, text(MAILBOX)), (2, text("runner-01"))];
    let of = |path| Wrong { path, good: ids.clone(), gateway: &gateway };
    let texts = |calls: &Wrong, runners: &mut RfcRunners, number, field: &str, least| {
        for (value, [field, rule]) in wrong_texts(field, least) {
            calls.is_refused(runners, number, value, [&field, &rule]);
        }
    };
    for calls in [of(ACQUIRE), of(HEARTBEAT), of(RELEASE)] {
        texts(&calls, &mut runners, 1, "mailbox_id", 1);
        texts(&calls, &mut runners, 2, "runner_id", 1);
    }
    let acquire = of(ACQUIRE);
    texts(&acquire, &mut runners, 3, "proxy_id", 0);
    texts(&acquire, &mut runners, 5, "address", 0);
    acquire.is_refused(&mut runners, 3, text("proxy-02"), ["proxy_id", "'proxy-02'"]);
    for (partition, shown) in [(-1, "-1"), (256, "256"), (i64::from(i32::MAX), "2147483647")] {
        acquire.is_refused(&mut runners, 4, Sent::Number(partition), ["partition", shown]);
    }
    acquire.is_refused(
        &mut runners,
        4,
        Sent::Number(i32::MIN.into()),
        ["partition", "-2147483648"],
    );
    for ttl in [86_401, i64::from(i32::MAX), i64::MAX] {
        let shown = format!("is {ttl}");
        acquire.is_refused(&mut runners, 6, Sent::Number(ttl), ["ttl_seconds", &shown]);
    }
    let heartbeat = of(HEARTBEAT);
    for status in ["expiring", "expired", "a\tb", &"s".repeat(33)] {
        heartbeat.is_refused(&mut runners, 7, text(status), ["status", "s"]);
    }
    let proxy = vec![(1, text("proxy-01")), (2, text("127.0.0.1:1"))];
    let register = Wrong { path: REGISTER, good: proxy, gateway: &gateway };
    texts(&register, &mut runners, 1, "proxy_id", 1);
    texts(&register, &mut runners, 2, "address", 1);
    for address in
        ["nowhere", "h:", ":1", "h:0", "h:99999", "http://h:1", "u@h:1", "h:1/p", "a b:1"]
    {
        register.is_refused(&mut runners, 2, text(address), ["address must be HOST:PORT", address]);
    }
    let watch = Wrong { path: WATCH, good: Vec::new(), gateway: &gateway };
    texts(&watch, &mut runners, 2, "tenant", 0);

    for (name, value) in
        [("x-tenure-incarnation", "i".repeat(201)), ("x-tenure-tenant", String::new())]
    {
        runners.open("named", &gateway, &json!({name: value}));
        let answer = runners.acquire("named", "runner-01");
        assert_eq!(
            (&answer["code"], &answer["trailing"]["tenure-field"]),
            (&json!("INVALID_ARGUMENT"), &json!(name))
        );
    }
    nothing_is_held(&gateway);
}

#[test]
fn what_is_at_a_bound_or_does_not_matter_is_taken() {
    let gateway = Gateway::start("embedded:");
    let mut runners = RfcRunners::start();
    runners.open("a", &gateway, &json!({}));
    let ids = |more: &[(u64, Sent)]| {
        let ids = [(1, text("m".repeat(200))), (2, text("é".repeat(100)))];
        message(&[&ids, more].concat())
    };
    for (number, value) in [
        (4, 0),
        (4, 255),
        (6, 0),
        (6, -1),
        (6, i64::MIN),
        (6, 1),
        (6, 86_400),
        // A field that the file does not have.
        (99, 7),
    ] {
        let answer = runners.raw("a", ACQUIRE, &ids(&[(number, Sent::Number(value))]));
        // success = true.
        let hex = answer["hex"].as_str().unwrap_or_default().to_owned();
        assert!(hex.starts_with("0801"), "{number} = {value}: {answer}");
    }
    assert_eq!(runners.call("update", "a", &json!({}))["code"], "UNIMPLEMENTED", "for proxies");
    // A number that cannot be is no reason for losing a lease.
    for value in [-1, i64::MIN, i64::MAX] {
        for number in [4, 5, 6] {
            let answer = runners.raw("a", HEARTBEAT, &ids(&[(number, Sent::Number(value))]));
            let hex = answer["hex"].as_str().unwrap_or_default().to_owned();
            assert!(hex.starts_with("0801"), "{number} = {value}: {answer}");
        }
    }
    let (_, metrics) = gateway.call("GET /metrics", "").unwrap();
    let most = format!("mailbox_storage_bytes {}\n", i64::MAX);
    assert!(metrics.contains(&most), "{metrics}");
    // A cursor that no page of this gateway ended with is the caller's mistake, and no failure of the store.
    for cursor in ["nonsense", "-1", "99999999999999999999", "5 \u{0}", &"9".repeat(5000)] {
        let page = json!({"after": cursor, "limit": 9});
        let body = json!({"tenant": "default", "name": null, "page": page}).to_string();
        assert_eq!(gateway.call("POST /v1/upstream/routes", &body).unwrap().0, 422, "{cursor}");
    }
    // A version that no gateway gave: all routes.
    for version in [1, 2, -1, i64::MAX] {
        let answer = runners.raw("a", WATCH, &message(&[(1, Sent::Number(version))]));
        let hex = answer["hex"].as_str().unwrap_or_default();
        assert!(answer["code"] == "OK" && hex.contains("1001"), "{version}: {answer}");
    }
}

#[test]
fn a_message_that_is_too_long_is_refused_and_the_connection_goes_on() {
    let gateway = Gateway::start("embedded:");
    let mut runners = RfcRunners::start();
    runners.open("a", &gateway, &json!({}));
    assert_eq!(runners.acquire("a", "runner-01")["success"], true);
    let before = rss_kib(gateway.pid());
    // A field of zeros that no file has.
    let padded = |bytes: usize| {
        let mut head = message(&[(1, text(MAILBOX)), (2, text("runner-01"))]);
        varint(99 << 3 | 2, &mut head);
        let room = bytes - head.len() - 3;
        varint(room as u64, &mut head);
        (head, json!({"zeros": room}))
    };
    for path in [ACQUIRE, HEARTBEAT, RELEASE, REGISTER, WATCH, "/grpc.health.v1.Health/Check"] {
        for bytes in [(64 << 10) + 1, 1 << 20, 2 << 20] {
            let (head, zeros) = padded(bytes);
            let answer = runners.raw_with("a", path, &head, &zeros);
            assert_eq!(answer["code"], "RESOURCE_EXHAUSTED", "{path} {bytes}: {answer}");
            let details = answer["details"].as_str().unwrap();
            assert!(details.contains("65536 bytes at most"), "{details}");
        }
    }
    // Again and again, 4 MiB each.
    for _ in 0..50 {
        let answer = runners.raw_with("a", HEARTBEAT, &[], &json!({"zeros": 4 << 20}));
        assert_eq!(answer["code"], "RESOURCE_EXHAUSTED", "{answer}");
    }
    // It would be 64 MiB.
    let bomb = runners.raw_with("a", HEARTBEAT, &[], &json!({"zeros": 64 << 20, "gzip": true}));
    assert_eq!(bomb["code"], "UNIMPLEMENTED", "{bomb}");
    let kib = rss_kib(gateway.pid()) - before;
    eprintln!("{kib} KiB");
    assert!(kib < 16 << 10, "{kib} KiB");
    let (head, zeros) = padded(64 << 10);
    assert_eq!(runners.raw_with("a", HEARTBEAT, &head, &zeros)["code"], "OK", "as long as may be");
    // It is a run of its own if it has another connection: it has the same.
    assert_eq!(runners.heartbeat("a", "runner-01")["lease_renewed"], true);
}

/// The output of curl for a call by HTTP/2 with these bytes as its body.
fn curl(gateway: &Gateway, path: &str, args: &[&str], body: &[u8]) -> String {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), body).unwrap();
    let output = Command::new("curl")
        .args([
            "--silent",
            "--show-error",
            "--noproxy",
            "*",
            "--http2-prior-knowledge",
            "--include",
        ])
        .args(["--max-time", "30", "--header", "te: trailers"])
        .arg("--data-binary")
        .arg(format!("@{}", file.path().display()))
        .args(args)
        .arg(format!("{}{path}", gateway.url()))
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&text).into_owned()
}

#[test]
fn what_is_not_quite_grpc_is_told_so() {
    let gateway = Gateway::start("embedded:");
    let grpc = ["--header", "content-type: application/grpc"];
    let good = message(&[(1, text(MAILBOX)), (2, text("runner-01"))]);
    let framed = |flag: u8, length: usize| {
        let length = u32::try_from(length).unwrap().to_be_bytes();
        [&[flag][..], &length, &good].concat()
    };
    let whole = framed(0, good.len());
    for (name, path, args, body, expected) in [
        ("no service", "/no.such/Thing", &grpc[..], whole.clone(), "grpc-status: 12"),
        (
            "no method",
            "/prism.admin.v1.ControlPlane/Nothing",
            &grpc,
            whole.clone(),
            "grpc-status: 12",
        ),
        ("no message", RELEASE, &grpc, Vec::new(), "grpc-status: 3"),
        ("half a frame", RELEASE, &grpc, whole[..3].to_vec(), "grpc-status: 3"),
        ("half a message", RELEASE, &grpc, whole[..whole.len() - 1].to_vec(), "grpc-status: 3"),
        ("a longer length", RELEASE, &grpc, framed(0, 60_000), "grpc-status: 3"),
        ("a huge length", RELEASE, &grpc, framed(0, u32::MAX as usize), "grpc-status: 8"),
        ("a wrong flag", RELEASE, &grpc, framed(9, good.len()), "grpc-status: 3"),
        ("compressed by nothing", RELEASE, &grpc, framed(1, good.len()), "grpc-status: 3"),
        ("garbage", RELEASE, &grpc, framed(0, 3), "grpc-status: 3"),
        (
            "an unknown compression",
            RELEASE,
            &["--header", "content-type: application/grpc", "--header", "grpc-encoding: zip"],
            framed(1, good.len()),
            "grpc-status: 12",
        ),
        (
            "JSON",
            RELEASE,
            &["--header", "content-type: application/json"],
            whole.clone(),
            "HTTP/2 415",
        ),
        (
            "gRPC-Web",
            RELEASE,
            &["--header", "content-type: application/grpc-web+proto"],
            whole.clone(),
            "HTTP/2 415",
        ),
        ("no type", RELEASE, &["--header", "content-type:"], whole.clone(), "HTTP/2 415"),
        (
            "GET",
            RELEASE,
            &["--get", "--header", "content-type: application/grpc"],
            Vec::new(),
            "HTTP/2 405",
        ),
        ("what is right", RELEASE, &grpc, whole.clone(), "HTTP/2 200"),
    ] {
        // Curl may miss an answer that comes before its body was read.
        let answer = eventually("an answer that curl reads", || {
            Some(curl(&gateway, path, args, &body)).filter(|it| !it.contains("curl: (92)"))
        });
        assert!(answer.contains(expected), "{name}: {answer}");
    }
    // By HTTP/1.1 the same bytes are the same call.
    let answer = curl(&gateway, RELEASE, &["--http1.1", grpc[0], grpc[1]], &whole);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    nothing_is_held(&gateway);
}
