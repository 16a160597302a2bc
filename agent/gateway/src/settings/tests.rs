//! The layers together, as people meet them.

use std::ffi::OsString;

use clap::{CommandFactory, Parser};
use tenure_service::config::Origin;

use super::*;

fn environment(variables: &[(&str, &str)]) -> Environment {
    let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), OsString::from(value));
    Environment { variables: variables.iter().map(pair).collect(), uid: 0 }
}

/// With flags and environment, and without any file.
fn with(flags: &[&str], variables: &[(&str, &str)]) -> Result<Loaded, ConfigError> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("gateway.toml");
    std::fs::write(&file, "").unwrap();
    let always = ["tenured-gateway", "--config", file.to_str().unwrap()];
    let cli = Cli::try_parse_from(always.iter().chain(flags)).unwrap();
    load(&cli.flags, &environment(variables))
}

#[track_caller]
fn refused(flags: &[&str], variables: &[(&str, &str)], expected: &str) {
    let error = with(flags, variables).map(|loaded| loaded.effective()).unwrap_err().to_string();
    assert!(error.contains(expected), "{error}");
    assert!(!error.contains("hunter2"), "{error}");
}

fn url(loaded: &Loaded) -> String {
    loaded.config.stores.upstream().url()
}

#[test]
fn nothing_said_serves_this_host_alone() {
    let settings = with(&[], &[]).unwrap().config;
    assert_eq!(
        (settings.mode, settings.listen.to_string()),
        (Mode::Local, "127.0.0.1:8740".into())
    );
    assert_eq!(settings.stores.upstream().kind(), "embedded");
    assert_eq!(settings.session_ttl, Duration::from_secs(90));
    assert_eq!(settings.state_dir, Path::new("/var/lib/tenured-gateway"));
}

#[test]
fn nobody_elsewhere_is_let_in_without_a_key_or_by_chance_without_tls() {
    for open in ["0.0.0.0:1", "[::]:1", "192.0.2.1:1"] {
        refused(&["--listen", open], &[], "nobody is asked for a key");
        refused(&["--listen", open, "--insecure"], &[], "nobody is asked for a key");
        refused(&["--listen", open, "--keys-file", "/k"], &[], "there is no TLS");
        with(&["--listen", open, "--keys-file", "/k", "--insecure"], &[]).unwrap();
        let tls = ["--listen", open, "--tls-cert-file", "/c", "--tls-key-file", "/p"];
        refused(&tls, &[], "nobody is asked for a key");
        for keys in [["--keys-file", "/k"], ["--tls-client-ca-file", "/ca"]] {
            with(&[&tls[..], &keys].concat(), &[]).unwrap();
        }
    }
    with(&["--listen", "[::1]:0"], &[]).unwrap();
    let local = with(&["--listen", "localhost:8981"], &[]).unwrap();
    assert_eq!(local.config.listen.to_string(), "127.0.0.1:8981");
    for name in ["localhost", "localhost:", "localhost:x", "gateway.example:8981"] {
        refused(&["--listen", name], &[], "other names are not looked up");
    }
}

#[test]
fn a_store_is_named_and_its_password_is_not_shown() {
    let redis = with(&["--upstream", "redis://:hunter2@h/0"], &[]).unwrap();
    assert!(redis.effective().contains("upstream = \"redis://:***@h:6379/0\"  # --upstream"));
    assert!(redis.warnings[0].contains("--upstream has a password"), "{:?}", redis.warnings);
    for (wrong, shown) in [
        ("https://gateway.example", "\"https://gateway.example:443\""),
        ("hunter2", "***"),
        ("redis://:hunter2@h:x", "\"redis://:***@h:x\""),
    ] {
        refused(&["--upstream", wrong], &[], &format!("--upstream: upstream = {shown}: "));
    }
}

