//! A Debian system in a directory, made by debootstrap.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// The release for which the package is built.
const RELEASE: &str = "bookworm";
const MIRROR: &str = "http://deb.debian.org/debian";
/// Besides Debian's minimum: what boots, and what the package depends on; nothing is downloaded later.
const PACKAGES: [&str; 7] = [
    "systemd",
    "systemd-sysv",
    "dbus",
    // For `systemctl --user`.
    "dbus-user-session",
    "libpam-systemd",
    // `systemd-analyze verify` looks whether the manual pages are there.
    "man-db",
    "passwd",
];

/// A fresh copy of the system, at `to`. The first one takes a download; it is kept below `cache`.
pub(super) fn copy(cache: &Path, to: &Path) -> Result<()> {
    let base = base(cache)?;
    let mut cp = Command::new("cp");
    cp.args(["--archive", "--reflink=auto"]).arg(base).arg(to);
    ensure!(cp.status().context("cp")?.success(), "the tree could not be copied");
    Ok(())
}

fn base(cache: &Path) -> Result<PathBuf> {
    let (base, stamp) = (cache.join("base"), cache.join("made-of"));
    let made_of = format!("{RELEASE} {MIRROR} {}", PACKAGES.join(" "));
    if fs::read_to_string(&stamp).is_ok_and(|stamp| stamp == made_of) {
        return Ok(base);
    }
    fs::create_dir_all(cache)?;
    if base.exists() {
        fs::remove_dir_all(&base).context("an earlier tree cannot be removed")?;
    }
    let log = fs::File::create(cache.join("debootstrap.log"))?;
    let mut debootstrap = Command::new("debootstrap");
    debootstrap
        .args(["--variant=minbase", &format!("--include={}", PACKAGES.join(","))])
        .arg(RELEASE)
        .arg(&base)
        .arg(MIRROR)
        .stdout(log.try_clone()?)
        .stderr(log);
    let status = debootstrap.status().context("debootstrap: is it installed?")?;
    if !status.success() {
        let log = fs::read_to_string(cache.join("debootstrap.log")).unwrap_or_default();
        let last: Vec<&str> = log.lines().rev().take(20).collect();
        anyhow::bail!("{debootstrap:?}: {status}; last words first:\n{}", last.join("\n"));
    }
    // Only what apt needs to download, and the tests do not.
    for folder in ["var/cache/apt", "var/lib/apt/lists"] {
        fs::remove_dir_all(base.join(folder))?;
        fs::create_dir_all(base.join(folder).join("partial"))?;
    }
    fs::write(&stamp, made_of)?;
    Ok(base)
}
