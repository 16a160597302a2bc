//! The compose files, brought up by podman-compose in Docker's place, and hosts of people beside them. No image comes
//! from elsewhere: the gateway's is built here, and Redis' is made of the programs that this machine has.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tempfile::TempDir;

use super::containers::{Containers, succeed, without_cargo};
use super::{Http, Program, Python, binary, eventually, install_program, until};

/// The image that the compose files name. As that one it has a shell, and a user of a number of its own.
const REDIS_IMAGE: &str = "docker.io/library/redis:8-alpine";
const REDIS_OWNER: &str = "999:1000";
/// Programs that the compose files use in it.
const REDIS_PROGRAMS: [&str; 4] = ["redis-server", "redis-cli", "sh", "grep"];

/// Docker's part. Its service runs health checks, and its `up` waits for them. 300 of them, so that it ends.
const DOCKER: &str = r#"#!/bin/sh
[ "$1" = compose ] || exec podman "$@"
shift
case " $* " in *" up "*) ;; *) exec PYTHON -m podman_compose "$@" ;; esac
(
    for try in $(seq 300); do
        redis=$(podman ps --quiet --filter label=io.podman.compose.service=redis)
        podman healthcheck run "$redis" >/dev/null 2>&1 && exit 0
        sleep 0.2
    done
    echo "the Redis is not healthy" >&2
    exit 1
) &
PYTHON -m podman_compose "$@" || { code=$?; kill $!; exit $code; }
wait $!
"#;

/// A program that ends with the shell that started it, however that ends.
const BOUND: &str = "#!/bin/sh\nexec setpriv --pdeathsig KILL -- PROGRAM \"$@\"\n";

/// The script that builds images, with the options for a test.
const BUILD: &str = "#!/bin/sh\nexec SCRIPT \"$@\" --profile dev --isolation chroot\n";

/// All that this machine has for `docker compose`. Whatever was not taken down goes when it is dropped.
pub struct Compose {
    pub containers: Arc<Containers>,
    // Every file publishes the same port.
    _turn: MutexGuard<'static, ()>,
}

impl Compose {
    /// With no container yet; `None` without root.
    #[track_caller]
    pub fn empty() -> Option<Compose> {
        static TURN: Mutex<()> = Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let containers = Containers::of_compose()?;
        if !containers.attempt(&["image", "exists", REDIS_IMAGE]).status.success() {
            make_redis_image(&containers);
        }
        Some(Compose { containers, _turn: turn })
    }

    /// A host beside the containers, with a checkout of its own that has what lines of documents name.
    #[track_caller]
    pub fn host(&self, environment: &[(&str, &str)]) -> Host {
        Host::start(&self.containers, environment)
    }

    /// The names of what podman has of that kind, such as `volume`.
    #[track_caller]
    pub fn list(&self, arguments: &[&str]) -> Vec<String> {
        let text = self.containers.run(arguments);
        text.lines().map(str::to_owned).collect()
    }

    /// Fails if there is a container, a network but the one that podman always has, a network device, or a
    /// process beside the shells of so many hosts.
    #[track_caller]
    pub fn check_down(&self, hosts: usize) {
        let none: [&str; 0] = [];
        assert_eq!(self.list(&["ps", "--all", "--format", "{{.Names}}"]), none);
        assert_eq!(self.list(&["network", "ls", "--format", "{{.Name}}"]), ["podman"]);
        let links = succeed(self.containers.inside("ip").args(["-oneline", "link", "show"]));
        assert_eq!((links.lines().count(), links.contains("lo:")), (1, true), "{links}");
        until("the last process to end", || self.containers.processes_inside() == hosts);
    }

    /// The names of the volumes.
    #[track_caller]
    pub fn volumes(&self) -> Vec<String> {
        let mut volumes = self.list(&["volume", "ls", "--format", "{{.Name}}"]);
        volumes.sort_unstable();
        volumes
    }
}

impl Drop for Compose {
    fn drop(&mut self) {
        // Also of a test that failed. What runs the name server ends with the last container.
        let _ = self.containers.attempt(&["rm", "--all", "--force", "--time", "0"]);
    }
}

