//! The Debian packages in a booted system: installed, restarted, killed, upgraded, stopped and purged
//! while programs hold things. `tests/packaging/run` runs it.

mod crowd;
mod inventory;
mod log;
mod machine;
pub mod steps;
mod tree;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

use anyhow::{Context, Result, ensure};

pub use crowd::Crowd;
pub use inventory::Inventory;
pub use log::Log;
pub use machine::Machine;

use crate::harness::{RedisServer, binary};

/// Higher than that of any release.
const NEXT_VERSION: &str = "9999.1";
/// Members of the group `tenured`, and others.
const USERS: [&str; 3] = ["alice", "carol", "mallory"];

/// The state that the steps share.
pub struct World {
    /// Programs that hold things. They end before the machine does.
    pub crowd: Option<Crowd>,
    /// The booted system.
    pub machine: Machine,
    /// The puppet's path in it.
    pub puppet: String,
    /// Paths in it of the package and of one with a higher version.
    pub packages: [String; 2],
    /// The path in it of the gateway's package.
    pub gateway: String,
    /// The system before the package.
    pub before: Option<Inventory>,
    /// A store of this host, in the folder that the machine sees, too.
    pub redis: RedisServer,
    /// Removed after the machine is off.
    _folder: Folder,
}

impl World {
    /// Builds both packages, and boots a system that has never seen them.
    pub fn make(folder: &Path, log: Rc<Log>) -> Result<World> {
        ensure!(nix::unistd::geteuid().is_root(), "a container takes root");
        let [gateway, package] = build(&[])?;
        let [_, next] = build(&["--version", NEXT_VERSION])?;
        let run = Folder(folder.join("run"));
        // Left by a run that was killed.
        run.remove();
        std::fs::create_dir_all(&run.0)?;
        let tree = run.0.join("tree");
        tree::copy(folder, &tree)?;
        let puppet = machine::install(&tree, &binary("puppet"))?;
        let place = |package: &Path| {
            log.say(&format!("built {}", package.display()));
            machine::install(&tree, package)
        };
        let packages = [place(&package)?, place(&next)?];
        let gateway = place(&gateway)?;
        let redis = RedisServer::setup().option("unixsocketperm", "777").start();
        let socket = redis.socket();
        let shared = socket.parent().context("a socket lies in a folder")?;
        std::fs::set_permissions(shared, Permissions::from_mode(0o755))?;
        let machine = Machine::boot(&tree, shared, log)?;
        for user in USERS {
            machine.run(&format!("useradd --create-home {user}")).ok();
        }
        let (before, crowd) = (None, None);
        Ok(World { machine, puppet, packages, gateway, before, crowd, redis, _folder: run })
    }
}

struct Folder(PathBuf);

impl Folder {
    fn remove(&self) {
        // The next run removes the rest, and says so if it cannot.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Cargo's profile of the programs that are packed: the one that other tests have built, unless the environment names another.
pub fn profile() -> String {
    std::env::var("TENURE_PACKAGES_PROFILE").unwrap_or_else(|_| "dev".to_owned())
}

/// Builds the packages, and returns the paths of the gateway's and the agent's.
fn build(options: &[&str]) -> Result<[PathBuf; 2]> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the workspace is above")?;
    let mut command = Command::new(root.join("packaging/deb/build"));
    command.args(["--profile", &profile()]).args(options);
    let output = command.stderr(std::process::Stdio::inherit()).output()?;
    ensure!(output.status.success(), "{command:?}: {}", output.status);
    let said = String::from_utf8(output.stdout)?;
    let paths: Vec<PathBuf> = said.lines().map(|line| line.trim().into()).collect();
    paths.try_into().ok().context("the build prints where both packages are")
}
