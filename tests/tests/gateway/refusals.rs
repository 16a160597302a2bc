//! A gateway that does not start says why: the thing, its value, the rule and the way out.

use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use tempfile::TempDir;
use tenure_tests::harness::{Authority, Key, binary};

/// Wrong configuration, and an address or a directory that cannot be used, as sysexits(3) has them.
const CONFIG: i32 = 78;
const UNAVAILABLE: i32 = 69;

/// Runs a gateway to its end, with DIR for the directory of the test; its exit code and what it said.
fn run(dir: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(binary("tenured-gateway"));
    let arguments = arguments.iter().map(|argument| argument.replace("DIR", dir));
    command.env_clear().args(arguments).args(["--log", "off", "--config"]);
    let output = command.arg(format!("{dir}/empty")).output().expect("it can be run");
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&said).replace(dir, "DIR"))
}

/// Files, good ones and bad ones.
fn files(authority: &Authority) -> TempDir {
    let dir = TempDir::with_prefix("tenured-").expect("a temporary directory can be made");
    let keys = Key::new("laptop-7").line;
    let pem = |name: &str| fs::read_to_string(authority.path(name)).expect("it was made");
    for (name, text, mode) in [
        ("empty", "", 0o600),
        ("good.pem", &pem("gateway.pem"), 0o600),
        ("good.key", &pem("gateway.key"), 0o600),
        ("other.key", &pem("other.key"), 0o600),
        ("keys", &keys, 0o600),
        ("keys-twice", &keys.repeat(2), 0o600),
        ("keys-of-all", &keys, 0o666),
        ("no-keys", "laptop-7", 0o600),
        ("secret-of-all", "hunter2", 0o644),
    ] {
        let path = dir.path().join(name);
        fs::write(&path, text).expect("it is ours");
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("it is ours");
    }
    let open = dir.path().join("of-all");
    fs::create_dir(&open).expect("it is ours");
    fs::set_permissions(&open, Permissions::from_mode(0o777)).expect("it is ours");
    dir
}

/// Flags, and words that are said of them.
type Refused = (&'static [&'static str], &'static str);

/// Wrong settings, and files that they name, which `check-config` finds as well.
const WRONG: [Refused; 27] = [
    (
        &["--tls-cert-file=DIR/none", "--tls-key-file=DIR/good.key"],
        "tls.cert_file = \"DIR/none\": must be a readable file: No such file",
    ),
    (
        &["--tls-cert-file=DIR/empty", "--tls-key-file=DIR/good.key"],
        "tls.cert_file = \"DIR/empty\": must contain certificates in PEM format, and has none",
    ),
    (
        &["--tls-cert-file=DIR/good.pem", "--tls-key-file=DIR/empty"],
        "tls.key_file = \"DIR/empty\": must contain a private key in PEM format, and has none",
    ),
    (
        &["--tls-cert-file=DIR/good.pem", "--tls-key-file=DIR/other.key"],
        "tls.key_file = \"DIR/other.key\": must be the key of the certificate",
    ),
    (
        &[
            "--tls-cert-file=DIR/good.pem",
            "--tls-key-file=DIR/good.key",
            "--tls-client-ca-file=DIR/empty",
        ],
        "tls.client_ca_file = \"DIR/empty\": must contain certificates in PEM format",
    ),
    (&["--tls-cert-file=DIR/good.pem"], "\"DIR/good.pem\": must have its key in tls.key_file"),
    (
        &["--tls-key-file=DIR/good.key"],
        "\"DIR/good.key\": must have its certificate in tls.cert_file",
    ),
    (
        &["--tls-client-ca-file=DIR/good.pem"],
        "name the gateway's certificate in tls.cert_file, too",
    ),
    (&["--tls-cert-file=good.pem"], "tls.cert_file = \"good.pem\": must be an absolute path"),
    (
        &["--keys-file=DIR/none"],
        "keys_file DIR/none: cannot be read; `tenured-gateway keys add` makes it with its first key",
    ),
    (
        &["--keys-file=DIR/keys-of-all"],
        "may be written by its group or by everybody (mode 0666): chmod go-w it",
    ),
    (&["--keys-file=DIR/keys-twice"], "is there twice: take one of the two out"),
    (&["--keys-file=DIR/no-keys"], "keys_file DIR/no-keys: is no TOML with sections [[key]]"),
    (
        &["--keys-file=DIR/keys", "--keys-in-store"],
        "keys are in one place; leave one of the two out",
    ),
    (
        &["--listen=gateway.example:1"],
        "listen = \"gateway.example:1\": must be an address with a port, such as",
    ),
    (
        &["--listen=0.0.0.0:1"],
        "nobody is asked for a key: use a loopback address, or keys_in_store",
    ),
    (
        &["--listen=0.0.0.0:1", "--keys-file=DIR/keys"],
        "there is no TLS: use a loopback address, give tls.cert_file and tls.key_file, or accept it",
    ),
    (
        &["--upstream=mysql://h"],
        "not the URL of an upstream; use \"embedded:\", or a Redis such as",
    ),
    (&["--upstream=redis://h/x"], "must have the number of a database"),
    (&["--upstream=https://h"], "is another gateway: name the store behind it"),
    (
        &["--upstream=redis://me@h", "--upstream-secret-file=DIR/secret-of-all"],
        "upstream_secret_file = \"DIR/secret-of-all\": must not be open to every user of this host, and has mode 0644: chmod 600 it",
    ),
    (&["--mode=lan"], "keys_in_store = false: must be true in mode lan, or keys_file be given"),
    (
        &["--mode=lan", "--keys-in-store"],
        "must have a password in mode lan: whoever reaches the Redis could take every hold",
    ),
    (
        &["--mode=lan", "--keys-in-store", "--upstream=redis://:prism_server@h"],
        "is the password of a published example, which everybody knows",
    ),
    (&["--mode=cloud", "--keys-in-store"], "must be given in mode cloud: name the managed Redis"),
    (&["--mode=home"], "mode = \"home\": must be local (or personal, development), lan, or cloud"),
    (&["--log-format=text"], "log_format = \"text\": must be auto, human, json or journald"),
];

