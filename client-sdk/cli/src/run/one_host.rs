//! A warning, once for each user, that other hosts do not respect the locks of a store of one host. A packaged service
//! has such a store until its configuration names another.

use std::fs::{self, File};
use std::io::{IsTerminal, stderr};
use std::path::{Path, PathBuf};

use tenure::wire::Registered;

use crate::output::say;

/// Where the sockets of packaged services are.
const SERVICES: [&str; 2] = ["/run/tenured", "/var/run/tenured"];
const EMBEDDED: &str = "embedded";

/// Prints the warning on a terminal after the first grant.
pub(super) fn say_once(what: &str, socket: &Path, registered: &Registered) {
    let is_service = SERVICES.iter().any(|folder| socket.starts_with(folder));
    if is_service && registered.agent.upstream == EMBEDDED && stderr().is_terminal() {
        let state = state_folder(&|name| std::env::var_os(name).map(PathBuf::from));
        if state.is_some_and(|folder| is_first(&folder)) {
            say(&line(what));
        }
    }
}

fn line(what: &str) -> String {
    format!(
        "{what}: held on this host alone: other hosts do not respect it, since the agent's store is its own (upstream embedded); \
         to share one set `upstream` in /etc/tenured/tenured.toml, to refuse instead add --fleet (said once)"
    )
}

fn state_folder(variable: &dyn Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let home = || Some(variable("HOME")?.join(".local/state"));
    variable("XDG_STATE_HOME").or_else(home).filter(|it| it.is_absolute())
}

/// True the first time. Without a file as a mark the warning is never printed: a line at each run would fill mails of
/// cron.
fn is_first(state: &Path) -> bool {
    let folder = state.join("tenure");
    fs::create_dir_all(&folder).is_ok() && File::create_new(folder.join("one-host-said")).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_once() {
        let home = tempfile::tempdir().expect("a temporary folder");
        let variable = |name: &str| (name == "HOME").then(|| home.path().to_owned());
        let state = state_folder(&variable).expect("a home");
        assert_eq!([is_first(&state), is_first(&state)], [true, false]);
        assert_eq!(state_folder(&|_| None), None);
        assert!(!is_first(Path::new("/proc/no/such")));
    }
}
