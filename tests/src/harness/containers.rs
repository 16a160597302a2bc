//! A container image, the agent's or the gateway's, and containers of it, in a store of their own: nothing
//! of the machine's containers is seen or touched, and everything is removed with the last handle.

use std::fs;
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex, Weak};

use serde_json::Value;
use tempfile::TempDir;

use super::{Program, binary, other_users};

/// The name of the agent's image in its store.
pub const IMAGE: &str = "localhost/tenured:test";

/// The name of the gateway's image, as it is without `--tag`.
pub const GATEWAY_IMAGE: &str = concat!("localhost/tenured-gateway:", env!("CARGO_PKG_VERSION"));

/// If it is mounted, two versions of cgroups are used side by side, and crun refuses to work.
const HYBRID: &str = "/sys/fs/cgroup/unified";

/// Where the name server of containers says that it runs, which no option moves.
const NAMES: &str = "/run/containers";

/// The group of shared directories: that of no process but through `--group-add`.
pub const SHARED_GROUP: u32 = 20_000;

/// Options of every container: it may do no more than the manifests allow.
pub const STRICT: [&str; 5] = [
    "--read-only",
    "--cap-drop=all",
    "--security-opt=no-new-privileges",
    "--log-driver=k8s-file",
    "--pull=never",
];

/// The most that an image may take beside its programs, in bytes: certificates, licences, the sample of a
/// configuration.
const BESIDES_MAX: u64 = 1 << 20;

/// The cache of builders that are root, which no option moves.
const CACHE: &str = "/var/lib/containers/cache/blob-info-cache-v1.boltdb";

/// A store that has the image.
pub struct Containers {
    store: TempDir,
    image: &'static str,
    /// True if this machine had no such cache before.
    made_cache: bool,
    /// Where the containers can have networks: a process with network and mounts apart from the machine's.
    apart: Option<Program>,
}

impl Containers {
    /// The store of the agent's image, for all tests that run at the same time. The first one builds it.
    /// `None` without root.
    #[track_caller]
    pub fn of_agent() -> Option<Arc<Containers>> {
        static SHARED: Mutex<Weak<Containers>> = Mutex::new(Weak::new());
        share(&SHARED, || Containers::build(IMAGE, &["--tag", IMAGE], None))
    }

    /// The same of the gateway's image. Its containers can have networks, which the machine does not see.
    #[track_caller]
    pub fn of_gateway() -> Option<Arc<Containers>> {
        static SHARED: Mutex<Weak<Containers>> = Mutex::new(Weak::new());
        share(&SHARED, || Containers::build(GATEWAY_IMAGE, &["--gateway"], Some(apart())))
    }

    /// The same in a store that has nothing else: everything in it is a composition's.
    #[track_caller]
    pub fn of_compose() -> Option<Arc<Containers>> {
        static SHARED: Mutex<Weak<Containers>> = Mutex::new(Weak::new());
        share(&SHARED, || Containers::build(GATEWAY_IMAGE, &["--gateway"], Some(apart())))
    }

    fn build(image: &'static str, options: &[&str], apart: Option<Program>) -> Containers {
        let target = binary("tenured").ancestors().nth(2).expect("below the target").to_owned();
        let prefix = "containers-";
        let store = TempDir::with_prefix_in(prefix, &target).expect("the build directory is ours");
        let made_cache = !Path::new(CACHE).exists();
        let containers = Containers { store, image, made_cache, apart };
        let path = |name: &str| containers.path(name).display().to_string();
        let storage = format!(
            "[storage]\ndriver = \"vfs\"\ngraphroot = {:?}\nrunroot = {:?}\n",
            path("root"),
            path("run")
        );
        // No control groups, and no locks in /dev/shm: this may itself be a container.
        let engine = format!(
            "[containers]\ncgroups = \"disabled\"\nlog_driver = \"k8s-file\"\n\
             default_ulimits = [\"nofile=1024:4096\", \"nproc=512:512\"]\n\
             [engine]\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"none\"\nlock_type = \"file\"\n\
             tmp_dir = {:?}\n[network]\nnetwork_backend = \"netavark\"\nnetwork_config_dir = {:?}\n",
            path("tmp"),
            path("networks")
        );
        for (name, text) in [("storage.conf", storage), ("containers.conf", engine)] {
            fs::write(containers.path(name), text).expect("the directory is ours");
        }
        containers.build_image(options);
        containers
    }

