//! Other users of the machine.

use std::path::Path;
use std::process::Command;

use nix::unistd::geteuid;

/// Set to run the suite without root: the tests that need a second user then do nothing.
const WITHOUT_ROOT: &str = "TENURE_TESTS_WITHOUT_ROOT";

/// Two users that are neither root nor this test's own: `nobody`, and `daemon` of every Debian.
/// `None` when the environment says that there is no root here.
pub fn other_users() -> Option<[u32; 2]> {
    if geteuid().is_root() {
        return Some([65534, 1]);
    }
    assert!(
        std::env::var_os(WITHOUT_ROOT).is_some(),
        "starting a program as another user takes root: run the suite as root, or set {WITHOUT_ROOT}=1 \
         to leave these tests out"
    );
    eprintln!("left out: {WITHOUT_ROOT} is set");
    None
}

/// A command that runs a program as another user and group, whose /proc shows the user's own processes alone
/// (`hidepid=2`). Takes root.
pub fn seeing_its_own(uid: u32, program: &Path) -> Command {
    let mut command = Command::new("unshare");
    let script = "mount -t proc -o hidepid=2 proc /proc && user=$1 && shift && \
                  exec setpriv --clear-groups --reuid=$user --regid=$user -- \"$@\"";
    command.args(["--mount", "sh", "-c", script, "sh", &uid.to_string()]).arg(program);
    command.current_dir("/");
    command
}