/// Makes an image of this machine's programs and of the libraries that they load.
#[track_caller]
fn make_redis_image(containers: &Containers) {
    let root = TempDir::new().expect("a temporary directory can be made");
    let root = root.path();
    for program in REDIS_PROGRAMS {
        let mut find = Command::new("sh");
        find.args(["-c", r#"readlink -f "$(command -v "$0")""#, program]);
        let path = succeed(&mut find);
        let path = path.trim();
        install_program(Path::new(path), &root.join("usr/bin").join(program));
        let libraries = succeed(Command::new("ldd").arg(path));
        for library in libraries.split_whitespace().filter(|word| word.starts_with('/')) {
            install_program(Path::new(library), &root.join(&library[1..]));
        }
    }
    for (name, text) in [
        ("passwd", format!("redis:x:{REDIS_OWNER}::/data:/bin/sh\n")),
        ("group", "redis:x:1000:\n".to_owned()),
    ] {
        fs::create_dir_all(root.join("etc")).expect("the directory is ours");
        fs::write(root.join("etc").join(name), text).expect("the directory is ours");
    }
    fs::create_dir(root.join("bin")).expect("the directory is ours");
    std::os::unix::fs::symlink("/usr/bin/sh", root.join("bin/sh")).expect("the directory is ours");

    let buildah = |arguments: &[&str]| {
        succeed(containers.with_store(Command::new("buildah").args(arguments))).trim().to_owned()
    };
    let working = buildah(&["from", "scratch"]);
    buildah(&["copy", "--quiet", &working, &root.display().to_string(), "/"]);
    // The owner of an empty directory is that of a new volume there.
    let data = TempDir::new().expect("a temporary directory can be made");
    let data = data.path().display().to_string();
    buildah(&["copy", "--quiet", "--chown", REDIS_OWNER, &working, &data, "/data"]);
    let config = ["config", "--workingdir=/data", "--volume=/data", "--port=6379"];
    buildah(&[&config[..], &["--env=PATH=/usr/bin:/bin", &working]].concat());
    buildah(&["commit", "--quiet", "--rm", &working, REDIS_IMAGE]);
}

/// A host with a shell into which somebody types. Everything that it started ends when it is dropped.
pub struct Host {
    shell: Program,
    dir: TempDir,
}

impl Host {
    #[track_caller]
    fn start(containers: &Containers, environment: &[(&str, &str)]) -> Host {
        let dir = TempDir::with_prefix("tenured-host-").expect("a temporary directory can be made");
        let path = |name: &str| dir.path().join(name);
        let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging");
        for folder in ["bin", "packaging/container", "packaging/compose", "run"] {
            fs::create_dir_all(path(folder)).expect("the directory is ours");
        }
        for name in ["local.yml", "lan.yml"] {
            let file = Path::new("compose").join(name);
            fs::copy(packaging.join(&file), path("packaging").join(&file)).expect("it is there");
        }
        let python = Python::module("podman_compose").get_program().display().to_string();
        let build = packaging.join("container/build").display().to_string();
        let tenured = binary("tenured").display().to_string();
        write_script(&path("bin/docker"), &DOCKER.replace("PYTHON", &python));
        write_script(&path("bin/tenured"), &BOUND.replace("PROGRAM", &tenured));
        write_script(&path("packaging/container/build"), &BUILD.replace("SCRIPT", &build));

        let mut shell = containers.inside("bash");
        let target = binary("tenured").ancestors().nth(2).expect("below the target").to_owned();
        let programs = binary("tenure").parent().expect("a file lies in a directory").to_owned();
        let search = std::env::var("PATH").unwrap_or_default();
        let search = format!("{}:{}:{search}", path("bin").display(), programs.display());
        let log = File::create(path("log")).expect("the directory is ours");
        shell
            .env("PATH", search)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("BUILDER", "buildah")
            .env("CARGO_TARGET_DIR", target)
            .env("TENURED_RUNTIME_DIR", path("run"))
            .env("TENURED_STATE_DIR", path("state"))
            .env("TENURE_SOCKET", path("run/api.sock"))
            .envs(environment.iter().copied())
            .args(["-e", "-s"])
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(log.try_clone().expect("a file can be shared"))
            .stderr(log);
        without_cargo(&mut shell);
        let mut host = Host { shell: Program::start(&mut shell), dir };
        host.paste(&format!("cd {}", host.dir.path().display()));
        host
    }

    /// Types lines, all at once.
    #[track_caller]
    pub fn paste(&mut self, lines: &str) {
        let stdin = self.shell.pipes().stdin.as_mut().expect("standard input is piped");
        writeln!(stdin, "{lines}").expect("the shell reads");
    }

    /// Waits until that was printed.
    #[track_caller]
    pub fn until_printed(&mut self, text: &str) {
        eventually(text, || {
            let log = self.log();
            let ended = self.shell.ended();
            let there = log.contains(text);
            assert!(there || ended.is_none(), "the shell ended: {ended:?}");
            there.then_some(())
        });
    }

    /// Types lines that must succeed, and waits until they have.
    #[track_caller]
    pub fn run(&mut self, lines: &str) {
        let mark = format!("done {}", uuid::Uuid::new_v4());
        self.paste(&format!("{lines}\necho {mark}"));
        self.until_printed(&mark);
    }

    /// Ends the agent that was started last, which must release what it has.
    #[track_caller]
    pub fn stop_agent(&mut self) {
        self.run("kill $! && wait $!");
    }

    /// Everything that was printed.
    pub fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// The directory with the compose files.
    pub fn folder(&self) -> PathBuf {
        self.path("packaging/compose")
    }

    /// The socket of its agent.
    pub fn socket(&self) -> PathBuf {
        self.path("run/api.sock")
    }

    /// A client of its agent.
    pub fn http(&self) -> Http {
        Http::new(&self.socket())
    }

    /// A file of its own.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // Commands of it that go on would find their store gone.
        if let Ok(group) = i32::try_from(self.shell.pid()) {
            let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
        }
        if std::thread::panicking() {
            eprintln!("--- what a shell printed\n{}\n---", self.log());
        }
    }
}

fn write_script(path: &Path, text: &str) {
    let plain = path.with_extension("plain");
    fs::write(&plain, text).expect("the directory is ours");
    install_program(&plain, path);
}
