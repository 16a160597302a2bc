//! Paths of the built programs.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The path of a program of this workspace, built with the same profile as the caller.
///
/// Cargo tells a test the paths of its own package's programs only; the others lie beside them. A variable such as
/// `TENURE_PROGRAM_TENURED` names another one, as that of an earlier version (`tests/long skew`).
pub fn binary(name: &str) -> PathBuf {
    let variable = format!("TENURE_PROGRAM_{}", name.to_uppercase().replace('-', "_"));
    if let Some(path) = std::env::var_os(variable) {
        return path.into();
    }
    let this = std::env::current_exe().expect("a running program has a path");
    let beside = this.parent().expect("a program lies in a directory");
    let profile = if beside.ends_with("deps") {
        beside.parent().expect("deps lies in the profile's directory")
    } else {
        beside
    };
    let path = profile.join(name);
    assert!(
        path.is_file(),
        "{} is missing: build it with `cargo build --workspace --bins` (tests/run does)",
        path.display()
    );
    path
}

/// A copy of a program in that directory for every user to run: they may not be able to reach the build
/// directory.
#[track_caller]
pub fn copy_for_others(name: &str, directory: &Path) -> PathBuf {
    let copy = directory.join(name);
    if !copy.exists() {
        install_program(&binary(name), &copy);
    }
    copy
}

/// Copies a program that is to be executed, with the directories that its place needs.
#[track_caller]
pub fn install_program(from: &Path, to: &Path) {
    // By another process: a child that some other test forks while this one has the file
    // open for writing would keep it from being executed.
    let mut install = Command::new("install");
    install.args(["-D", "--mode=755"]).arg(from).arg(to);
    assert!(install.status().is_ok_and(|status| status.success()), "{install:?} failed");
}
