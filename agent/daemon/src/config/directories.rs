//! Default places.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use tenure_host::socket::Audience;

/// The part of the environment that the agent was started with and that matters here.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    /// Environment variables.
    pub variables: BTreeMap<String, OsString>,
    /// The effective user.
    pub uid: u32,
}

impl Environment {
    /// That of this process.
    pub fn of_process() -> Environment {
        let variables = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value)))
            .collect();
        Environment { variables, uid: nix::unistd::geteuid().as_raw() }
    }

    /// A variable that names a directory. The XDG base directory specification says that relative
    /// ones are to be ignored.
    pub(super) fn directory(&self, variable: &str) -> Option<PathBuf> {
        let path = PathBuf::from(self.variables.get(variable)?);
        path.is_absolute().then_some(path)
    }
}

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
    let first = |variable| {
        let list = environment.variables.get(variable)?.to_str()?;
        list.split(':').next().map(PathBuf::from).filter(|path| path.is_absolute())
    };
    if let Some(runtime) = first("RUNTIME_DIRECTORY") {
        let state = first("STATE_DIRECTORY").unwrap_or_else(|| PathBuf::from(STATE));
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
    let (mut files, warnings) = files_in(Path::new(SYSTEM));
    let home = || Some(environment.directory("HOME")?.join(".config"));
    if let Some(user) = environment.directory("XDG_CONFIG_HOME").or_else(home) {
        files.push(user.join("tenured").join(MAIN));
    }
    (files, warnings)
}

/// `tenured.toml` in a directory, and then the drop-ins `conf.d/*.toml` in the order of their names.
/// Hidden ones are none: editors leave such things behind.
pub(super) fn files_in(directory: &Path) -> (Vec<PathBuf>, Vec<String>) {
    let mut files = vec![directory.join(MAIN)];
    let drop_ins = directory.join("conf.d");
    let found = match std::fs::read_dir(&drop_ins) {
        Ok(found) => found,
        Err(error) if is_absent(&error) => return (files, Vec::new()),
        Err(error) => {
            let warning = format!("cannot read {}: {error}; skipped", drop_ins.display());
            return (files, vec![warning]);
        }
    };
    let is_drop_in = |path: &PathBuf| {
        let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        !hidden && path.extension().is_some_and(|extension| extension == "toml")
    };
    let mut parts: Vec<PathBuf> =
        found.filter_map(|entry| Some(entry.ok()?.path())).filter(is_drop_in).collect();
    parts.sort();
    files.extend(parts);
    (files, Vec::new())
}

/// True if the error says that there is no such file.
pub(super) fn is_absent(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{NotADirectory, NotFound};
    matches!(error.kind(), NotFound | NotADirectory)
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
