//! The Rust crates as they are packed, built and run in a project of somebody else.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;
use tenure_tests::harness::{Agent, Program, run_to_end, until, without_cargo};

const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
/// Where cargo builds; kept from run to run.
const TARGET: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/crates");

/// Cargo in a directory, without a network: everything was downloaded for the workspace.
#[track_caller]
fn cargo(directory: &Path, words: &[&str]) {
    let mut cargo = Command::new(env!("CARGO"));
    without_cargo(&mut cargo);
    let ran = cargo.args(words).arg("--offline").current_dir(directory);
    ran.env("CARGO_TARGET_DIR", TARGET).env("CARGO_PROFILE_DEV_DEBUG", "false");
    let output = ran.stdin(Stdio::null()).output().expect("cargo can be started");
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Unpacks a crate that was packed; its sources.
#[track_caller]
fn unpack(name: &str, to: &Path) -> PathBuf {
    let versioned = format!("{name}-{}", env!("CARGO_PKG_VERSION"));
    let mut tar = Command::new("tar");
    // Packed files are of 2006, and Cargo would take what it built of earlier ones.
    tar.args(["--extract", "--touch", "--directory"]).arg(to).arg("--file");
    let status = tar.arg(format!("{TARGET}/package/{versioned}.crate")).status();
    assert!(status.is_ok_and(|status| status.success()), "{tar:?}");
    to.join(versioned)
}

/// The programs of the README, in their order.
fn programs_of_readme(readme: &str) -> Vec<&str> {
    let blocks = readme.split("```rust,no_run\n").skip(1);
    blocks.map(|block| block.split("```").next().expect("a block ends")).collect()
}

#[test]
fn the_programs_of_the_readme_run_with_the_packed_crates() {
    let packed =
        ["package", "--locked", "--allow-dirty", "--no-verify", "--package", "tenure-wire"];
    cargo(Path::new(WORKSPACE), &[&packed[..], &["--package", "tenure"]].concat());
    let project = TempDir::with_prefix("project-").expect("a temporary directory can be made");
    let (tenure, wire) = (unpack("tenure", project.path()), unpack("tenure-wire", project.path()));
    let readme = fs::read_to_string(tenure.join("README.md")).expect("it is packed");
    let [ten_lines, threads, worker] = programs_of_readme(&readme)[..] else {
        panic!("three programs")
    };
    let manifest = format!(
        r#"[package]
name = "project"
edition = "2024"

[dependencies]
tenure = "{version}"
tokio = {{ version = "1", features = ["macros", "rt-multi-thread"] }}

[patch.crates-io]
tenure = {{ path = {tenure:?} }}
tenure-wire = {{ path = {wire:?} }}
"#,
        version = env!("CARGO_PKG_VERSION"),
    );
    let programs = project.path().join("src/bin");
    fs::create_dir_all(&programs).expect("the directory is ours");
    for (file, text) in [
        (project.path().join("Cargo.toml"), manifest.as_str()),
        (programs.join("ten_lines.rs"), ten_lines),
        (programs.join("threads.rs"), threads),
        (programs.join("worker.rs"), worker),
    ] {
        fs::write(file, text).expect("the directory is ours");
    }
    let lock = fs::copy(Path::new(WORKSPACE).join("Cargo.lock"), project.path().join("Cargo.lock"));
    lock.expect("the workspace has a lock file");
    cargo(project.path(), &["build"]);

    let agent = Agent::start();
    for (program, said) in [
        ("ten_lines", "42 rows\n"),
        ("threads", "part 99, fence "),
        ("worker", "job 7 with token "),
    ] {
        let mut command = Command::new(format!("{TARGET}/debug/{program}"));
        command.env("TENURE_SOCKET", agent.socket()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let (code, out, err) = run_to_end(&mut Program::start(&mut command));
        assert_eq!((code, err.as_str()), (0, ""), "{out}");
        assert!(out.contains(said), "{out}");
    }
    until("nothing to be left", || agent.counts() == (0, 0, 0));
}