#[test]
fn modes_have_aliases_and_the_seed_s_variables_count_less_than_our_own() {
    let key = ["--keys-file", "/k"];
    for (word, mode) in [
        ("local", Mode::Local),
        ("personal", Mode::Local),
        ("development", Mode::Local),
        ("lan", Mode::Lan),
        ("cloud", Mode::Cloud),
        ("hosted", Mode::Cloud),
    ] {
        let variables = [("PRISM_REDIS_URL", "redis://:hunter2@h"), ("PRISM_MODE", word)];
        let loaded = with(&key, &variables).unwrap();
        assert_eq!((loaded.config.mode, url(&loaded).as_str()), (mode, "redis://:***@h:6379/0"));
    }
    refused(&["--mode", "office"], &[], "--mode: mode = \"office\": must be local");
    let variables = [
        ("PRISM_REDIS_URL", "redis://of-prism"),
        ("TENURED_GATEWAY_UPSTREAM", "redis://own"),
        ("PRISM_SESSION_TTL_SECONDS", "120"),
    ];
    let loaded = with(&[], &variables).unwrap();
    assert_eq!(url(&loaded), "redis://own:6379/0");
    assert_eq!(loaded.config.session_ttl, Duration::from_secs(120));
    let origin = Origin::Environment("PRISM_SESSION_TTL_SECONDS".to_owned());
    assert_eq!(loaded.origin("session.ttl"), &origin);
    for wrong in ["0", "soon", "99999"] {
        refused(&[], &[("PRISM_SESSION_TTL_SECONDS", wrong)], "PRISM_SESSION_TTL_SECONDS: ");
    }
}

#[test]
fn a_lan_takes_a_password_that_stands_in_no_example() {
    let lan = ["--mode", "lan", "--keys-file", "/k"];
    refused(&["--mode", "lan"], &[("PRISM_REDIS_PASSWORD", "hunter2")], "keys_file");
    refused(&lan, &[], "must have a password in mode lan");
    refused(&lan, &[("PRISM_REDIS_URL", "redis://h")], "must have a password in mode lan");
    for known in ["prism_server", "prism_personal"] {
        refused(&lan, &[("PRISM_REDIS_PASSWORD", known)], "the password of a published example");
        let url = format!("redis://:{known}@h");
        refused(&lan, &[("PRISM_REDIS_URL", &url)], "the password of a published example");
        with(&[], &[("PRISM_REDIS_URL", &url)]).unwrap();
    }
    let own = ("PRISM_REDIS_PASSWORD", "hunter2");
    assert_eq!(url(&with(&lan, &[own]).unwrap()), "redis://:***@redis:6379/0");
    let named = with(&lan, &[own, ("PRISM_REDIS_URL", "redis://h/3")]).unwrap();
    assert_eq!(url(&named), "redis://:***@h:6379/3");
    assert_eq!(named.config.opener.secrets()[0].1.expose(), "hunter2");
    let with_line_break = with(&lan, &[("PRISM_REDIS_PASSWORD", "hunter2\n")]).unwrap();
    assert_eq!(with_line_break.config.opener.secrets()[0].1.expose(), "hunter2");
}

#[test]
fn a_cloud_takes_an_upstream() {
    let cloud = ["--mode", "cloud", "--keys-file", "/k"];
    refused(&cloud, &[], "must be given in mode cloud");
    with(&cloud, &[("PRISM_REDIS_URL", "rediss://u:hunter2@h:6380")]).unwrap();
}

#[test]
fn flags_over_environment_over_file_and_wrong_values_are_placed() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("gateway.toml");
    let load_file = |text: &str, flags: Flags, variables: &[(&str, &str)]| {
        std::fs::write(&file, text).unwrap();
        load(&Flags { config: Some(file.clone()), ..flags }, &environment(variables))
    };
    let log = |loaded: &Loaded| (loaded.config.log.clone(), loaded.origin("log").to_string());
    let text = "log = \"error\"\ninsecure = true\n[redis]\ntimeout = \"3s\"\n";
    let loaded = load_file(text, Flags::default(), &[]).unwrap();
    assert!(log(&loaded).1.ends_with("gateway.toml:1") && loaded.config.insecure);
    let variables = [("TENURED_GATEWAY_LOG", "warn"), ("TENURED_GATEWAY_PORT", "1")];
    let loaded = load_file(text, Flags::default(), &variables).unwrap();
    assert_eq!(log(&loaded), ("warn".into(), "TENURED_GATEWAY_LOG".into()));
    assert_eq!(loaded.warnings, ["environment variable TENURED_GATEWAY_PORT is no key: ignored"]);
    let flags = Flags { log: Some("debug".into()), ..Flags::default() };
    assert_eq!(log(&load_file(text, flags, &variables).unwrap()).0, "debug");
    for (text, expected) in [
        ("lisen = \"x\"", "gateway.toml:1: there is no key lisen; did you mean listen?"),
        ("insecure = \"yes\"", "gateway.toml:1: insecure = \"yes\": must be true or false"),
        ("\nlisten = \"here\"", "gateway.toml:2: listen = \"here\": must be an address"),
        ("[gateway]\ntimeout = \"3s\"", "gateway.toml:2: there is no key gateway.timeout"),
        ("[[allow]]\nuid = 1", "gateway.toml:1: there is no key allow"),
    ] {
        let error = load_file(text, Flags::default(), &[]).map(|loaded| loaded.effective());
        let error = error.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    // It means the same again.
    let first = load_file(text, Flags::default(), &[]).unwrap();
    let again = load_file(&first.effective(), Flags::default(), &[]).unwrap();
    assert_eq!(changes(&first.config, &again.config), []);
}

