//! The documents: the book builds, every link leads somewhere, and the examples of README are those that are compiled.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("it is there")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The output of a program that succeeds.
#[track_caller]
fn output(program: &mut Command) -> String {
    let output = program.output().unwrap_or_else(|error| panic!("{program:?}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program:?}: {}\n{errors}", output.status);
    String::from_utf8(output.stdout).expect("text")
}

/// What stands between `before` and `after`, each time.
fn between<'a>(text: &'a str, before: &'a str, after: char) -> impl Iterator<Item = &'a str> {
    text.split(before).skip(1).filter_map(move |rest| Some(rest.split_once(after)?.0))
}

/// True if it leads to another place than these files: a site, or an item of Rust.
fn leads_away(link: &str) -> bool {
    link.contains("://") || link.starts_with("mailto:") || link.contains("::")
}

/// The files of a folder with this ending.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder can be read");
    let paths = entries.map(|entry| entry.expect("an entry can be read").path());
    paths.filter(|path| path.extension().is_some_and(|it| it == ending)).collect()
}

/// The alerts, and where in the book their pages are.
fn runbooks() -> Vec<(String, String)> {
    const BOOK: &str = "runbook: docs/";
    let rules = root().join("packaging/prometheus");
    let of_file = |path: PathBuf| {
        let text = read(&path);
        let alerts = text.split("- alert: ").skip(1).map(|rule| {
            let (alert, rest) = rule.split_once('\n').expect("more than a name");
            let link = between(rest, BOOK, '\n').next();
            (alert.to_owned(), link.unwrap_or_else(|| panic!("{alert} has no page")).to_owned())
        });
        alerts.collect::<Vec<_>>()
    };
    let rules = files(&rules, "yml").into_iter();
    let found: Vec<_> = rules.filter(|it| !it.ends_with(".test.yml")).flat_map(of_file).collect();
    assert!(found.len() > 20, "{found:?}");
    found
}

#[test]
fn the_book_builds_and_its_links_lead_somewhere() {
    let target = TempDir::new().expect("a folder can be made");
    let docs = root().join("docs");
    output(Command::new("mdbook").arg("build").arg(&docs).arg("--dest-dir").arg(target.path()));
    let mut followed = 0;
    for page in files(target.path(), "html") {
        // One page with all others in it, whose links are theirs.
        if page.ends_with("print.html") || page.ends_with("404.html") {
            continue;
        }
        let text = read(&page);
        let links = between(&text, "href=\"", '"').chain(between(&text, "src=\"", '"'));
        for link in links.filter(|link| !leads_away(link) && !link.starts_with("data:")) {
            let (path, place) = link.split_once('#').unwrap_or((link, ""));
            let to = if path.is_empty() { page.clone() } else { target.path().join(path) };
            assert!(to.exists(), "{}: {link} leads nowhere", page.display());
            let is_there = place.is_empty() || read(&to).contains(&format!("id=\"{place}\""));
            assert!(is_there, "{}: {link} has no such place", page.display());
            followed += 1;
        }
    }
    assert!(followed > 100, "{followed} links");
    for (alert, link) in runbooks() {
        let (path, place) = link.split_once('#').unwrap_or_else(|| panic!("{alert}: {link}"));
        let path = path.replace(".md", ".html");
        let is_there = read(&target.path().join(path)).contains(&format!("id=\"{place}\""));
        assert!(is_there, "{alert}: {link} has no such place");
    }
    // A page that the summary does not name is not in the book.
    let summary = read(&docs.join("SUMMARY.md"));
    let named: BTreeSet<&str> = between(&summary, "](", ')').collect();
    for page in files(&docs, "md") {
        let name = page.file_name().and_then(|it| it.to_str()).expect("a name");
        assert!(name == "SUMMARY.md" || named.contains(name), "{name} is not in SUMMARY.md");
    }
}

#[test]
fn links_of_all_pages_lead_to_files() {
    let listed = output(Command::new("git").args(["ls-files", "*.md"]).current_dir(root()));
    for page in listed.lines().map(|line| root().join(line)) {
        // Parts between these are code, where brackets mean something else.
        let text: String = read(&page).split("```").step_by(2).collect();
        for link in between(&text, "](", ')').filter(|link| !leads_away(link)) {
            let path = link.split('#').next().unwrap_or_default();
            let to = page.parent().expect("a folder").join(path);
            assert!(to.exists(), "{}: {link} leads nowhere", page.display());
        }
    }
}

#[test]
fn the_rust_of_the_readme_is_an_example_that_compiles() {
    let example = read(&root().join("client-sdk/rust/examples/leader.rs"));
    let readme = read(&root().join("README.md"));
    let shown = between(&readme, "```rust\n", '`').next().expect("an example");
    for line in shown.lines() {
        assert!(example.contains(line), "not in the example: {line}");
    }
}
