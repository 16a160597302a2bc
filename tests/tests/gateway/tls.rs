//! A gateway that speaks TLS, to agents that know its authority and to others.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::json;
use tenure::wire::UpstreamState;
use tenure_tests::harness::{
    Agent, Authority, Campaigner, Client, Gateway, Key, start_agent, until,
};

const LOCAL: &str = "IP:127.0.0.1,DNS:localhost";

fn authority() -> Authority {
    let authority = Authority::new();
    authority.issue("gateway", LOCAL);
    authority
}

/// The arguments of a gateway with this certificate.
fn args(authority: &Authority, name: &str) -> Vec<String> {
    let path = |extension| authority.path(&format!("{name}.{extension}")).display().to_string();
    vec![format!("--tls-cert-file={}", path("pem")), format!("--tls-key-file={}", path("key"))]
}

/// The same where clients may show a certificate of this authority, too.
fn mutual(authority: &Authority) -> Vec<String> {
    let ca = authority.path("ca.pem");
    [args(authority, "gateway"), vec![format!("--tls-client-ca-file={}", ca.display())]].concat()
}

fn gateway(authority: &Authority) -> Gateway {
    Gateway::start_by("embedded:", &[], &args(authority, "gateway"))
}

/// The section of an agent that trusts this authority, and shows this certificate.
fn section(authority: &Authority, shown: Option<(&Authority, &str)>) -> String {
    let key = |key: &str, path: &Path| format!("{key} = {:?}\n", path.display().to_string());
    let mut text = format!("[gateway]\n{}", key("tls_ca_file", &authority.path("ca.pem")));
    if let Some((authority, name)) = shown {
        text += &key("tls_cert_file", &authority.path(&format!("{name}.pem")));
        text += &key("tls_key_file", &authority.path(&format!("{name}.key")));
    }
    text
}