    /// Runs the script that builds images.
    #[track_caller]
    pub fn build_image(&self, options: &[&str]) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/container/build");
        let target = binary("tenured").ancestors().nth(2).expect("below the target").to_owned();
        let mut build = Command::new(script);
        build.args(["--profile", "dev", "--isolation", "chroot"]).args(options);
        build.env("BUILDER", "buildah").env("CARGO_TARGET_DIR", target);
        without_cargo(&mut build);
        succeed(self.with_store(&mut build));
    }

    fn path(&self, name: &str) -> PathBuf {
        self.store.path().join(name)
    }

    /// Gives a command this store.
    pub fn with_store<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command
            .env("CONTAINERS_STORAGE_CONF", self.path("storage.conf"))
            .env("CONTAINERS_CONF", self.path("containers.conf"))
            // They would be timers of the machine's systemd.
            .env("DISABLE_HC_SYSTEMD", "true")
    }

    /// A podman command with this store.
    pub fn podman(&self, arguments: &[&str]) -> Command {
        let mut command = if self.apart.is_some() {
            self.inside("podman")
        } else if Path::new(HYBRID).exists() {
            let mut command = Command::new("unshare");
            let script = format!("umount {HYBRID} && exec podman \"$@\"");
            command.args(["--mount", "--propagation=private", "--", "sh", "-c", &script, "podman"]);
            command
        } else {
            Command::new("podman")
        };
        self.with_store(&mut command).args(arguments);
        command
    }

    /// A program that sees the networks of the containers, and this store.
    pub fn inside(&self, program: &str) -> Command {
        let apart = self.apart.as_ref().expect("a store with networks");
        let mut command = Command::new("nsenter");
        command.args(["--target", &apart.pid().to_string(), "--net", "--mount"]);
        // Otherwise it is that of the target.
        command.args(["--", "env", "--chdir"]);
        command.arg(self.store.path()).arg(program);
        self.with_store(&mut command);
        command
    }

    /// The number of processes beside the containers that see their networks.
    pub fn processes_inside(&self) -> usize {
        let apart = self.apart.as_ref().expect("a store with networks").pid();
        let network = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/net")).ok();
        let own = network(&apart.to_string());
        let pids = fs::read_dir("/proc").expect("there is a /proc").flatten();
        let pids = pids.filter_map(|entry| entry.file_name().into_string().ok());
        pids.filter(|pid| *pid != apart.to_string() && network(pid) == own).count()
    }

    /// Runs podman, which must succeed. Returns what it printed.
    #[track_caller]
    pub fn run(&self, arguments: &[&str]) -> String {
        succeed(&mut self.podman(arguments))
    }

    /// Runs podman, whether it succeeds or not.
    #[track_caller]
    pub fn attempt(&self, arguments: &[&str]) -> Output {
        self.podman(arguments).output().expect("podman is installed")
    }

    /// The JSON of the image that buildah prints.
    #[track_caller]
    pub fn image(&self) -> Value {
        let mut inspect = Command::new("buildah");
        let text =
            succeed(self.with_store(inspect.args(["inspect", "--type", "image", self.image])));
        serde_json::from_str(&text).expect("buildah prints JSON")
    }

    /// Fails unless the image has these programs, what belongs to them, and nothing else. Returns its bytes.
    #[track_caller]
    pub fn check_files(&self, name: &str, programs: &[&str], sample: &str) -> u64 {
        let listing = self.files();
        let own = ["run", "var/lib"].map(|parent| format!("{parent}/{name}/"));
        let (mut found, mut all_bytes, mut besides_bytes) = (Vec::new(), 0, 0);
        for line in listing.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [mode, owner, bytes, _, _, path] = words[..] else { panic!("{line}") };
            let bytes: u64 = bytes.parse().expect("a size");
            all_bytes += bytes;
            if !path.starts_with("usr/bin/") {
                besides_bytes += bytes;
            }
            if mode.starts_with('-') {
                found.push(path.to_owned());
                // Nobody can change what the program runs and believes; the program neither.
                assert!(!mode[4..].contains('w'), "{line}");
            }
            assert!(!mode.contains('s'), "{line}");
            let is_own = own.iter().any(|own| own == path);
            assert_eq!(owner, if is_own { "65532/65532" } else { "0/0" }, "{line}");
        }
        found.sort_unstable();
        // No shell.
        let files = ["group", "nsswitch.conf", "passwd", "ssl/certs/ca-certificates.crt"];
        let mut expected = Vec::from(files.map(|file| format!("etc/{file}")));
        expected.extend(programs.iter().map(|program| format!("usr/bin/{program}")));
        let documents = ["LICENSE-APACHE", "LICENSE-MIT", sample];
        expected.extend(documents.map(|file| format!("usr/share/doc/{name}/{file}")));
        assert_eq!(found, expected);
        assert!(besides_bytes < BESIDES_MAX, "{besides_bytes} bytes beside the programs");
        for directory in ["drwxr-xr-x 65532/65532", "drwx------ 65532/65532"] {
            assert_eq!(listing.matches(directory).count(), 1, "{listing}");
        }
        all_bytes
    }

    /// Every file of the image with its owner and mode, as `tar --list --verbose` writes them.
    #[track_caller]
    fn files(&self) -> String {
        // From a container that is never started, so without podman's mounts.
        let container = self.run(&["create", "--pull=never", self.image]);
        let archive = self.path("image.tar");
        self.run(&["export", "--output", &archive.display().to_string(), container.trim()]);
        self.run(&["rm", container.trim()]);
        let mut list = Command::new("tar");
        succeed(list.args(["--list", "--verbose", "--numeric-owner", "--file"]).arg(archive))
    }

    /// Fails unless a container runs as that user, who has no right to anything, on a root that cannot be written.
    #[track_caller]
    pub fn check_strict(&self, container: &str, uid: u32) {
        let pid = self.run(&["container", "inspect", "--format", "{{.State.Pid}}", container]);
        let pid = pid.trim();
        let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
        for line in ["CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1"] {
            assert!(status.contains(line), "{status}");
        }
        assert!(status.contains(&format!("Uid:\t{uid}\t{uid}\t")), "{status}");
        let mounts = fs::read_to_string(format!("/proc/{pid}/mountinfo")).expect("it runs");
        let root = mounts.lines().find(|line| line.split(' ').nth(4) == Some("/"));
        let options = root.and_then(|root| root.split(' ').nth(5)).expect("a root");
        assert!(options.split(',').any(|option| option == "ro"), "{options}");
    }

    /// A directory as Kubernetes makes an emptyDir for a pod with an fsGroup. Ends with the store.
    pub fn shared_directory(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir(&path).expect("the directory is ours");
        chown(&path, None, Some(SHARED_GROUP)).expect("this is root");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o2777)).expect("it is ours");
        path
    }
}

