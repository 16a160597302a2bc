//! The search for the agent's socket.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::CallError;

/// Names the agent's socket: a path, or a `unix:` URI.
pub const SOCKET_VARIABLE: &str = "TENURE_SOCKET";
const RUNTIME_VARIABLE: &str = "XDG_RUNTIME_DIR";

/// The socket of an agent that runs as a service.
#[cfg(not(target_os = "macos"))]
pub const SERVICE_SOCKET: &str = "/run/tenured/api.sock";
/// The socket of an agent that runs as a service.
#[cfg(target_os = "macos")]
pub const SERVICE_SOCKET: &str = "/var/run/tenured/api.sock";

/// The surroundings that the search looks at, so that it can be tested without touching the
/// process.
pub(super) struct Surroundings<'a> {
    pub(super) variable: &'a dyn Fn(&str) -> Option<OsString>,
    /// True for a socket that is ours to trust.
    pub(super) usable: &'a dyn Fn(&Path) -> bool,
    pub(super) uid: u32,
}

/// The path in this order: `explicit`, `TENURE_SOCKET`, the [`places`].
pub(super) fn find(explicit: Option<&Path>) -> Result<PathBuf, CallError> {
    let uid = nix::unistd::geteuid().as_raw();
    let usable = |path: &Path| path.exists() && !planted(path, uid);
    find_in(explicit, &Surroundings { variable: &variable, usable: &usable, uid })
}

/// The other places that were looked at before this one was taken for the agent's socket, if it was not
/// named.
pub(super) fn looked_at_besides(path: &Path) -> Vec<PathBuf> {
    let uid = nix::unistd::geteuid().as_raw();
    if set(&variable, SOCKET_VARIABLE).is_some() {
        return Vec::new();
    }
    let mut places = places(&variable, uid);
    let found = places.iter().position(|place| place == path);
    match found.map(|found| places.remove(found)) {
        Some(_) => places,
        None => Vec::new(),
    }
}

pub(super) fn find_in(
    explicit: Option<&Path>,
    around: &Surroundings<'_>,
) -> Result<PathBuf, CallError> {
    if let Some(path) = explicit {
        return parse(path.to_owned());
    }
    if let Some(value) = set(around.variable, SOCKET_VARIABLE) {
        return parse(value.into());
    }
    let places = places(around.variable, around.uid);
    let found = places.iter().find(|place| (around.usable)(place)).cloned();
    let otherwise = || match set(around.variable, RUNTIME_VARIABLE) {
        Some(_) => places.first().cloned(),
        None => None,
    };
    Ok(found.or_else(otherwise).unwrap_or_else(|| PathBuf::from(SERVICE_SOCKET)))
}

/// Paths at which an agent may listen: below the user's runtime directory, also when nothing tells
/// of that, as in a cron job; and as a service. Root's service comes before an agent of root's own
/// session.
fn places(variable: &dyn Fn(&str) -> Option<OsString>, uid: u32) -> Vec<PathBuf> {
    let told = set(variable, RUNTIME_VARIABLE)
        .map(|directory| PathBuf::from(directory).join("tenured/api.sock"));
    let untold = PathBuf::from(format!("/run/user/{uid}/tenured/api.sock"));
    let service = PathBuf::from(SERVICE_SOCKET);
    let rest = match uid {
        0 => vec![service, untold],
        _ => vec![untold, temporary_directory(uid).join("api.sock"), service],
    };
    let mut places: Vec<PathBuf> = told.into_iter().collect();
    for place in rest {
        if !places.contains(&place) {
            places.push(place);
        }
    }
    places
}

fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

fn set(variable: &dyn Fn(&str) -> Option<OsString>, name: &str) -> Option<OsString> {
    variable(name).filter(|value| !value.is_empty())
}

/// The directory of a user's own agent when there is no `XDG_RUNTIME_DIR`.
fn temporary_directory(uid: u32) -> PathBuf {
    PathBuf::from(format!("/tmp/tenured-{uid}"))
}

/// True if somebody else has taken this user's place under `/tmp`, where everybody may.
fn planted(path: &Path, uid: u32) -> bool {
    let directory = temporary_directory(uid);
    path.starts_with(&directory)
        && std::fs::symlink_metadata(&directory)
            .map_or(true, |directory| directory.uid() != uid || !directory.is_dir())
}

