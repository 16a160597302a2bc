//! The rooms of the agent's crate. What keeps the crates apart is Cargo, what keeps `unsafe` in its place the
//! compiler (`forbid` and `deny` at the head of each crate).

use std::fs;
use std::path::{Path, PathBuf};

/// The rooms of the agent, and what each may import besides itself.
const DOWNHILL: [(&str, &[&str]); 6] = [
    // The rest of main: it puts the others together.
    ("lifecycle", &["api", "heart", "config", "policy", "telemetry"]),
    ("api", &["heart", "config", "policy", "telemetry"]),
    ("config", &["policy", "telemetry"]),
    ("heart", &["telemetry"]),
    ("policy", &[]),
    ("telemetry", &[]),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../agent/daemon/src")
}

/// A room's Rust files, with their texts.
fn sources(room: &str) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut paths = vec![root().join(room), root().join(format!("{room}.rs"))];
    while let Some(path) = paths.pop() {
        if path.is_dir() {
            let entries = fs::read_dir(&path).expect("a folder can be read");
            paths.extend(entries.map(|entry| entry.expect("an entry can be read").path()));
        } else if path.extension().is_some_and(|extension| extension == "rs") && path.exists() {
            let text = fs::read_to_string(&path).expect("a source can be read");
            found.push((path, text));
        }
    }
    found
}

/// A test may bring together what the program keeps apart.
fn is_test(path: &Path) -> bool {
    let path = path.display().to_string();
    path.contains("/tests/") || path.ends_with("tests.rs")
}

#[test]
fn rooms_import_downhill() {
    let mut found = Vec::new();
    for (room, below) in DOWNHILL {
        let sources = sources(room);
        assert!(!sources.is_empty(), "where is {room}?");
        for (path, text) in sources.into_iter().filter(|(path, _)| !is_test(path)) {
            let program = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
            for (at, prefix) in program.match_indices("crate::") {
                let rest = &program[at + prefix.len()..];
                let name = |c: char| c.is_ascii_alphanumeric() || c == '_';
                let to = rest.split(|c| !name(c)).next().unwrap_or_default();
                assert!(!to.is_empty(), "{}: one import a line, please", path.display());
                if to != room && !below.contains(&to) {
                    found.push(format!("{}: {room} imports {to}", path.display()));
                }
            }
        }
    }
    assert!(found.is_empty(), "imports point down DOWNHILL:\n{}", found.join("\n"));
}

#[test]
fn every_room_of_the_agent_is_named_here() {
    for entry in fs::read_dir(root()).expect("the agent has rooms") {
        let path = entry.expect("an entry can be read").path();
        let name = path.file_stem().expect("a room has a name").to_string_lossy().into_owned();
        let known =
            ["main", "lib"].contains(&&*name) || DOWNHILL.iter().any(|(room, _)| *room == name);
        assert!(known, "what may {name} import? Say so in DOWNHILL");
    }
}
