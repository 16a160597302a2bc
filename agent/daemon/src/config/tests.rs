//! The layers together, as people meet them.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use super::*;

struct Room {
    dir: tempfile::TempDir,
    flags: Flags,
    environment: Environment,
}

impl Room {
    /// With this as the only file.
    fn with(text: &str) -> Room {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("t.toml");
        fs::write(&file, text).unwrap();
        let flags = Flags { config: Some(file), ..Flags::default() };
        let environment = Environment { uid: 0, ..Environment::default() };
        Room { dir, flags, environment }
    }

    fn variable(mut self, name: &str, value: &str) -> Room {
        self.environment.variables.insert(name.to_owned(), OsString::from(value));
        self
    }

    fn load(&self) -> Result<Loaded, ConfigError> {
        load(&self.flags, &self.environment)
    }

    #[track_caller]
    fn refused(&self, expected: &str) {
        let file = self.dir.path().join("t.toml");
        let error = self.load().map(|loaded| loaded.effective()).unwrap_err();
        assert_eq!(error.to_string().replace(file.to_str().unwrap(), "FILE"), expected);
    }
}

/// Keys that differ, each with whether a reload puts it into effect.
fn changed(old: &Loaded, new: &Loaded) -> Vec<(&'static str, bool)> {
    let changes = old.config.changes(&new.config);
    changes.into_iter().map(|change| (change.key, change.reloads)).collect()
}

#[test]
fn nothing_said_is_the_defaults() {
    let config = Room::with("").load().unwrap().config;
    assert_eq!(config.socket, PathBuf::from("/run/tenured/api.sock"));
    assert_eq!(config.state_dir, PathBuf::from("/var/lib/tenured"));
    assert_eq!(config.stores.upstream().kind(), "embedded");
    assert_eq!(config.limits, Limits::default());
    assert_eq!(&*config.settings.host, tenure_host::machine::host_name().unwrap());
}

#[test]
fn one_user_gets_three_quarters_of_the_streams() {
    let streams = |text: &str| Room::with(text).load().unwrap().config.limits.streams().per_uid;
    for (text, expected) in [
        ("", 9216),
        ("[limits]\nstreams_max = 100", 75),
        ("[limits]\nstreams_max = 1", 1),
        ("[limits]\nstreams_max = 100\nstreams_per_uid_max = 100", 100),
    ] {
        assert_eq!(streams(text), expected, "{text}");
    }
}

#[test]
fn flags_over_environment_over_file_over_default() {
    let mut room = Room::with("log = \"error\"\nsocket = \"/file\"\n[leader]\nttl = \"40s\"");
    let log = |room: &Room| {
        let loaded = room.load().unwrap();
        (loaded.config.log.clone(), loaded.origin("log").to_string())
    };
    assert!(log(&room).1.ends_with("t.toml:1"));
    room = room.variable("TENURED_LOG", "warn").variable("TENURED_LEADER_TTL", "50s");
    assert_eq!(log(&room), ("warn".into(), "TENURED_LOG".into()));
    assert_eq!(room.load().unwrap().config.settings.leader.ttl, Duration::from_secs(50));
    room.flags.log = Some("debug".into());
    assert_eq!(log(&room), ("debug".into(), "--log".into()));
    assert_eq!(room.load().unwrap().config.socket, PathBuf::from("/file"));

    // The clients' variable counts less than the agent's own.
    room = room.variable("TENURE_SOCKET", "unix:///client");
    assert_eq!(room.load().unwrap().config.socket, PathBuf::from("/client"));
    room = room.variable("TENURED_SOCKET", "/own");
    assert_eq!(room.load().unwrap().config.socket, PathBuf::from("/own"));
}

#[test]
fn the_socket_follows_the_runtime_directory() {
    let mut room = Room::with("");
    room.flags.runtime_dir = Some("/elsewhere".into());
    assert_eq!(room.load().unwrap().config.socket, PathBuf::from("/elsewhere/api.sock"));
}

#[test]
fn unknown_keys_are_refused_with_the_nearest() {
    let check = |text, expected| Room::with(text).refused(expected);
    check("[leader]\ntll = \"1s\"", "FILE:2: there is no key leader.tll; did you mean leader.ttl?");
    check("[ttl]\nleader = \"1s\"", "FILE:2: there is no key ttl.leader; did you mean leader.ttl?");
    check("sokcet = \"/a\"", "FILE:1: there is no key sokcet; did you mean socket?");
    check("zzz = 1", "FILE:1: there is no key zzz");
    check(
        "[leader.ttl]\nx = 1",
        "FILE:1: leader.ttl = { x = 1 }: must be a duration such as \"15s\" or \"500ms\"",
    );
}