/// Takes off `unix:` and refuses what cannot be a socket's path.
fn parse(value: PathBuf) -> Result<PathBuf, CallError> {
    let bad = |rule| CallError::BadSocket { value: value.display().to_string(), rule };
    let Some(text) = value.to_str() else { return Err(bad("the path must be UTF-8")) };
    let path = match text.strip_prefix("unix:") {
        None if text.contains("://") => return Err(bad("the only scheme is `unix:`")),
        None => text,
        Some(rest) => match rest.strip_prefix("//") {
            Some(rest) if !rest.starts_with('/') => {
                return Err(bad("a `unix:` URI has no host: write `unix:///path`"));
            }
            Some(rest) => rest,
            None => rest,
        },
    };
    if path.is_empty() {
        return Err(bad("the path must not be empty"));
    }
    if is_address(path) {
        return Err(bad("the agent speaks no TCP: write the path of its Unix socket"));
    }
    Ok(PathBuf::from(path))
}

/// True for `127.0.0.1:6379`. A file may be called so, and its path has a slash then.
fn is_address(text: &str) -> bool {
    let port = text.rsplit_once(':').map(|(_, port)| port);
    let is_port = port.is_some_and(|port| port.parse::<u16>().is_ok());
    text.starts_with("tcp:") || is_port && !text.contains('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(explicit: Option<&str>, variables: &[(&str, &str)], existing: &[&str], found: &str) {
        let variable = |name: &str| {
            variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into())
        };
        let usable = |path: &Path| existing.iter().any(|other| Path::new(other) == path);
        let around = Surroundings { variable: &variable, usable: &usable, uid: 1000 };
        let path = match find_in(explicit.map(Path::new), &around) {
            Ok(path) => path.display().to_string(),
            Err(error) => error.to_string(),
        };
        assert!(path.contains(found), "{path:?} instead of {found:?}");
    }

    #[test]
    fn the_nearest_socket_wins() {
        let own = "/run/user/1000/tenured/api.sock";
        let xdg = ("XDG_RUNTIME_DIR", "/run/user/1000");
        let named = ("TENURE_SOCKET", "/a.sock");
        check(Some("/b.sock"), &[named, xdg], &[own], "/b.sock");
        check(None, &[named, xdg], &[own], "/a.sock");
        check(None, &[("TENURE_SOCKET", ""), xdg], &[own, SERVICE_SOCKET], own);
        check(None, &[xdg], &[SERVICE_SOCKET], SERVICE_SOCKET);
        check(None, &[xdg], &[], own);
        check(None, &[], &[], SERVICE_SOCKET);
        check(None, &[], &["/tmp/tenured-1000/api.sock"], "/tmp/tenured-1000/api.sock");
        // A cron job is not told, and su(1) tells of another user's.
        check(None, &[], &[own, SERVICE_SOCKET], own);
        let other = ("XDG_RUNTIME_DIR", "/run/user/0");
        check(None, &[other], &[own, SERVICE_SOCKET], own);
    }

    #[test]
    fn the_service_of_root_comes_before_what_a_session_left() {
        let places = |variables: &[(&str, &str)], uid| -> Vec<String> {
            let variable = |name: &str| {
                variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into())
            };
            places(&variable, uid).iter().map(|place| place.display().to_string()).collect()
        };
        let session = "/run/user/0/tenured/api.sock";
        assert_eq!(places(&[], 0), [SERVICE_SOCKET, session]);
        let xdg = ("XDG_RUNTIME_DIR", "/run/user/0");
        assert_eq!(places(&[xdg], 0), [session, SERVICE_SOCKET]);
        assert_eq!(
            places(&[], 7),
            ["/run/user/7/tenured/api.sock", "/tmp/tenured-7/api.sock", SERVICE_SOCKET]
        );
    }

    #[test]
    fn a_uri_is_a_path_with_a_scheme() {
        check(Some("unix:/a.sock"), &[], &[], "/a.sock");
        check(Some("unix:///a.sock"), &[], &[], "/a.sock");
        check(Some("unix://host/a.sock"), &[], &[], "has no host");
        check(Some("http://host/"), &[], &[], "only scheme");
        check(Some("unix:"), &[], &[], "must not be empty");
        check(Some("127.0.0.1:6379"), &[], &[], "speaks no TCP");
        check(Some("tcp:db-1"), &[], &[], "speaks no TCP");
        check(Some("./a:1"), &[], &[], "./a:1");
    }

    #[test]
    fn a_socket_under_a_directory_of_somebody_else_is_not_ours() {
        assert!(planted(&temporary_directory(u32::MAX).join("api.sock"), u32::MAX));
        assert!(!planted(Path::new("/run/user/1000/tenured/api.sock"), 1000));
    }
}
