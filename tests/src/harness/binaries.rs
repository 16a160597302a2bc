//! Paths of the built programs.

use std::fs;
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
    let build = "build it with `cargo build --workspace --bins --tests --features tenured/systemd,tenure-cluster-simulation/run`";
    assert!(path.is_file(), "{} is missing: {build}", path.display());
    if let Some(source) = newer_source(&path) {
        panic!("{} is older than {}: {build}", path.display(), source.display());
    }
    path
}

/// The build directory, which has what `tests/run` prepares.
pub(super) fn build_directory() -> PathBuf {
    let puppet = binary("puppet");
    puppet.parent().and_then(Path::parent).expect("a profile lies in a directory").to_owned()
}

/// A source of a program that was changed after the program was built. Cargo writes the list of them beside it.
fn newer_source(program: &Path) -> Option<PathBuf> {
    let changed = |path: &Path| fs::metadata(path).and_then(|it| it.modified()).ok();
    let built = changed(program)?;
    let rule = fs::read_to_string(program.with_extension("d")).ok()?;
    let (_, sources) = rule.split_once(": ")?;
    let is_newer = |source: &PathBuf| changed(source).is_some_and(|at| at > built);
    sources.split_whitespace().map(PathBuf::from).find(is_newer)
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

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    #[test]
    fn a_program_that_is_older_than_one_of_its_sources_is_not_run() {
        let folder = tempfile::tempdir().unwrap();
        let [program, old, new] = ["p", "old.rs", "new.rs"].map(|name| folder.path().join(name));
        let at = |path: &Path, s| {
            let file = fs::File::options().create(true).append(true).open(path).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(s)).unwrap();
        };
        at(&program, 10);
        at(&old, 9);
        at(&new, 10);
        let list = [&old, &new].map(|path| path.display().to_string()).join(" ");
        fs::write(program.with_extension("d"), format!("{}: {list}\n", program.display())).unwrap();
        assert_eq!(newer_source(&program), None);
        at(&new, 11);
        assert_eq!(newer_source(&program), Some(new.clone()));
        fs::remove_file(program.with_extension("d")).unwrap();
        assert_eq!(newer_source(&program), None, "nothing is known of it");
    }
}