#[test]
fn broken_rules_name_key_value_and_rule() {
    let check = |text, expected| Room::with(text).refused(expected);
    check(
        "[leader]\nttl = \"15s\"",
        "FILE:2: leader.ttl = \"15s\": must be more than twice leader.beat = 10s, so that one lost beat \
         loses nothing; raise it above 20s, or beat more often",
    );
    check("[lease]\nbeat = \"99ms\"", "FILE:2: lease.beat = \"99ms\": must be at least 100ms");
    check(
        "[margin]\nfloor = \"9ms\"",
        "FILE:2: margin.floor = \"9ms\": must be from 10ms to 2592000s",
    );
    check(
        "[margin]\ndivisor = 201",
        "FILE:2: margin.divisor = \"201\": must be a number from 1 to 200",
    );
    check(
        "[margin]\nfloor = \"40s\"",
        // The default is what breaks the rule with it.
        "default: leader.ttl = \"30s\": must be more than its safety margin of 40s 150ms (itself \
         divided by margin.divisor = 200, plus margin.floor = 40s); raise it, or lower margin.floor",
    );
    check(
        "[limits]\nttl_max = \"60s\"",
        "default: session.ttl = \"90s\": must be from limits.ttl_min = 300ms to limits.ttl_max = 60s",
    );
    check(
        "[leader]\nttl = 30",
        "FILE:2: leader.ttl = 30: must be a duration such as \"15s\" or \"500ms\"",
    );
    check(
        "[limits]\nholds_max = \"1\"",
        "FILE:2: limits.holds_max = \"1\": must be a number without quotes",
    );
    check("state_dir = \"here\"", "FILE:1: state_dir = \"here\": must be an absolute path");
    check("a = 1\nlog = bare", "FILE:2: string values must be quoted, expected literal string");
}

#[test]
fn a_broken_layer_is_refused_also_when_it_is_overridden() {
    let mut room = Room::with("log = \"chatty\"");
    room.flags.log = Some("info".into());
    assert!(room.load().is_err());
    let room = Room::with("").variable("TENURED_LEADER_TTL", "soon");
    room.refused("TENURED_LEADER_TTL: leader.ttl = \"soon\": must be a duration such as \"15s\" or \"500ms\"");
}

#[test]
fn no_password_is_ever_shown() {
    for (room, start) in [
        (
            Room::with("upstream = \"https://hunter2@h/0\""),
            "FILE:1: upstream = ***: https: upstreams are not supported yet",
        ),
        (Room::with("upstream = \"redis://:hunter2@h:x\""), "FILE:1: upstream = ***: must have"),
        (
            Room::with("upstream = \"redis://hunter2@h\""),
            "FILE:1: upstream = ***: must have a password",
        ),
        (Room::with("upstream = \"redis://:hunter2@h/0"), "FILE:1: "),
        (Room::with("upstream = [\"hunter2\"]"), "FILE:1: upstream = ***: must be"),
        (
            Room::with("").variable("TENURED_UPSTREAM", "hunter2"),
            "TENURED_UPSTREAM: upstream = ***: not",
        ),
    ] {
        let error = room.load().map(|loaded| loaded.effective()).unwrap_err();
        let file = room.dir.path().join("t.toml");
        let text = format!("{error:?} {error}").replace(file.to_str().unwrap(), "FILE");
        assert!(!text.contains("hunter2"), "{text}");
        assert!(text.contains(start), "{text}");
    }
}

#[test]
fn a_named_file_must_exist() {
    let mut room = Room::with("");
    room.flags.config = Some(room.dir.path().join("no such file"));
    assert!(matches!(room.load(), Err(ConfigError::Read { .. })));
}

#[test]
fn foreign_variables_are_only_a_warning() {
    let room = Room::with("").variable("TENURED_PORT", "tcp://10.0.0.1:80");
    let warnings = room.load().unwrap().warnings;
    assert_eq!(warnings, ["environment variable TENURED_PORT is no key: ignored"]);
}

#[test]
fn what_is_in_effect_means_the_same_again() {
    let text = "host_name = \"build-7\"\n[leader]\nttl = \"45s\"\n[[allow]]\nuid = \"*\"\n\
                names = [\"a*\"]\n[[allow]]\ngid = 7\n";
    let first = Room::with(text).variable("TENURED_LOG", "debug").load().unwrap();
    let printed = first.effective();
    assert!(printed.contains("ttl = \"45s\"  # /"), "{printed}");
    assert!(printed.contains("log = \"debug\"  # TENURED_LOG"), "{printed}");
    let second = Room::with(&printed).load().unwrap_or_else(|error| panic!("{error}:\n{printed}"));
    assert_eq!(changed(&first, &second), []);
    assert_eq!(second.config.log, "debug");

    let other = Room::with("log = \"warn\"\n[leader]\nttl = \"46s\"").load().unwrap();
    let expected = [("log", true), ("host_name", false), ("leader.ttl", false), ("allow", true)];
    assert_eq!(changed(&first, &other), expected);
}