/// What curl says, and prints of this.
fn curl(authority: &Authority, url: &str, args: &[&str]) -> (bool, String) {
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--noproxy", "*", "--cacert"]);
    let output = command.arg(authority.path("ca.pem")).args(args).arg(url).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

fn is_good(authority: &Authority, gateway: &Gateway) -> bool {
    curl(authority, &format!("{}/healthz", gateway.url()), &[]).0
}

fn is_refused(agent: &Agent, words: &str) {
    let mut last = String::new();
    until(&format!("the agent to say {words:?}"), || {
        let upstream = agent.http().status().upstream;
        let error = upstream.last_error.unwrap_or_default();
        if error != last {
            eprintln!("{error}");
            last = error;
        }
        upstream.state != UpstreamState::Up && last.contains(words)
    });
}

#[test]
fn agents_and_others_speak_tls() {
    let authority = authority();
    let gateway = gateway(&authority);
    let agents = [0, 1].map(|at| start_agent(at, &gateway.url(), &section(&authority, None)));
    let mut first = Campaigner::start(&agents[0], "first");
    let mut second = Campaigner::start(&agents[1], "second");
    let held = first.acquire("leader", "role", &json!({}));
    let waiting = second.queue("leader", "role", &json!({}));
    first.release(held.hold);
    assert!(second.events.granted(waiting).token > held.token);

    let url = format!("{}/healthz", gateway.url());
    for (asked, spoken) in [("--http2", "2"), ("--http1.1", "1.1")] {
        let print = "%{http_version}";
        let done = curl(&authority, &url, &[asked, "--output", "/dev/null", "--write-out", print]);
        assert_eq!(done, (true, spoken.to_owned()));
    }
    let (done, said) = curl(&authority, &url.replace("https", "http"), &[]);
    assert!(!done || said.is_empty(), "{said}");
}

#[test]
fn an_agent_says_what_is_wrong_with_a_certificate() {
    let (known, stranger) = (authority(), Authority::new());
    known.issue("elsewhere", "DNS:elsewhere");
    known.issue_for("expired", "/CN=expired", LOCAL, -1);
    let plain = Gateway::start("embedded:");
    let with = |name| Gateway::start_by("embedded:", &[], &args(&known, name));
    let [good, elsewhere, expired] = ["gateway", "elsewhere", "expired"].map(with);
    for (gateway, url, trusted, words) in [
        (&good, good.url(), &stranger, "the authority of its certificate is not trusted"),
        (&elsewhere, elsewhere.url(), &known, "its certificate is for another name"),
        (&expired, expired.url(), &known, "its certificate is not valid at this time"),
        (&plain, plain.url().replace("http:", "https:"), &known, "write http:// in upstream"),
    ] {
        let agent = start_agent(0, &url, &section(trusted, None));
        is_refused(&agent, words);
        assert!(!gateway.log().contains("panicked"));
    }
    assert!(expired.log().contains("the certificate has expired"));
    let agent = start_agent(0, &good.url().replace("https:", "http:"), "");
    until("the agent to notice", || agent.http().status().upstream.last_error.is_some());
    assert_ne!(agent.http().status().upstream.state, UpstreamState::Up);
}

#[test]
fn a_bad_reload_changes_nothing_and_a_good_one_holds_for_new_connections() {
    let (authority, next) = (authority(), authority());
    let gateway = gateway(&authority);
    assert!(gateway.log().contains("the certificate expires soon"));
    let agent = start_agent(0, &gateway.url(), &section(&authority, None));
    let mut client = Campaigner::start(&agent, "client");
    client.acquire("leader", "role", &json!({}));
    next.issue_for("expired", "/CN=expired", LOCAL, -1);
    let text = |name: &str| fs::read_to_string(next.path(name)).unwrap();
    let [old, old_key] = ["gateway.pem", "gateway.key"]
        .map(|name| fs::read_to_string(authority.path(name)).unwrap());
    let put = |certificate: &str, key: &str| {
        fs::write(authority.path("gateway.pem"), certificate).unwrap();
        fs::write(authority.path("gateway.key"), key).unwrap();
        gateway.reload();
    };
    for (certificate, key, words) in [
        ("", &*old_key, ["tls.cert_file", "must contain certificates"]),
        (&old[..old.len() / 2], &old_key, ["tls.cert_file", "must contain certificates"]),
        (&old, "", ["tls.key_file", "must contain a private key"]),
        (&old, &text("gateway.key"), ["tls.key_file", "must be the key of the certificate"]),
        (&text("expired.pem"), &text("expired.key"), ["gateway.pem", "has expired"]),
    ] {
        let before = gateway.log().len();
        put(certificate, key);
        until("the gateway to say why", || {
            let log = &gateway.log()[before..];
            log.contains("not reloaded") && words.iter().all(|word| log.contains(word))
        });
        assert!(is_good(&authority, &gateway), "{words:?}");
    }
    put(&text("gateway.pem"), &text("gateway.key"));
    until("the new certificate", || is_good(&next, &gateway));
    assert!(!is_good(&authority, &gateway));
    // An open connection stays.
    client.acquire("leader", "another", &json!({}));
    assert_eq!(agent.http().status().upstream.state, UpstreamState::Up);
    assert!(!gateway.log().contains("PRIVATE"));
}

/// The mark of who asks so; the status where it is refused.
fn mark(authority: &Authority, gateway: &Gateway, args: &[&str]) -> Result<String, String> {
    // Over HTTP/2 curl may miss an answer that comes before its body was read.
    let hello =
        ["--http1.1", "--json", r#"{"protocol":1,"version":"x"}"#, "--write-out", "\n%{http_code}"];
    let url = format!("{}/v1/upstream/hello", gateway.url());
    let (done, said) = curl(authority, &url, &[&hello, args].concat());
    match said.rsplit_once('\n') {
        Some((body, "200")) if done => {
            let welcome: serde_json::Value = serde_json::from_str(body).unwrap();
            Ok(welcome["mark"].as_str().unwrap().to_owned())
        }
        _ => Err(said),
    }
}

#[test]
fn a_certificate_names_a_principal() {
    let (authority, stranger) = (authority(), Authority::new());
    let laptop = "/O=acme/CN=laptop-7";
    authority.issue_for("laptop", laptop, "DNS:x", 2);
    authority.issue_for("again", laptop, "DNS:y", 2);
    authority.issue_for("workload", laptop, "URI:spiffe://acme/ci,DNS:z", 2);
    authority.issue_for("two", laptop, "URI:spiffe://acme/a,URI:spiffe://acme/b", 2);
    authority.issue_for("nameless", "/O=acme", "DNS:z", 2);
    authority.issue_for("expired", laptop, "DNS:z", -1);
    stranger.issue_for("stranger", laptop, "DNS:x", 2);
    let shown = |name: &str| {
        let path = |extension| authority.path(&format!("{name}.{extension}")).display().to_string();
        [path("pem"), path("key")]
    };
    let key = Key::new("laptop-7");
    let alone = Gateway::start_by("embedded:", &[], &mutual(&authority));
    let with_keys = Gateway::start_by("embedded:", &[&key], &mutual(&authority));
    for gateway in [&alone, &with_keys] {
        let of = |name: &str| {
            let [certificate, private] = shown(name);
            mark(&authority, gateway, &["--cert", &certificate, "--key", &private])
        };
        let laptop = of("laptop").unwrap();
        assert_eq!(of("again").as_ref(), Ok(&laptop));
        assert_ne!(of("workload").unwrap(), laptop);
        for nobody in ["two", "nameless"] {
            let said = of(nobody).unwrap_err();
            assert!(said.ends_with("401"), "{nobody}: {said}");
        }
        of("expired").unwrap_err();
    }
    mark(&authority, &alone, &[]).unwrap_err();
    let header = key.header();
    let by_key = mark(&authority, &with_keys, &["--header", header.trim()]).unwrap();
    let [certificate, private] = shown("laptop");
    let by_both = ["--cert", &certificate, "--key", &private, "--header", header.trim()];
    assert_eq!(mark(&authority, &with_keys, &by_both).as_ref(), Ok(&by_key));
    let wrong = "Authorization: Bearer tnr_wrong";
    let with_wrong = ["--cert", &certificate, "--key", &private, "--header", wrong];
    assert!(mark(&authority, &with_keys, &with_wrong).unwrap_err().ends_with("401"));
    assert!(mark(&authority, &with_keys, &[]).unwrap_err().ends_with("401"));

    let agent = start_agent(0, &alone.url(), &section(&authority, Some((&authority, "laptop"))));
    Campaigner::start(&agent, "client").acquire("leader", "role", &json!({}));
    let without = start_agent(1, &alone.url(), &section(&authority, None));
    until("one without to be refused", || without.http().status().upstream.last_error.is_some());
    assert_ne!(without.http().status().upstream.state, UpstreamState::Up);
    let other = start_agent(2, &alone.url(), &section(&authority, Some((&stranger, "stranger"))));
    until("the stranger to be refused", || other.http().status().upstream.last_error.is_some());
    assert_ne!(other.http().status().upstream.state, UpstreamState::Up);
}
