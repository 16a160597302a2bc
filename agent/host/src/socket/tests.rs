use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt;

use super::*;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

/// Children that other tests fork keep a closed socket alive until they exec.
#[expect(clippy::disallowed_methods, reason = "only for how long the test is patient")]
fn until_refused(path: &Path) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while UnixStream::connect(path).is_ok() {
        assert!(std::time::Instant::now() < deadline, "{} still accepts", path.display());
        std::thread::yield_now();
    }
}

#[test]
fn binds_with_the_right_modes_and_removes_itself() {
    let dir = tempfile::tempdir().unwrap();
    for (audience, expected) in [(Audience::Host, 0o660), (Audience::User, 0o600)] {
        let path = dir.path().join("made/on demand/api.sock");
        let (_listener, place) = bind(&path, audience).unwrap();
        assert_eq!(mode(&path), expected);
        assert_eq!(mode(path.parent().unwrap()), 0o755);
        UnixStream::connect(&path).unwrap();
        let lock = path.with_file_name("api.sock.lock");
        assert_eq!(mode(&lock), 0o600);
        place.remove();
        assert!(!path.exists());
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "only the lock");
    }
}

#[test]
fn the_group_of_a_shared_directory_is_kept() {
    if !nix::unistd::geteuid().is_root() {
        return; // Another group takes root.
    }
    let dir = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(dir.path(), None, Some(65_533)).unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o2770)).unwrap();
    let path = dir.path().join("api.sock");
    let (_listener, place) = bind(&path, Audience::User).unwrap();
    assert_eq!((fs::metadata(&path).unwrap().gid(), mode(&path)), (65_533, 0o600));

    // A file that somebody else puts there is not the agent's to remove.
    fs::remove_file(&path).unwrap();
    fs::write(&path, "precious").unwrap();
    place.remove();
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
}

#[test]
fn a_live_agent_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("api.sock");
    let (listener, place) = bind(&path, Audience::User).unwrap();
    let me = std::process::id();
    let taken = bind(&path, Audience::User).unwrap_err();
    assert!(matches!(taken, BindError::Taken { pid: Some(pid), .. } if pid == me), "{taken}");
    assert_eq!(
        taken.to_string(),
        format!(
            "another agent (pid {me}) serves {}; stop it (kill {me}), or choose another path with --socket",
            path.display()
        )
    );

    // Also when it serves without our lock.
    drop(place);
    let taken = bind(&path, Audience::User).unwrap_err();
    assert!(matches!(taken, BindError::Taken { pid: Some(pid), .. } if pid == me), "{taken}");

    // A dead one is replaced.
    drop(listener);
    until_refused(&path);
    let (_listener, _place) = bind(&path, Audience::User).unwrap();
    UnixStream::connect(&path).unwrap();
}

#[test]
fn removes_nothing_that_is_not_a_socket() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("precious");
    fs::write(&path, "data").unwrap();
    assert!(matches!(bind(&path, Audience::User), Err(BindError::NotASocket(_))));
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert!(matches!(bind(&link, Audience::User), Err(BindError::NotASocket(_))));
    assert_eq!(fs::read_to_string(&path).unwrap(), "data");

    // Nor is a lock file followed elsewhere.
    let socket = dir.path().join("api.sock");
    std::os::unix::fs::symlink(&path, dir.path().join("api.sock.lock")).unwrap();
    assert!(matches!(bind(&socket, Audience::User), Err(BindError::System { .. })));
    assert_eq!(fs::read_to_string(&path).unwrap(), "data");
}

#[test]
fn says_what_is_wrong_with_a_path() {
    let long = Path::new("/tmp").join("x".repeat(PATH_BYTES_MAX));
    let error = bind(&long, Audience::User).unwrap_err();
    assert!(matches!(error, BindError::TooLong(_)));
    assert!(error.to_string().contains("has 112 bytes, at most 107"), "{error}");
    assert!(matches!(bind(Path::new("/"), Audience::User), Err(BindError::NoFile(_))));

    let dir = tempfile::tempdir().unwrap();
    let exact = PATH_BYTES_MAX - dir.path().as_os_str().len() - 1;
    let path = dir.path().join("y".repeat(exact));
    bind(&path, Audience::User).unwrap();
    until_refused(&path);
    assert!(path.exists(), "left for the next agent");
}

#[test]
fn a_socket_of_the_service_manager_stays_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("api.sock");
    let handed = UnixListener::bind(&path).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
    let before = fs::metadata(&path).unwrap();
    let early = UnixStream::connect(&path).unwrap();

    let copy = || OwnedFd::from(handed.try_clone().unwrap());
    let (listener, place) = adopt(copy(), Path::new("/elsewhere/api.sock")).unwrap();
    assert_eq!(place.path(), path);
    listener.accept().unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    drop(early);

    // One agent a path, whoever made the socket.
    assert!(matches!(adopt(copy(), &path), Err(BindError::Taken { pid: Some(_), .. })));
    assert!(matches!(bind(&path, Audience::User), Err(BindError::Taken { pid: Some(_), .. })));

    drop(listener);
    place.remove();
    let after = fs::metadata(&path).unwrap();
    assert_eq!((after.ino(), after.mode()), (before.ino(), before.mode()));
    UnixStream::connect(&path).unwrap();
    let (_listener, _place) = adopt(copy(), &path).unwrap();
}

#[test]
fn a_socket_that_vanished_is_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sub/api.sock");
    let (_listener, mut place) = bind(&path, Audience::User).unwrap();
    assert!(matches!(place.look(), Ok(Look::Same)));
    fs::remove_file(&path).unwrap();
    let Ok(Look::Renewed(first)) = place.look() else { panic!("not made again") };
    UnixStream::connect(&path).unwrap();
    first.accept().unwrap();
    assert_eq!(mode(&path), 0o600);
    assert!(matches!(place.look(), Ok(Look::Same)));

    // With everything beside it: the right to the path is that of the new lock.
    fs::remove_dir_all(path.parent().unwrap()).unwrap();
    let Ok(Look::Renewed(_second)) = place.look() else { panic!("not made again") };
    assert!(matches!(bind(&path, Audience::User), Err(BindError::Taken { pid: Some(_), .. })));

    fs::remove_file(&path).unwrap();
    fs::write(&path, "precious").unwrap();
    assert!(matches!(place.look(), Ok(Look::Replaced)));
    place.remove();
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");

    let handed = dir.path().join("handed.sock");
    let listener = UnixListener::bind(&handed).unwrap();
    let (_listener, mut place) = adopt(listener.into(), &handed).unwrap();
    assert!(matches!(place.look(), Ok(Look::Same)));
    fs::remove_file(&handed).unwrap();
    assert!(matches!(place.look(), Ok(Look::Gone)));
}

#[test]
fn only_a_listening_stream_socket_with_a_path_is_adopted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("api.sock");
    let refused = |descriptor: OwnedFd| {
        let error = adopt(descriptor, &path).unwrap_err();
        assert!(matches!(error, BindError::NotAListener), "{error}");
    };
    refused(File::open("/dev/null").unwrap().into());
    refused(UnixStream::pair().unwrap().0.into());
    refused(std::net::TcpListener::bind("127.0.0.1:0").unwrap().into());
    let datagrams = dir.path().join("datagrams");
    refused(std::os::unix::net::UnixDatagram::bind(datagrams).unwrap().into());
    let _listener = UnixListener::bind(&path).unwrap();
    refused(UnixStream::connect(&path).unwrap().into());
}
