//! The public API of the crates that programs build on: `tenure`, and `tenure-wire`, which it shows as `tenure::wire`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use tenure_tests::harness::without_cargo;

const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
/// Apart from other builds: build scripts look for the variable that lets a stable compiler write JSON.
const TARGET: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/public-api");
/// The crates whose types may be seen, besides the two and Rust's own. Whoever adds one ties the versions of both.
const SEEN: [(&str, &str); 4] = [
    ("futures_core", "`Stream`, which campaigns and events are; stands still since 2019"),
    ("serde_core", "the shapes that travel can be written and read in every format"),
    ("serde_json", "what a message carries is any JSON"),
    ("uuid", "the ids; at version 1 since 2022"),
];
/// Traits that every type has, unless its fields say otherwise. Only `Send` and `Sync` are promised.
const NOT_PROMISED: [&str; 5] = [
    "::Freeze for",
    "::Unpin for",
    "::UnsafeUnpin for",
    "::unwind_safe::",
    "::StructuralPartialEq for",
];

/// One line for each item.
fn public_api(package: &str) -> Vec<String> {
    let mut cargo = Command::new(env!("CARGO"));
    without_cargo(&mut cargo);
    cargo.args(["rustdoc", "--offline", "--quiet", "--lib", "--package", package, "--"]);
    cargo.args(["-Zunstable-options", "--output-format=json", "--cap-lints=allow"]);
    cargo.env("RUSTC_BOOTSTRAP", "1").env("CARGO_TARGET_DIR", TARGET).current_dir(WORKSPACE);
    let output = cargo.stdin(Stdio::null()).output().expect("cargo can be started");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let json = Path::new(TARGET).join(format!("doc/{}.json", package.replace('-', "_")));
    let api = public_api::Builder::from_rustdoc_json(json).omit_blanket_impls(true).build();
    let items = api
        .expect("`public-api` in Cargo.toml is of the version that reads what this compiler writes")
        .into_items();
    let promised = |line: &String| !NOT_PROMISED.iter().any(|not| line.contains(not));
    items.map(|item| item.to_string()).filter(promised).collect()
}

/// The crates that a line names. Names of one letter are type parameters.
fn crates(line: &str) -> impl Iterator<Item = &str> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let paths = line.split(move |c| !is_name(c)).filter_map(|path| path.split_once("::"));
    paths
        .map(|(first, _)| first)
        .filter(|first| !first.is_empty() && !first.starts_with(char::is_uppercase))
}

fn check(package: &str) {
    let lines = public_api(package);
    let ours = ["tenure", "tenure_wire", "crate", "alloc", "core", "std"];
    let foreign: BTreeSet<_> = lines
        .iter()
        .filter(|line| {
            crates(line).any(|it| !ours.contains(&it) && SEEN.iter().all(|(seen, _)| *seen != it))
        })
        .collect();
    assert!(
        foreign.is_empty(),
        "types of other crates, whose versions programs would have to share: {foreign:#?}"
    );

    let path = Path::new(WORKSPACE).join(format!("tests/tests/sdk/public_api/{package}.txt"));
    if std::env::var_os("UPDATE_PUBLIC_API").is_some() {
        return fs::write(path, lines.join("\n") + "\n").expect("the tree can be written");
    }
    let accepted = fs::read_to_string(&path).expect("it is in the tree");
    let (accepted, found) =
        (accepted.lines().collect::<BTreeSet<_>>(), lines.iter().map(String::as_str).collect());
    let gone: Vec<_> = accepted.difference(&found).collect();
    let new: Vec<_> = found.difference(&accepted).collect();
    assert!(
        gone.is_empty() && new.is_empty(),
        "the public API of {package} changed; what is gone breaks programs.\ngone: {gone:#?}\nnew: {new:#?}\nto accept it: \
         UPDATE_PUBLIC_API=1 cargo test -p tenure-tests --test sdk public_api",
    );
}

#[test]
fn of_the_sdk() {
    check("tenure");
}

#[test]
fn of_what_travels() {
    check("tenure-wire");
}
