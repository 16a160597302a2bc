//! Where the built programs are.

use std::path::PathBuf;

/// The path of a program of this workspace, built with the same profile as the caller.
///
/// Cargo tells a test the paths of its own package's programs only; the others lie beside them.
///
/// # Panics
///
/// When it has not been built.
pub fn binary(name: &str) -> PathBuf {
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
