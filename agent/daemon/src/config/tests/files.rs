//! Files that are read: one that is named, the sample, and a directory with drop-ins.

use super::*;

#[test]
fn a_named_file_must_exist() {
    let mut room = Room::with("");
    room.flags.config = Some(room.dir.path().join("no such file"));
    assert!(matches!(room.load(), Err(ConfigError::Read { .. })));
}

#[test]
fn a_file_of_windows_is_taken() {
    let text = "\u{feff}log = \"debug\"\r\nhost_name = \"a\"\r\n\r\n[leader]\r\nttl = \"40s\"\r\n";
    let loaded = Room::with(text).load().unwrap();
    let plain = Room::with(&text.trim_start_matches('\u{feff}').replace('\r', "")).load().unwrap();
    assert_eq!(changed(&plain, &loaded), []);
    assert_eq!((loaded.config.log.as_str(), &*loaded.config.settings.host), ("debug", "a"));
}

#[test]
fn the_sample_file_says_the_defaults() {
    let sample = include_str!("../../../../../packaging/tenured.toml");
    let sampled = Room::with(sample).load().unwrap();
    let default = Room::with("").load().unwrap();
    assert_eq!(changed(&default, &sampled), []);
    for key in keys::all() {
        let name = key.name.rsplit('.').next().unwrap();
        if key.doc.example.is_some() {
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
