//! Rules of the repository that the compiler does not know.

use std::fs;
use std::path::{Path, PathBuf};

/// Rooms that are given the time and their seed, and return what they want done.
const PURE: [&str; 4] = ["engine", "keeper", "model", "turn"];

/// What a pure room must not mention.
const IMPURE: [&str; 13] = [
    "tokio",
    "std::fs",
    "std::net",
    "std::os",
    "std::env",
    "std::process",
    "std::thread",
    "Instant::now",
    "SystemTime",
    "rand::",
    "getrandom",
    "new_v4",
    "redis",
];

/// Where `unsafe` may stand: files, and folders with a trailing slash.
const UNSAFE: [&str; 3] =
    ["agent/src/host/", "client-sdk/rust/src/page/map.rs", "client-sdk/cli/src/run/kernel.rs"];

/// The rooms of the agent, and what each may import besides itself, `host::clock`, `model` and the
/// settings types of `config`.
const DOWNHILL: [(&str, &[&str]); 12] = [
    // The rest of main: it puts the others together.
    ("lifecycle", &["api", "heart", "keeper", "upstream", "journal", "host", "telemetry"]),
    ("api", &["heart", "keeper", "upstream", "host", "telemetry"]),
    ("gateway", &["heart", "keeper", "upstream", "host", "telemetry"]),
    ("heart", &["turn", "keeper", "upstream", "journal", "host", "telemetry"]),
    ("turn", &["keeper"]),
    ("upstream", &["engine", "journal", "host"]),
    ("journal", &["keeper", "engine", "host"]),
    ("keeper", &[]),
    ("engine", &[]),
    ("telemetry", &["keeper", "host"]),
    ("host", &[]),
    ("model", &[]),
];

fn root() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().expect("the workspace is above").to_owned()
}

/// Every Rust file under a folder, by its path from the root, with its text.
fn sources(folder: &str) -> Vec<(String, String)> {
    let root = root();
    let mut found = Vec::new();
    let mut folders = vec![root.join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(&root).expect("it is below").display().to_string();
                found.push((name, fs::read_to_string(&path).expect("a source can be read")));
            }
        }
    }
    found.sort();
    found
}

/// A test may bring together what the program keeps apart, and may look at a clock.
fn is_test(name: &str) -> bool {
    name.contains("/tests/") || name.ends_with("tests.rs")
}

/// Lines of code with their numbers, without comments.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(i, line)| (i + 1, line.split("//").next().unwrap_or_default()))
}

#[track_caller]
fn check_none(rule: &str, found: &[String]) {
    assert!(found.is_empty(), "{rule}:\n{}", found.join("\n"));
}

#[test]
fn the_pure_rooms_are_pure() {
    let mut found = Vec::new();
    for room in PURE {
        let sources = sources(&format!("agent/src/{room}"));
        assert!(!sources.is_empty(), "where is {room}?");
        for (name, text) in sources.into_iter().filter(|(name, _)| !is_test(name)) {
            for (line, code) in code(&text) {
                for word in IMPURE.iter().filter(|word| code.contains(**word)) {
                    found.push(format!("{name}:{line}: {word}"));
                }
            }
        }
    }
    check_none("engine, keeper, model and turn know no clock, no chance, no I/O", &found);
}

#[test]
fn unsafe_stands_where_it_is_reviewed() {
    let mut found = Vec::new();
    for folder in ["agent", "client-sdk", "packaging", "tests"] {
        for (name, text) in sources(folder) {
            if name == file!() {
                continue;
            }
            let allowed = UNSAFE.iter().any(|place| match place.strip_suffix('/') {
                Some(_) => name.starts_with(place),
                None => name == *place,
            });
            if allowed {
                continue;
            }
            for (line, code) in code(&text) {
                let words = ["{", "fn", "impl", "extern", "trait"];
                if words.iter().any(|word| code.contains(&format!("unsafe {word}"))) {
                    found.push(format!("{name}:{line}: {}", code.trim()));
                }
            }
        }
    }
    check_none(&format!("unsafe stands only in {UNSAFE:?}"), &found);
}

#[test]
fn every_place_for_unsafe_exists() {
    for place in UNSAFE {
        assert!(root().join(place).exists(), "{place} is gone: take it off the list");
    }
}

/// The first path segments after each `crate::` in a text: `crate::{a::B, c}` gives a and c.
fn rooms_imported(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let code: String = code(text).map(|(_, line)| format!("{line}\n")).collect();
    for (at, prefix) in code.match_indices("crate::") {
        let line = code[..at].lines().count().max(1);
        let rest = &code[at + prefix.len()..];
        let word = |text: &str| -> String {
            text.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect()
        };
        let Some(group) = rest.strip_prefix('{') else {
            let path: String = rest
                .chars()
                .take_while(|c| c.is_ascii_alphanumeric() || *c == '_' || *c == ':')
                .collect();
            found.push((line, path));
            continue;
        };
        let mut depth = 0;
        let mut start = true;
        for (i, c) in group.char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => start = true,
                c if start && !c.is_whitespace() => {
                    found.push((line, word(&group[i..])));
                    start = false;
                }
                _ => {}
            }
        }
    }
    found
}

#[test]
fn rooms_import_downhill() {
    let mut found = Vec::new();
    for (room, below) in DOWNHILL {
        for (name, text) in sources(&format!("agent/src/{room}")) {
            if is_test(&name) {
                continue;
            }
            let program = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
            for (line, path) in rooms_imported(program) {
                let to = path.split(':').next().unwrap_or_default();
                let for_anyone = to == room
                    || ["model", "config"].contains(&to)
                    || path.starts_with("host::clock")
                    // Macros and types of the crate's root.
                    || sources(&format!("agent/src/{to}")).is_empty();
                if !for_anyone && !below.contains(&to) {
                    found.push(format!("{name}:{line}: {room} imports {path}"));
                }
            }
        }
    }
    check_none("main → api, gateway → heart → keeper; heart → upstream → engine", &found);
}

#[test]
fn every_room_of_the_agent_is_named_here() {
    let rooms = fs::read_dir(root().join("agent/src")).expect("the agent has rooms");
    for room in rooms.flatten().filter(|entry| entry.path().is_dir()) {
        let name = room.file_name().display().to_string();
        let known = name == "config" || DOWNHILL.iter().any(|(room, _)| *room == name);
        assert!(known, "what may {name} import? Say so in DOWNHILL");
    }
}