#[test]
fn the_sample_file_says_the_defaults() {
    let sample = include_str!("../../../../packaging/tenured.toml");
    let sampled = Room::with(sample).load().unwrap();
    let default = Room::with("").load().unwrap();
    assert_eq!(changed(&default, &sampled), []);
    for key in keys::all() {
        let follows_from_others = [
            "socket",
            "metrics_listen",
            "upstream_secret_file",
            "state_dir",
            "runtime_dir",
            "host_name",
            "limits.sessions_per_uid_max",
            "limits.holds_per_uid_max",
            "limits.connections_per_uid_max",
            "limits.streams_per_uid_max",
            "redis.tls_ca_file",
            "redis.tls_cert_file",
            "redis.tls_key_file",
            "redis.sentinel_secret_file",
        ];
        let name = key.name.rsplit('.').next().unwrap();
        if follows_from_others.contains(&key.name) {
            assert!(sample.contains(&format!("\n#{name} = ")), "{name} is not documented");
        } else {
            assert_ne!(sampled.origin(key.name), &Origin::Default, "{} is missing", key.name);
        }
    }

    for key in allow::KEYS {
        let named = |line: &str| line.starts_with('#') && line.contains(key);
        assert!(sample.lines().any(named), "{key} of [[allow]] is not documented");
    }

    // Also what is only an example is right.
    let example: String = sample
        .lines()
        .skip_while(|line| *line != "#[[allow]]")
        .map(|line| format!("{}\n", line.trim_start_matches('#').replace("\"alice\"", "\"root\"")))
        .collect();
    Room::with(&example).load().unwrap();
}

#[test]
fn every_flag_is_a_key() {
    let mut room = Room::with("");
    room.flags.socket = Some("/s".into());
    room.flags.upstream = Some("embedded:".into());
    room.flags.upstream_secret_file = Some("/p".into());
    room.flags.state_dir = Some("/st".into());
    room.flags.runtime_dir = Some("/r".into());
    room.flags.log = Some("off".into());
    room.flags.log_format = Some("json".into());
    let loaded = room.load().unwrap();
    assert_eq!(room.flags.values().count(), 7);
    for (flag, key, _) in room.flags.values() {
        assert_eq!(loaded.origin(key), &Origin::Flag(flag));
    }
}

/// A Redis as the upstream, with these other lines.
fn redis(url: &str, rest: &str) -> Room {
    Room::with(&format!("upstream = \"{url}\"\n{rest}"))
}

#[test]
fn a_redis_brings_its_poll() {
    let poll = |url, rest| redis(url, rest).load().unwrap().config.settings.poll;
    assert_eq!(poll("redis://:hunter2@h/3", ""), Some(Duration::from_secs(1)));
    let rest = "[redis]\npoll = \"200ms\"";
    assert_eq!(poll("redis+unix:///s", rest), Some(Duration::from_millis(200)));
    assert_eq!(poll("embedded:", rest), None);
    let config = redis("redis://:hunter2@h/3", "").load().unwrap().config;
    assert!(!format!("{config:?}").contains("hunter2"));
}

#[test]
fn check_config_shows_no_password_of_a_redis() {
    let mut room = redis("redis://me:hunter2@h/3", "");
    room = room.variable("TENURED_REDIS_TIMEOUT", "3s");
    let printed = room.load().unwrap().effective();
    assert!(printed.contains("upstream = \"redis://me:***@h:6379/3\"  # /"), "{printed}");
    assert!(printed.contains("timeout = \"3s\"  # TENURED_REDIS_TIMEOUT"), "{printed}");
    assert!(!printed.contains("hunter2"), "{printed}");
    let sentinel = redis("redis+sentinel://a,b/m?sentinel_password=hunter2", "");
    let printed = sentinel.load().unwrap().effective();
    assert!(printed.contains("/m/0?sentinel_password=***\""), "{printed}");
}

