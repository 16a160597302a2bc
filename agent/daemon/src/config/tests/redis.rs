//! The keys of a Redis upstream, and its passwords.

use super::*;

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
    check(
        "redis://h",
        "tls_ca_file = \"/ca\"",
        "FILE:3: redis.tls_ca_file = \"/ca\": is for TLS, and upstream does not use it; write rediss:// \
         with two s, or leave it out",
    );
    check(
        "rediss://h",
        "tls_ca_file = \"/no/such/ca\"",
        "FILE:3: redis.tls_ca_file = \"/no/such/ca\": must be a readable file: No such file or \
         directory (os error 2)",
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
        "FILE:1: upstream = \"redis+sentinel://h:26379/m/0?sentinel_user=me\": must have a sentinel_password for its sentinel_user, or a file with it \
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
    assert_eq!(changed(&old, &new), [("upstream_secret_file", true)]);

    let mut room = redis("redis+sentinel://h/m", "");
    let path = secret(&room, "sentinel", "old");
    room = room.variable("TENURED_REDIS_SENTINEL_SECRET_FILE", &path);
    let old = room.load().unwrap();
    secret(&room, "sentinel", "new");
    let new = room.load().unwrap();
    assert_eq!(changed(&old, &new), [("redis.sentinel_secret_file", true)]);
    // A reload takes it.
    old.config.opener.reload().unwrap();
    assert_eq!(changed(&old, &new), []);

    let of = |url| redis(url, "").load().unwrap();
    let (old, new) = (of("redis://:a@h"), of("redis://:b@h"));
    let [Change { key, old, new, reloads }] = &changes(&old.config, &new.config)[..] else {
        panic!()
    };
    assert_eq!((*key, old.as_str(), *reloads), ("upstream", "\"redis://:***@h:6379/0\"", false));
    assert_eq!(new, "\"redis://:***@h:6379/0\" with another password");
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