#[track_caller]
fn share(
    shared: &Mutex<Weak<Containers>>,
    build: impl FnOnce() -> Containers,
) -> Option<Arc<Containers>> {
    other_users()?;
    let mut shared = shared.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    Some(shared.upgrade().unwrap_or_else(|| {
        let containers = Arc::new(build());
        *shared = Arc::downgrade(&containers);
        containers
    }))
}

/// A process with a network and mounts of its own. They last until it is dropped, and so do the bridges and
/// the rules of the firewall that podman makes there.
#[track_caller]
fn apart() -> Program {
    let script = format!(
        "if [ -e {HYBRID} ]; then umount {HYBRID}; fi; mkdir -p {NAMES} && \
         mount -t tmpfs tmpfs {NAMES} && ip link set lo up && echo && exec sleep infinity"
    );
    let mut command = Command::new("unshare");
    command.args(["--net", "--mount", "--propagation=private", "--", "sh", "-c", &script]);
    let mut apart = Program::start(command.stdout(Stdio::piped()));
    let mut line = [0];
    let out = apart.pipes().stdout.as_mut().expect("standard output is piped");
    out.read_exact(&mut line).expect("it has a network: this is root");
    apart
}

/// Cargo's variables for this test's package would look like a change to build scripts.
pub fn without_cargo(command: &mut Command) {
    for (variable, _) in std::env::vars_os() {
        let name = variable.to_string_lossy();
        if ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_"].iter().any(|of| name.starts_with(of)) {
            command.env_remove(&variable);
        }
    }
}

impl Drop for Containers {
    fn drop(&mut self) {
        if self.made_cache && fs::remove_file(CACHE).is_ok() {
            // Those that are not empty stay.
            let _ = Path::new(CACHE).ancestors().skip(1).take(2).try_for_each(fs::remove_dir);
        }
    }
}

/// A container. Dropping it kills and removes it.
pub struct Container {
    containers: Arc<Containers>,
    name: String,
}

impl Container {
    /// The container that will have this name.
    pub fn named(containers: &Arc<Containers>, name: &str) -> Container {
        Container { containers: Arc::clone(containers), name: name.to_owned() }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Something of what podman knows of it, by a Go template.
    #[track_caller]
    pub fn inspect(&self, template: &str) -> String {
        let text = self.containers.run(&["container", "inspect", "--format", template, &self.name]);
        text.trim().to_owned()
    }

    /// Kills its first process, and with it every other.
    #[track_caller]
    pub fn kill(&self) {
        self.containers.run(&["kill", "--signal", "KILL", &self.name]);
    }

    /// Its standard output and standard error.
    pub fn log(&self) -> String {
        let logs = self.containers.attempt(&["logs", &self.name]);
        String::from_utf8_lossy(&[logs.stdout, logs.stderr].concat()).into_owned()
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- log of container {}\n{}\n---", self.name, self.log());
        }
        // Fails when it was never made.
        let _ = self.containers.attempt(&["rm", "--force", "--time", "0", &self.name]);
    }
}

/// Runs a command to its end. Returns what it printed.
#[track_caller]
pub(super) fn succeed(command: &mut Command) -> String {
    let program = command.get_program().display().to_string();
    let output = command.output().unwrap_or_else(|error| panic!("{program}: {error}"));
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}{err}", output.status);
    out.into_owned()
}
