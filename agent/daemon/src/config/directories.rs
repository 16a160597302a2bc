//! Default places.

use std::path::{Path, PathBuf};

use tenure_host::socket::Audience;
use tenure_service::config::{Environment, files_in};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Directories {
    pub(super) runtime: PathBuf,
    pub(super) state: PathBuf,
    pub(super) audience: Audience,
}

#[cfg(target_os = "macos")]
const RUNTIME: &str = "/var/run/tenured";
#[cfg(not(target_os = "macos"))]
const RUNTIME: &str = "/run/tenured";
const STATE: &str = "/var/lib/tenured";

/// Per user below the XDG directories; as a service where the service manager says, or where the
/// file-system hierarchy puts it; else in /tmp.
pub(super) fn defaults(environment: &Environment) -> Directories {
    let exists = |path: &PathBuf| path.is_dir();
    let user_state = || {
        let home = || Some(environment.directory("HOME")?.join(".local/state"));
        Some(environment.directory("XDG_STATE_HOME").or_else(home)?.join("tenured"))
    };
    // It is often left over from another user by su(1), and then does not exist.
    if let Some(runtime) = environment.directory("XDG_RUNTIME_DIR").filter(exists) {
        let runtime = runtime.join("tenured");
        let state = user_state().unwrap_or_else(|| runtime.join("state"));
        return Directories { runtime, state, audience: Audience::User };
    }
    if let Some(runtime) = environment.first_of("RUNTIME_DIRECTORY") {
        let state = environment.first_of("STATE_DIRECTORY").unwrap_or_else(|| PathBuf::from(STATE));
        return Directories { runtime, state, audience: Audience::Host };
    }
    if environment.uid == 0 {
        let (runtime, state) = (PathBuf::from(RUNTIME), PathBuf::from(STATE));
        return Directories { runtime, state, audience: Audience::Host };
    }
    let runtime = Path::new("/tmp").join(format!("tenured-{}", environment.uid));
    let state = user_state().unwrap_or_else(|| runtime.join("state"));
    Directories { runtime, state, audience: Audience::User }
}

/// The file in such a directory that is read before its drop-ins.
pub(super) const MAIN: &str = "tenured.toml";
/// The configuration of the agent that serves the whole host.
const SYSTEM: &str = "/etc/tenured";

/// The files that are read when none is named, those first that others override, and what should be
/// looked at.
pub(super) fn files(environment: &Environment) -> (Vec<PathBuf>, Vec<String>) {
    let (mut files, warnings) = files_in(Path::new(SYSTEM), MAIN);
    let home = || Some(environment.directory("HOME")?.join(".config"));
    if let Some(user) = environment.directory("XDG_CONFIG_HOME").or_else(home) {
        files.push(user.join("tenured").join(MAIN));
    }
    (files, warnings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(uid: u32, variables: &[(&str, &str)], expected: (&str, &str, Audience)) {
        let variables =
            variables.iter().map(|(name, value)| (name.to_string(), value.into())).collect();
        let found = defaults(&Environment { variables, uid });
        let found =
            (found.runtime.to_str().unwrap(), found.state.to_str().unwrap(), found.audience);
        assert_eq!(found, expected);
    }

    #[test]
    fn by_user_service_and_emergency() {
        let (host, user) = (Audience::Host, Audience::User);
        check(0, &[], ("/run/tenured", "/var/lib/tenured", host));
        let xdg = ("XDG_RUNTIME_DIR", "/proc");
        let home = ("HOME", "/home/a");
        check(0, &[xdg, home], ("/proc/tenured", "/home/a/.local/state/tenured", user));
        check(7, &[xdg, ("XDG_STATE_HOME", "/s")], ("/proc/tenured", "/s/tenured", user));
        check(
            7,
            &[("XDG_RUNTIME_DIR", "relative")],
            ("/tmp/tenured-7", "/tmp/tenured-7/state", user),
        );
        check(
            7,
            &[("XDG_RUNTIME_DIR", "/no/such")],
            ("/tmp/tenured-7", "/tmp/tenured-7/state", user),
        );
        let service = [("RUNTIME_DIRECTORY", "/run/t:/run/u"), ("STATE_DIRECTORY", "/var/lib/t")];
        check(7, &service, ("/run/t", "/var/lib/t", host));
    }
}