#[test]
fn a_header_names_people_only_where_it_says_from_whom_and_a_key_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("gateway.toml");
    let load_file = |text: &str| {
        std::fs::write(&file, text).unwrap();
        let flags = Flags { config: Some(file.clone()), ..Flags::default() };
        load(&flags, &environment(&[])).map_err(|error| error.to_string())
    };
    let [keys, proxies, header, people] = [
        "keys_in_store = true\n",
        "trusted_proxies = \"10.0.0.7\"\n",
        "identity_header = \"X-User\"\n",
        "[[people]]\nwho = \"*\"\nrights = \"revoke\"\n",
    ];
    for (text, words) in [
        ([keys, proxies, "", people], "trusted_proxies = \"10.0.0.7/32\": has no meaning without"),
        ([keys, "", header, people], "identity_header = \"x-user\": needs trusted_proxies"),
        (["", proxies, header, people], "identity_header = \"x-user\": needs keys_in_store"),
        ([keys, proxies, header, ""], "identity_header = \"x-user\": needs a section [[people]]"),
        ([keys, proxies, "identity_header = \"Cookie\"\n", people], "a header of the proxy alone"),
        ([keys, proxies, "identity_header = \"a b\"\n", people], "the name of a header"),
    ] {
        let error = load_file(&text.concat()).map(|loaded| loaded.effective()).unwrap_err();
        assert!(error.contains(words), "{error}");
    }
    let first = load_file(&[keys, proxies, header, people].concat()).unwrap();
    assert!(first.config.sign_in().is_some());
    let again = load_file(&first.effective()).unwrap();
    assert_eq!(changes(&first.config, &again.config), []);
}

#[test]
fn every_flag_is_a_key() {
    Cli::command().debug_assert();
    let all = [
        "--mode=local",
        "--listen=[::1]:1",
        "--upstream=embedded:",
        "--upstream-secret-file=/p",
        "--keys-file=/k",
        "--tls-cert-file=/c",
        "--tls-key-file=/y",
        "--tls-client-ca-file=/a",
        "--insecure",
        "--state-dir=/s",
        "--runtime-dir=/r",
        "--log=off",
        "--log-format=json",
    ];
    let cli = Cli::try_parse_from(["tenured-gateway"].iter().chain(&all)).unwrap();
    let loaded = with(&all, &[]).unwrap();
    assert_eq!(cli.flags.values().count(), all.len());
    for (flag, key, _) in cli.flags.values() {
        assert_eq!(loaded.origin(key), &Origin::Flag(flag));
    }
}

#[test]
fn a_user_who_may_not_write_to_the_systems_directories_has_own_ones() {
    let of = |uid: u32, variables: &[(&str, &str)]| {
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).into()));
        super::directories(&Environment { variables: variables.collect(), uid })
    };
    let both = |runtime: &str, state: &str| (PathBuf::from(runtime), PathBuf::from(state));
    let system = both("/run/tenured-gateway", "/var/lib/tenured-gateway");
    assert_eq!(of(0, &[("HOME", "/root"), ("XDG_RUNTIME_DIR", "/tmp")]), system);
    let managed = [("RUNTIME_DIRECTORY", "/run/a"), ("STATE_DIRECTORY", "/var/a:/var/b")];
    assert_eq!(of(7, &managed), both("/run/a", "/var/a"));
}
