//! A certificate authority of a test's own.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use tempfile::TempDir;

/// An authority, and the certificates that it issued. Its own one is `ca.pem`.
pub struct Authority {
    dir: TempDir,
}

/// Time that a certificate of a test lasts.
const DAYS: i32 = 2;

impl Authority {
    /// Makes one.
    #[track_caller]
    #[expect(clippy::new_without_default, reason = "it runs a program")]
    pub fn new() -> Authority {
        let authority = Authority { dir: TempDir::new().expect("a temporary directory") };
        openssl(&format!(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days {DAYS} \
             -subj /CN=test -keyout {} -out {}",
            authority.path("ca.key").display(),
            authority.path("ca.pem").display()
        ));
        authority
    }

    /// A file of its directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A certificate `NAME.pem` with its key `NAME.key`; `names` are alternative names of its subject, which
    /// has NAME as its common name.
    #[track_caller]
    pub fn issue(&self, name: &str, names: &str) {
        self.issue_for(name, &format!("/CN={name}"), names, DAYS);
    }

    /// The same for another subject, and for so many days; it has expired if they are negative.
    #[track_caller]
    pub fn issue_for(&self, name: &str, subject: &str, names: &str, days: i32) {
        let path = |extension| self.path(&format!("{name}.{extension}")).display().to_string();
        let (key, request, cert, extensions) = (path("key"), path("csr"), path("pem"), path("ext"));
        fs::write(&extensions, format!("subjectAltName={names}\n")).expect("it is ours");
        openssl(&format!(
            "req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj {subject} \
             -keyout {key} -out {request}"
        ));
        openssl(&format!(
            "x509 -req -in {request} -CA {} -CAkey {} -CAcreateserial -days {days} \
             -extfile {extensions} -out {cert}",
            self.path("ca.pem").display(),
            self.path("ca.key").display()
        ));
    }
}

#[track_caller]
fn openssl(arguments: &str) {
    let done = Command::new("openssl")
        .args(arguments.split_whitespace())
        .stderr(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .expect("openssl can be run");
    assert!(done.success(), "openssl {arguments}");
}