#[test]
fn broken_rules_of_a_redis() {
    let check = |url, text: &str, expected: &str| {
        redis(url, &format!("[redis]\n{text}")).refused(expected);
    };
    check(
        "embedded:",
        "tenure_prefix = \"a b\"",
        r#"FILE:3: redis.tenure_prefix = "a b": must be 1 to 64 visible ASCII characters, none of them a space or one of * ? [ ] \"#,
    );
    check(
        "embedded:",
        "leader_prefix = \"ten\"",
        "FILE:3: redis.leader_prefix = \"ten\": redis.leader_prefix gives keys that start with 'ten', \
         which cannot be told from 'tenant:' of keys of other tenants; choose prefixes none of which \
         starts with another",
    );
    check("embedded:", "poll = \"2s\"", "FILE:3: redis.poll = \"2s\": must be from 10ms to 1s");
    check(
        "embedded:",
        "timeout = \"2m\"",
        "FILE:3: redis.timeout = \"2m\": must be from 50ms to 60s",
    );
    check(
        "redis://h",
        "tls_ca_file = \"/ca\"",
        "FILE:3: redis.tls_ca_file = \"/ca\": is for TLS, and upstream does not use it; write rediss:// \
         with two s, or leave it out",
    );
    check(
        "rediss://h",
        "tls_ca_file = \"/no/such/ca\"",
        "FILE:3: redis.tls_ca_file = \"/no/such/ca\": must be a file that the agent can read: No such \
         file or directory (os error 2)",
    );
    check(
        "rediss://h",
        "tls_key_file = \"/key\"",
        "FILE:3: redis.tls_key_file = \"/key\": must have its certificate in redis.tls_cert_file",
    );
    check(
        "redis://h",
        "sentinel_secret_file = \"/s\"",
        "FILE:3: redis.sentinel_secret_file = \"/s\": is for Sentinels, and upstream names none \
         (redis+sentinel://); leave it out",
    );
    check(
        "redis+sentinel://h/m?sentinel_user=me",
        "",
        "FILE:1: upstream = ***: must have a sentinel_password for its sentinel_user, or a file with it \
         in redis.sentinel_secret_file",
    );
}

