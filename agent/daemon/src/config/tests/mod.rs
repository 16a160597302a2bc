//! The layers together, as people meet them.

mod files;
mod redis;
mod rules;

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
    let changes = changes(&old.config, &new.config);
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
    room = room.variable("TENURE_SOCKET", "");
    assert_eq!(room.load().unwrap().config.socket, PathBuf::from("/file"));
    room = room.variable("TENURE_SOCKET", "unix:///client");
    assert_eq!(room.load().unwrap().config.socket, PathBuf::from("/client"));
    room = room.variable("TENURED_SOCKET", "/own");
    assert_eq!(room.load().unwrap().config.socket, PathBuf::from("/own"));
}

#[test]
fn white_space_at_the_end_of_a_variable_is_no_part_of_it() {
    let room = Room::with("")
        .variable("TENURED_UPSTREAM", "REDIS://db:7000/1\n")
        .variable("TENURED_SOCKET", "/own \t\r\n")
        .variable("TENURED_LEADER_TTL", "50s\n");
    let config = room.load().unwrap().config;
    assert_eq!(config.stores.upstream().url(), "redis://db:7000/1");
    assert_eq!(config.socket, PathBuf::from("/own"));
    assert_eq!(config.settings.leader.ttl, Duration::from_secs(50));
    let room = Room::with("upstream = \"\"\"redis://db\n\"\"\"\n");
    assert_eq!(room.load().unwrap().config.stores.upstream().url(), "redis://db:6379/0");
    let room = Room::with("").variable("TENURED_UPSTREAM", "REDIS://:hunter2@h:x\n");
    let refusal = room.load().map(|loaded| loaded.effective()).unwrap_err().to_string();
    assert!(refusal.contains("REDIS://:***@h:x") && !refusal.contains("hunter2"), "{refusal}");
}

#[test]
fn limits_that_somebody_set_are_known() {
    let room = Room::with("[limits]\nsessions_max = 7\n");
    let room = room.variable("TENURED_LIMITS_STREAMS_MAX", "12288");
    let config = room.load().unwrap().config;
    assert_eq!(config.limits_set, ["limits.sessions_max", "limits.streams_max"]);
    assert!(Room::with("").load().unwrap().config.limits_set.is_empty());
}

#[test]
fn the_socket_follows_the_runtime_directory() {
    let mut room = Room::with("");
    room.flags.runtime_dir = Some("/elsewhere".into());
    assert_eq!(room.load().unwrap().config.socket, PathBuf::from("/elsewhere/api.sock"));
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
