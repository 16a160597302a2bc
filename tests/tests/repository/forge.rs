//! The files of a public forge, and the lanes of the justfile.

use std::path::Path;

use tenure_tests::harness::Python;

/// Runs a program of tests/python/requirements.txt at the root, which has to say that all is well. Returns what it says.
#[track_caller]
fn agrees(program: &str, args: &[&str]) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut command = Python::tool(program);
    let output = command.args(args).current_dir(root).output().expect("it starts");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(output.status.success(), "{program} {args:?}: {said}");
    said
}

#[test]
fn every_lane_runs_what_is_there() {
    let lanes = agrees("just", &["--summary"]);
    for (lane, args) in [
        ("quick", &[][..]),
        ("test", &["a_name"]),
        ("e2e", &["agent", "a_name"]),
        ("seeds", &[]),
        ("lint", &[]),
        ("all", &[]),
        ("long", &["seeds", "7"]),
        ("bench", &["P1"]),
        ("ci", &[]),
    ] {
        assert!(lanes.split_whitespace().any(|it| it == lane), "{lane}: {lanes}");
        let typed = agrees("just", &[&["--dry-run", lane], args].concat());
        let words = typed.split_whitespace();
        for file in words.filter(|word| word.starts_with("tests/") || word.starts_with(".ci/")) {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file);
            assert!(path.is_file(), "{lane} runs {file}, which is not there");
        }
        for arg in args {
            assert!(typed.contains(arg), "{lane} does not use {arg}: {typed}");
        }
    }
}

#[test]
fn the_workflow_and_the_templates_are_what_the_forge_reads() {
    let workflows = ".github/workflows/ci.yml";
    agrees("check-jsonschema", &["--builtin-schema", "vendor.github-workflows", workflows]);
    for template in ["bug.yml", "idea.yml"] {
        let path = format!(".github/ISSUE_TEMPLATE/{template}");
        agrees("check-jsonschema", &["--builtin-schema", "vendor.github-issue-forms", &path]);
    }
    agrees("zizmor", &["--offline", "--no-progress", ".github"]);
}