/// A file with a password, and the line that names it.
fn secret(room: &Room, name: &str, text: &str) -> String {
    use std::os::unix::fs::PermissionsExt;
    let path = room.dir.path().join(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn passwords_come_from_files_and_credentials() {
    let secrets = |room: &Room| {
        let secrets = room.load().unwrap().config.opener.secrets().into_iter();
        secrets.map(|(key, secret)| (key, secret.expose().to_owned())).collect::<Vec<_>>()
    };
    let mut room = redis("redis://me@h", "");
    let path = secret(&room, "upstream-secret", "hunter2\n");
    room.flags.upstream_secret_file = Some(path.clone());
    let expected = [("upstream_secret_file", "hunter2".to_owned())];
    assert_eq!(secrets(&room), expected);

    // As the service manager brings it.
    room.flags.upstream_secret_file = Some("$CREDENTIALS_DIRECTORY/upstream-secret".into());
    room = room.variable("CREDENTIALS_DIRECTORY", path.rsplit_once('/').unwrap().0);
    assert_eq!(secrets(&room), expected);
    room.flags.upstream_secret_file = None;
    assert_eq!(secrets(&room), expected);
    let printed = room.load().unwrap().effective();
    let shown = "upstream_secret_file = \"$CREDENTIALS_DIRECTORY/upstream-secret\"";
    assert!(printed.contains(shown) && !printed.contains("hunter2"), "{printed}");

    // Nobody asks for it.
    room.flags.upstream = Some("embedded:".into());
    assert_eq!(room.load().unwrap().config.upstream_secret_file, None);

    room.flags.upstream = Some("redis://:hunter3@h".into());
    room.flags.upstream_secret_file = Some(path.clone());
    let error = room.load().map(|loaded| loaded.effective()).unwrap_err().to_string();
    let rule = "the URL of upstream has a password, too; take it out";
    assert_eq!(error, format!("--upstream-secret-file: upstream_secret_file = \"{path}\": {rule}"));

    room.flags.upstream = Some("redis+sentinel://h/m".into());
    room.environment.variables.insert("TENURED_REDIS_SENTINEL_SECRET_FILE".into(), path.into());
    assert!(secrets(&room).contains(&("redis.sentinel_secret_file", "hunter2".to_owned())));
}

#[test]
fn a_changed_password_is_a_change() {
    let mut room = redis("redis://h", "");
    let path = secret(&room, "secret", "old");
    room.flags.upstream_secret_file = Some(path);
    let old = room.load().unwrap();
    assert_eq!(changed(&old, &room.load().unwrap()), []);
    secret(&room, "secret", "new");
    let new = room.load().unwrap();
    assert_eq!(changed(&old, &new), [("upstream_secret_file", false)]);

    let mut room = redis("redis+sentinel://h/m", "");
    let path = secret(&room, "sentinel", "old");
    room = room.variable("TENURED_REDIS_SENTINEL_SECRET_FILE", &path);
    let old = room.load().unwrap();
    secret(&room, "sentinel", "new");
    let new = room.load().unwrap();
    assert_eq!(changed(&old, &new), [("redis.sentinel_secret_file", false)]);

    let of = |url| redis(url, "").load().unwrap();
    let (old, new) = (of("redis://:a@h"), of("redis://:b@h"));
    let [Change { key, old, new, reloads }] = &old.config.changes(&new.config)[..] else {
        panic!()
    };
    assert_eq!((*key, old.as_str(), *reloads), ("upstream", "\"redis://:***@h:6379/0\"", false));
    assert_eq!(new, "\"redis://:***@h:6379/0\" with another password");
}

#[test]
fn a_directory_has_a_file_and_drop_ins_in_the_order_of_their_names() {
    let mut room = Room::with("");
    let directory = room.dir.path().join("etc");
    fs::create_dir_all(directory.join("conf.d")).unwrap();
    let write = |name: &str, text: &str| fs::write(directory.join(name), text).unwrap();
    write("tenured.toml", "log = \"error\"\nhost_name = \"a\"\n[[allow]]\nuid = 1");
    write("conf.d/20-b.toml", "log = \"warn\"\n[[allow]]\nuid = 2");
    write("conf.d/10-a.toml", "log = \"debug\"\n[leader]\nttl = \"40s\"");
    write("conf.d/30-c.toml.bak", "log = 7");
    write("conf.d/.40-d.toml", "log = 7");
    room.flags.config = Some(directory.clone());
    let loaded = room.load().unwrap();
    let names: Vec<_> = loaded.files.iter().map(|path| path.file_name().unwrap()).collect();
    assert_eq!(names, ["tenured.toml", "10-a.toml", "20-b.toml"]);
    assert_eq!((loaded.config.log.as_str(), &*loaded.config.settings.host), ("warn", "a"));
    assert_eq!(loaded.config.allow.len(), 2);
    let printed = loaded.effective();
    let place = |name: &str, line: u32| format!("  # {}:{line}\n", directory.join(name).display());
    for (line, place) in [
        ("log = \"warn\"", place("conf.d/20-b.toml", 1)),
        ("host_name = \"a\"", place("tenured.toml", 2)),
        ("ttl = \"40s\"", place("conf.d/10-a.toml", 3)),
        ("[[allow]]", place("tenured.toml", 3)),
        ("[[allow]]", place("conf.d/20-b.toml", 2)),
        ("beat = \"10s\"", "  # default\n".to_owned()),
    ] {
        assert!(printed.contains(&format!("\n{line}{place}")), "{line}{place} in\n{printed}");
    }
    write("conf.d/20-b.toml", "log = \"warn\"\n[[allow]]\nuid = true");
    let error = room.load().map(|loaded| loaded.effective()).unwrap_err().to_string();
    assert!(error.contains("conf.d/20-b.toml:2: allow[1].uid = true: must be a number"), "{error}");
    // One that is named must have something.
    fs::remove_file(directory.join("conf.d/20-b.toml")).unwrap();
    fs::remove_file(directory.join("tenured.toml")).unwrap();
    assert_eq!(room.load().unwrap().files, [directory.join("conf.d/10-a.toml")]);
    fs::remove_file(directory.join("conf.d/10-a.toml")).unwrap();
    let error = room.load().map(|loaded| loaded.effective()).unwrap_err().to_string();
    let expected = directory.join("tenured.toml");
    assert_eq!(error, format!("cannot read configuration file {}", expected.display()));
}

#[test]
fn a_password_that_others_see_is_a_warning() {
    let warnings = |room: &Room| room.load().unwrap().warnings.join("\n");
    let mut room = redis("redis://h", "");
    assert_eq!(warnings(&room), "");
    room.flags.upstream = Some("redis://:hunter2@h".into());
    let warning = warnings(&room);
    assert!(warning.starts_with("--upstream has a password, which every user"), "{warning}");
    assert!(warning.contains("upstream_secret_file") && !warning.contains("hunter2"), "{warning}");

    use std::os::unix::fs::PermissionsExt;
    let room = redis("redis+sentinel://h/m?sentinel_password=hunter2", "");
    let file = room.dir.path().join("t.toml");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(warnings(&room).contains("every user of this host can read it"));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    assert_eq!(warnings(&room), "");
}
