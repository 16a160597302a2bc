//! `tenured gateway`: another program in this one's place.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const PROGRAM: &str = "tenured-gateway";
/// Programs that people start by way of another one.
const LIBEXEC: &str = "/usr/libexec/tenured";

/// Why the gateway cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    #[error(
        "there is no {PROGRAM} beside this program, nor in {LIBEXEC}: install the package {PROGRAM}, or build it \
         with `cargo build --release -p tenure-gateway`"
    )]
    Missing,
    #[error("cannot run {}", .path.display())]
    Run { path: PathBuf, source: io::Error },
}

/// Runs the gateway in the place of this process. Returns only if that fails.
pub fn run_gateway(arguments: &[OsString]) -> GatewayError {
    let own = std::env::current_exe().ok();
    let beside = own.as_deref().and_then(Path::parent);
    match find(beside) {
        None => GatewayError::Missing,
        Some(path) => {
            let source = Command::new(&path).args(arguments).exec();
            GatewayError::Run { path, source }
        }
    }
}

fn find(beside: Option<&Path>) -> Option<PathBuf> {
    let folders = beside.into_iter().chain([Path::new(LIBEXEC)]);
    folders.map(|folder| folder.join(PROGRAM)).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_looked_for_beside_the_agent_first() {
        let dir = tempfile::tempdir().unwrap();
        let there = dir.path().join(PROGRAM);
        std::fs::write(&there, "").unwrap();
        assert_eq!(find(Some(dir.path())), Some(there));
        let said = GatewayError::Missing.to_string();
        assert!(said.contains("install the package tenured-gateway"), "{said}");
    }
}
