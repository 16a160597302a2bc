//! Every wrong value is refused with its place, key, value and rule.

use std::collections::BTreeSet;
use std::fs;

use tempfile::TempDir;

use super::check;

/// A key, a value in a file, words of the rule.
type Wrong = (&'static str, &'static str, &'static str);

/// Lines of a file; the line with the mistake; the key; how the value is shown; words of the rule.
type Placed = (&'static str, usize, &'static str, &'static str, &'static str);

const DURATION: &str = "must be a duration such as \"15s\"";
const NUMBER: &str = "must be a number from 1 to 1000000";
const QUOTES: &str = "must be a text in quotes";

/// For every key of the schema at least one value that it refuses.
const WRONG: [Wrong; 75] = [
    ("socket", "7", QUOTES),
    ("socket", "\"\"", "must be a path, or a URI"),
    ("socket", "\"unix://host/x\"", "must be a path, or a URI"),
    ("upstream", "\"mysql://h\"", "use \"embedded:\", or a Redis"),
    ("upstream", "\"embedded:x\"", "takes nothing after the colon"),
    ("upstream", "\"redis://me@h\"", "must have a password"),
    ("upstream", "\"redis://h/x\"", "must have the number of a database"),
    ("upstream", "\"redis://h:70000\"", "a port from 1 to 65535"),
    ("upstream_secret_file", "\"s\"", "must be an absolute path"),
    ("state_dir", "\"here\"", "must be an absolute path"),
    ("runtime_dir", "\"\"", "must be an absolute path"),
    ("require", "\"fleets\"", "must be host or fleet"),
    ("log", "\"tenured=loud\"", "must be error, warn, info"),
    ("log", "[\"info\"]", QUOTES),
    ("log_format", "\"text\"", "must be auto, human, json or journald"),
    ("metrics_listen", "9464", QUOTES),
    ("metrics_listen", "\":9464\"", "must be an address"),
    ("metrics_listen", "\"0.0.0.0:9464\"", "say metrics_listen_public = true"),
    ("metrics_listen", "\"[::1]:0\"", "port 0 is none"),
    ("metrics_hosts", "\"http://a\"", "must be names of hosts or addresses"),
    ("metrics_listen_public", "\"yes\"", "must be true or false"),
    ("host_name", "\"\"", "1 to 200 bytes of visible UTF-8"),
    ("host_name", "\"a\\nb\"", "U+000A cannot be seen"),
    ("session.beat", "30", DURATION),
    ("master.ttl", "\"soon\"", DURATION),
    ("master.beat", "\"99ms\"", "must be at least 100ms"),
    ("leader.ttl", "\"20s\"", "must be more than twice leader.beat = 10s"),
    ("leader.beat", "\"1500us\"", "must be whole milliseconds"),
    ("lease.ttl", "true", DURATION),
    ("lease.ttl", "\"90000s\"", "to limits.ttl_max = 86400s"),
    ("lease.beat", "\"\"", DURATION),
    ("lease.grace", "\"172800s\"", "must be at most limits.ttl_max"),
    ("semaphore.ttl", "\"0s\"", "must be more than twice"),
    ("semaphore.beat", "\"40d\"", "must be from 0s to 2592000s"),
    ("margin.floor", "\"9ms\"", "must be from 10ms to 2592000s"),
    ("margin.divisor", "201", "must be a number from 1 to 200"),
    ("margin.divisor", "1.5", "must be a number without quotes"),
    ("tether.keepalive", "\"1ms\"", "must be from 100ms"),
    ("tether.linger", "\"172800s\"", "at most limits.ttl_max"),
    ("limits.ttl_min", "\"200ms\"", "must be more than 200ms"),
    ("limits.ttl_max", "\"200ms\"", "must be at least limits.ttl_min"),
    ("limits.sessions_max", "0", NUMBER),
    ("limits.sessions_max", "\"9\"", "a number without quotes"),
    ("limits.sessions_per_uid_max", "-1", NUMBER),
    ("limits.holds_per_uid_max", "0", NUMBER),
    ("limits.holds_max", "1000001", NUMBER),
    ("limits.events_kept_max", "65537", "1 to 65536"),
    ("limits.remember", "\"61m\"", "must be from 0s to 3600s"),
    ("limits.connections_max", "0", NUMBER),
    ("limits.connections_per_uid_max", "0", NUMBER),
    ("limits.streams_max", "0", NUMBER),
    ("limits.streams_per_uid_max", "0", NUMBER),
    ("limits.header_timeout", "\"61s\"", "from 100ms to 60s"),
    ("retry.first", "\"1ms\"", "must be from 10ms"),
    ("retry.longest", "\"20ms\"", "must be at least retry.first"),
    ("redis.session_prefix", "\"\"", "must be 1 to 64 visible"),
    ("redis.leader_prefix", "\"a b\"", "must be 1 to 64 visible"),
    ("redis.semaphore_namespace", "\"[x]\"", "must be 1 to 64 visible"),
    ("redis.tenure_prefix", "\"a*\"", "must be 1 to 64 visible"),
    ("postgres.timeout", "\"1ms\"", "must be from 50ms to 60s"),
    ("postgres.connect_timeout", "\"2m\"", "must be from 50ms to 60s"),
    ("postgres.poll", "\"2s\"", "must be from 10ms to 1s"),
    ("gateway.timeout", "\"1ms\"", "must be from 50ms to 60s"),
    ("gateway.connect_timeout", "\"2m\"", "must be from 50ms to 60s"),
    ("gateway.tls_ca_file", "\"ca\"", "must be an absolute path"),
    ("gateway.tls_cert_file", "1", QUOTES),
    ("gateway.tls_key_file", "\"k\"", "must be an absolute path"),
    ("redis.timeout", "\"1ms\"", "must be from 50ms to 60s"),
    ("redis.connect_timeout", "\"2m\"", "must be from 50ms to 60s"),
    ("redis.poll", "\"2s\"", "must be from 10ms to 1s"),
    ("redis.tls_ca_file", "\"ca\"", "must be an absolute path"),
    ("redis.tls_cert_file", "1", QUOTES),
    ("redis.tls_key_file", "\"k\"", "must be an absolute path"),
    ("redis.sentinel_secret_file", "\"s\"", "must be an absolute path"),
    ("stop.deadline", "\"6s\"", "must be from 100ms to 5s"),
];

/// The same where other lines matter, or a value is shown otherwise.
const PLACED: [Placed; 11] = [
    (
        "[session]\nttl = \"1m\"",
        2,
        "session.ttl",
        "\"60s\"",
        "must be more than twice session.beat",
    ),
    (
        "upstream = \"redis://h\"\nupstream_secret_file = \"/no/such\"",
        2,
        "upstream_secret_file",
        "\"/no/such\"",
        "must be a file that uid",
    ),
    (
        "upstream = \"redis://h\"\nupstream_secret_file = \"$CREDENTIALS_DIRECTORY/x\"",
        2,
        "upstream_secret_file",
        "\"$CREDENTIALS_DIRECTORY/x\"",
        "LoadCredential=x:FILE",
    ),
    ("\nlog = \"loud\"", 2, "log", "\"loud\"", "must be error, warn, info"),
    ("[leader]\n\nttl = \"-5s\"", 3, "leader.ttl", "\"-5s\"", DURATION),
    (
        "upstream = \"redis://h\"\n[redis]\ntls_ca_file = \"/ca\"",
        3,
        "redis.tls_ca_file",
        "\"/ca\"",
        "write rediss:// with two s",
    ),
    ("allow = 3", 1, "allow", "3", "must be sections that begin with [[allow]]"),
    (
        "[[allow]]\nuid = \"no such user\"",
        1,
        "allow[1].uid",
        "\"no such user\"",
        "must be a number, a name",
    ),
    (
        "[[allow]]\nuid = 1\nkinds = [\"lock\"]",
        1,
        "allow[1].kinds",
        "\"lock\"",
        "must be master, leader",
    ),
    ("[[allow]]\nuid = 1\nnames = \"a\"", 1, "allow[1].names", "\"a\"", "must be a list of texts"),
    ("[[allow]]\nuid = 1\n[[allow]]\nnames = []", 3, "allow[2]", "{…}", "must name a uid or a gid"),
];

#[test]
fn every_wrong_value_is_told_with_place_key_value_and_rule() {
    let dir = TempDir::new().expect("a directory");
    let path = dir.path().join("t.toml");
    let place = path.to_str().expect("a plain path");
    let mut wrong = Vec::new();
    let alone = WRONG.iter().map(|&(key, value, rule)| {
        let shown = match value {
            // Passwords are hidden.
            "\"mysql://h\"" => "\"mysql://***\"".to_owned(),
            "\"redis://me@h\"" => "\"redis://***@h:6379/0\"".to_owned(),
            "\"embedded:x\"" => "***".to_owned(),
            "\"redis://h/x\"" => "\"redis://h/***\"".to_owned(),
            _ if key.ends_with("secret_file") => "***".to_owned(),
            // A number that was read is shown as the text that was set.
            number if number.parse::<i64>().is_ok() && ![QUOTES, DURATION].contains(&rule) => {
                format!("\"{number}\"")
            }
            _ => value.to_owned(),
        };
        match key.split_once('.') {
            Some((section, name)) => {
                (format!("[{section}]\n{name} = {value}"), 2, key, shown, rule)
            }
            None => (format!("{key} = {value}"), 1, key, shown, rule),
        }
    });
    let placed = PLACED.iter().map(|&(text, line, key, shown, rule)| {
        (text.to_owned(), line, key, shown.to_owned(), rule)
    });
    for (text, line, key, value, rule) in alone.chain(placed) {
        fs::write(&path, &text).expect("it is ours");
        let (code, out, err) = check(&[], &["--config", place]);
        let start = format!("tenured: {place}:{line}: {key} = {value}: ");
        if code != Some(78) || !out.is_empty() || !err.starts_with(&start) || !err.contains(rule) {
            wrong.push(format!("{text:?}: exit {code:?}, not {start:?} … {rule:?} but\n  {err}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_key_takes_whatever_comes() {
    let (code, out, err) = check(&[], &["--config", "/dev/null"]);
    assert_eq!(code, Some(0), "{err}");
    let tried: BTreeSet<_> =
        WRONG.iter().map(|row| row.0).chain(PLACED.iter().map(|row| row.2)).collect();
    let mut section = String::new();
    let mut known = vec!["upstream_secret_file".to_owned(), "metrics_listen".to_owned()];
    for line in out.lines().filter(|line| !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            section = format!("{name}.");
        } else if let Some((key, _)) = line.split_once(" = ") {
            known.push(format!("{section}{key}"));
        }
    }
    assert!(known.len() > 45, "{known:?}");
    let untried: Vec<_> = known.iter().filter(|key| !tried.contains(key.as_str())).collect();
    assert!(untried.is_empty(), "no wrong value is tried for {untried:?}");
}

#[test]
fn wrong_variables_and_flags_name_themselves() {
    for (variable, value, rest) in [
        ("TENURED_LOG", "loud", "log = \"loud\": must be error"),
        ("TENURED_LOG_FORMAT", "xml", "log_format = \"xml\": must be auto"),
        (
            "TENURED_METRICS_LISTEN",
            "10.0.0.1:1",
            "metrics_listen = \"10.0.0.1:1\": must be a loopback",
        ),
        ("TENURED_LEADER_TTL", "15s", "leader.ttl = \"15s\": must be more than twice leader.beat"),
        ("TENURED_LIMITS_HOLDS_MAX", "many", "limits.holds_max = \"many\": must be a number"),
        ("TENURED_UPSTREAM", "hunter2", "upstream = ***: not the URL"),
        ("TENURED_STATE_DIR", "x", "state_dir = \"x\": must be an absolute path"),
        ("TENURE_SOCKET", "unix:", "socket = \"unix:\": must be a path"),
    ] {
        let environment = [("TENURED_CONFIG", "/dev/null"), (variable, value)];
        let (code, _, err) = check(&environment, &[]);
        assert_eq!(code, Some(78), "{err}");
        assert!(err.starts_with(&format!("tenured: {variable}: {rest}")), "{err}");
    }
    for (flag, value, rest) in [
        ("--log", "loud", "log = \"loud\": must be error"),
        ("--log-format", "xml", "log_format = \"xml\": must be auto"),
        ("--upstream", "hunter2://", "upstream = ***: not the URL"),
        ("--upstream-secret-file", "x", "upstream_secret_file = ***: must be an absolute path"),
        ("--state-dir", "x", "state_dir = \"x\": must be an absolute path"),
        ("--runtime-dir", "x", "runtime_dir = \"x\": must be an absolute path"),
        ("--socket", "", "socket = \"\": must be a path"),
    ] {
        let (code, _, err) = check(&[("TENURED_CONFIG", "/dev/null")], &[flag, value]);
        assert_eq!(code, Some(78), "{flag}: {err}");
        assert!(err.starts_with(&format!("tenured: {flag}: {rest}")), "{err}");
    }
    for usage in [&["--lgo", "info"][..], &["--log"], &["x"], &["--metrics-listen", "x"]] {
        assert_eq!(check(&[], usage).0, Some(64), "{usage:?}");
    }
    let (code, _, err) = check(&[], &["--config", "/no/such/file"]);
    assert_eq!(code, Some(78));
    assert!(err.contains("cannot read configuration file /no/such/file: No such file"), "{err}");
}
