use std::io::Read;
use std::os::unix::fs::{chown, symlink};

use super::*;

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn refused(path: &Path, expected: &str) {
    let error = Directory::private(path, 0o755).unwrap_err().to_string();
    assert!(error.contains(expected), "{error}");
}

#[test]
#[cfg(target_os = "linux")]
fn what_lies_in_memory_is_told_from_a_disk() {
    let is_on_disk = |path: &str| Directory::shared(Path::new(path)).unwrap().is_on_disk();
    assert_eq!(is_on_disk("/dev/shm"), Some(false));
    assert_eq!(is_on_disk("/proc"), Some(true), "nothing known to lie in memory");
}

#[test]
fn made_with_its_mode() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a/b");
    let made = Directory::private(&path, 0o755).unwrap();
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o755, 0o755));
    assert_eq!(made.child("pages", 0o711).unwrap().path(), path.join("pages"));
    assert_eq!(mode(&path.join("pages")), 0o711);
    Directory::private(&path, 0o700).unwrap();
    assert_eq!(mode(&path), 0o755, "as it was");

    fs::write(dir.path().join("file"), "").unwrap();
    let error = Directory::private(&dir.path().join("file"), 0o700).unwrap_err();
    assert!(matches!(error, DirectoryError::System { .. }), "{error}");
}

#[test]
fn writable_for_nobody_else() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run");
    fs::create_dir(&path).unwrap();
    chmod(&path, 0o755);
    for open in [0o777, 0o775, 0o1777, 0o757] {
        chmod(&path, open);
        refused(&path, &format!("is writable for its group or for everybody (mode {open:o})"));
    }
    chmod(&path, 0o755);
    let private = Directory::private(&path, 0o755).unwrap();
    fs::create_dir(path.join("pages")).unwrap();
    chmod(&path.join("pages"), 0o777);
    let error = private.child("pages", 0o711).unwrap_err().to_string();
    assert!(error.contains("pages is writable for its group or for everybody"), "{error}");
    // The administrator's own link to a directory is as good as its path.
    symlink(&path, dir.path().join("link")).unwrap();
    Directory::private(&dir.path().join("link"), 0o755).unwrap();
    symlink(&path, path.join("sub")).unwrap();
    assert!(private.child("sub", 0o711).unwrap_err().to_string().contains("is a link"));
    if geteuid().is_root() {
        chown(&path, Some(65_534), None).unwrap();
        refused(&path, "belongs to uid 65534, not 0");
        chown(&path, Some(0), None).unwrap();
        std::os::unix::fs::lchown(dir.path().join("link"), Some(65_534), None).unwrap();
        refused(&dir.path().join("link"), "is a symbolic link");
    }
}

#[test]
fn where_everybody_writes_it_must_be_our_own() {
    let dir = tempfile::tempdir().unwrap();
    chmod(dir.path(), 0o1777);
    let path = dir.path().join("tenured-7");
    Directory::private(&path, 0o755).unwrap();
    assert_eq!(mode(&path), 0o700);
    Directory::private(&path, 0o755).unwrap();

    chmod(&path, 0o770);
    refused(&path, "is writable for its group");
    let link = dir.path().join("link");
    symlink(&path, &link).unwrap();
    refused(&link, "is a symbolic link");
}

#[test]
fn what_is_mounted_is_as_it_is() {
    assert!(is_mounted(Path::new("/proc")));
    assert!(!is_mounted(Path::new("/proc/self")) && !is_mounted(Path::new("/no such")));
    assert!(!is_mounted(Path::new("/")), "nothing is above it");
}

#[test]
fn no_file_is_followed_elsewhere_or_believed_blindly() {
    let dir = tempfile::tempdir().unwrap();
    let private = Directory::private(&dir.path().join("run"), 0o755).unwrap();
    let victim = dir.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    symlink(&victim, private.join("link")).unwrap();
    fs::hard_link(&victim, private.join("double")).unwrap();
    nix::unistd::mkfifo(&private.join("pipe"), Mode::S_IRWXU).unwrap();
    fs::create_dir(private.join("directory")).unwrap();
    for (name, expected) in [
        ("link", "symbolic link"),
        ("double", "another name"),
        ("pipe", "not a regular file"),
        ("directory", ""),
        ("../victim", "not the name of a file"),
    ] {
        let error = private.write(name, u64::MAX).unwrap_err().to_string();
        assert!(error.contains(expected), "{name}: {error}");
    }
    assert!(private.create("link", 0o600).is_err());
    assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");

    private.write("own", 8).unwrap().set_len(9).unwrap();
    assert_eq!(mode(&private.join("own")), 0o600);
    let error = private.read("own", 8).unwrap_err().to_string();
    assert!(error.contains("it has 9 bytes, and the agent never writes more than 8"), "{error}");
    let mut content = Vec::new();
    private.read("own", 9).unwrap().read_to_end(&mut content).unwrap();
    assert_eq!(content, [0; 9]);

    private.rename("own", "link").unwrap();
    assert!(private.remove("link").unwrap() && !private.remove("link").unwrap());
    let mut names = private.names().unwrap();
    names.sort();
    assert_eq!(names, ["directory", "double", "pipe"]);
    assert_eq!(private.names().unwrap().len(), 3, "again");
    assert_eq!(private.read("gone", 1).unwrap_err().kind(), io::ErrorKind::NotFound);
}