/// Things of this host that cannot be had.
const UNUSABLE: [Refused; 4] = [
    (
        &["--listen=192.0.2.1:1", "--keys-file=DIR/keys", "--insecure"],
        "listen = \"192.0.2.1:1\": must be an address of this host with a port that is free",
    ),
    (
        &["--state-dir=DIR/of-all"],
        "DIR/of-all is writable for its group or for everybody (mode 777): others could put files into it; \
         mend it (chown, chmod go-w), or choose another with --state-dir\n",
    ),
    (
        &["--state-dir=DIR/empty/x"],
        "cannot use directory DIR/empty/x: choose another with --state-dir",
    ),
    (
        &["--audit=DIR/none/audit"],
        "audit = \"DIR/none/audit\": must be a file that can be written to, in a directory that is there",
    ),
];

#[test]
fn a_refusal_names_the_thing_the_value_the_rule_and_the_way_out() {
    let authority = Authority::new();
    authority.issue("gateway", "IP:127.0.0.1");
    authority.issue("other", "IP:127.0.0.1");
    let files = files(&authority);
    let dir = files.path().to_str().expect("a plain path");
    let places = ["--runtime-dir=DIR/run"];
    for (arguments, words) in WRONG {
        // The latter says the same before the gateway is started, or reloaded.
        for command in [&[][..], &["check-config"]] {
            let (code, said) = run(dir, &[command, &places, arguments].concat());
            assert!(said.contains(words), "{arguments:?}: {said}");
            assert_eq!(code, Some(CONFIG), "{arguments:?}: {said}");
            assert_eq!(said.lines().count(), 1, "{arguments:?}: {said}");
            assert!(!said.contains("hunter2") && !said.contains("prism_server"), "{said}");
        }
    }
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let taken = format!("--listen={}", taken.local_addr().expect("it has one"));
    let (code, said) = run(dir, &[&taken, places[0], "--state-dir=DIR/state"]);
    let words = "must be an address of this host with a port that is free: Address already in use";
    assert!(code == Some(UNAVAILABLE) && said.contains(words), "{said}");
    for (arguments, words) in UNUSABLE {
        let state: &[&str] =
            if words.contains("--state-dir") { &[] } else { &["--state-dir=DIR/state"] };
        let (code, said) = run(dir, &[&places, arguments, state].concat());
        assert!(said.contains(words), "{arguments:?}: {said}");
        assert_eq!(code, Some(UNAVAILABLE), "{arguments:?}: {said}");
    }
}
