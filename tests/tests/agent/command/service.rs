//! `tenure run` as the program of a unit: the service manager hears the wrapper alone, and means the command.

use std::collections::BTreeSet;
use std::fs::{Permissions, set_permissions, write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;
use tempfile::TempDir;
use tenure_tests::harness::{
    Agent, Client, Program, ServiceManager, binary, other_users, python_interpreter,
    read_when_there, run_to_end, until,
};

/// Tells its service manager what it finds, as sd_notify(3) would.
const SERVICE: &str = r#"
import array, os, socket, stat
def mine(name): return os.environ.get(name) == str(os.getpid())
def say(text, *files):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to:
        to.connect(os.environ["NOTIFY_SOCKET"].replace("@", "\0", 1))
        to.sendmsg([text.encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))] if files else [])
is_socket = stat.S_ISSOCK(os.fstat(3).st_mode)
say(f"READY=1\nMAINPID={os.getpid()}\nSTATUS=listens {mine('LISTEN_PID')} {is_socket}, watched {mine('WATCHDOG_PID')}")
say("WATCHDOG=1")
say("FDSTORE=1\nFDPOLL=0\nFDNAME=kept", 3)
gone, ours = os.pipe()
say("BARRIER=1", ours)
os.close(ours)
os.read(gone, 1)
say("STOPPING=1")
raise SystemExit(7)
"#;

fn service(manager: &ServiceManager, agent: &Agent, command: &[&str]) -> Program {
    service_in(manager, agent, command, agent.dir())
}

fn service_in(manager: &ServiceManager, agent: &Agent, command: &[&str], folder: &Path) -> Program {
    let mut service = manager.command(|program| Command::new(program), &binary("tenure"));
    service.args(["run", "--leader", "daemon", "--"]).args(command);
    service
        .current_dir(folder)
        .env("TENURE_SOCKET", agent.socket())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    Program::start(&mut service)
}

#[test]
fn a_service_under_the_wrapper_is_ready_watched_and_has_its_sockets() {
    let agent = Agent::start();
    let manager = ServiceManager::start().watchdog_ms(60_000);
    let python = python_interpreter();
    let python = python.to_str().expect("it is text");
    let mut service = service(&manager, &agent, &[python, "-c", SERVICE]);
    let wrapper = service.pid();
    let (code, out, err) = run_to_end(&mut service);
    assert_eq!((code, &*out, &*err), (7, "", ""));
    until("its last words", || manager.count("STOPPING=1") == 1);
    let ready = "READY=1\nSTATUS=listens True True, watched True";
    assert_eq!(manager.messages(), [ready, "WATCHDOG=1", "BARRIER=1", "STOPPING=1"]);
    assert_eq!(manager.kept(), ["kept"]);
    assert_eq!(manager.speakers(), BTreeSet::from([wrapper]));
}

/// A wrapper is the service manager of another one.
#[test]
fn wrappers_pass_on_what_wrappers_say() {
    let agent = Agent::start();
    let manager = ServiceManager::start();
    let tenure = binary("tenure");
    let (tenure, python) = (tenure.to_string_lossy(), python_interpreter());
    let inner = [&tenure, "lock", "inner", "--", &python.to_string_lossy(), "-c", SERVICE];
    let mut service = service(&manager, &agent, &inner);
    let wrapper = service.pid();
    let (code, _, err) = run_to_end(&mut service);
    assert_eq!((code, &*err), (7, ""));
    until("its last words", || manager.count("STOPPING=1") == 1);
    assert_eq!(manager.messages()[0], "READY=1\nSTATUS=listens True True, watched False");
    assert_eq!(manager.speakers(), BTreeSet::from([wrapper]));
}

/// Becomes another user, as daemons do that root starts, and says some words at a socket. The first argument is the user.
const SAYS: &str = r#"
import os, socket, sys, time
_, user, address, *words = sys.argv
def say(text):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to:
        to.connect("\0" + address[1:])
        to.send(text.encode())
if address == "-":
    address = os.environ["NOTIFY_SOCKET"]
    with open("address.new", "w") as file: file.write(address + "\n")
    os.rename("address.new", "address")
os.setuid(int(user))
for word in words:
    if word == "-":
        while not os.path.exists("go-on"): time.sleep(0.01)
    else:
        say(word)
"#;

#[test]
fn a_command_that_has_become_another_user_is_heard_and_strangers_are_not() {
    let Some([uid, stranger]) = other_users() else { return };
    let agent = Agent::start();
    let manager = ServiceManager::start();
    let python = python_interpreter();
    let folder = TempDir::new().expect("a temporary directory");
    set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("it is ours");
    let says = ["-c", SAYS, &uid.to_string(), "-", "READY=1", "-", "STOPPING=1"];
    let command: Vec<&str> =
        std::iter::once(python.to_str().expect("it is text")).chain(says).collect();
    let mut service = service_in(&manager, &agent, &command, folder.path());
    manager.hears("READY=1");
    let address = read_when_there(&folder.path().join("address"));
    let mut foreign = Command::new(&python);
    foreign.args(["-c", SAYS, &stranger.to_string(), address.trim(), "READY=0"]);
    assert!(foreign.current_dir(folder.path()).status().expect("it starts").success());
    write(folder.path().join("go-on"), "").expect("it is ours");
    assert_eq!(run_to_end(&mut service).0, 0);
    manager.hears("STOPPING=1");
    assert_eq!(manager.messages(), ["READY=1", "STOPPING=1"]);
}

#[test]
fn a_wait_is_no_start_that_hangs() {
    let agent = Agent::start();
    let mut http = agent.http();
    let session = http.register(&json!({"keepalive_ms": 600_000})).session;
    http.acquire(session, "leader", "daemon", &json!({}));
    let manager = ServiceManager::start().watchdog_ms(400);
    let mut service = service(&manager, &agent, &["true"]);
    let waits = "STATUS=waiting for leader/daemon\nEXTEND_TIMEOUT_USEC=30000000";
    until("two words of the wait", || manager.count(waits) >= 2);
    assert!(http.end(session));
    assert_eq!(run_to_end(&mut service).0, 0);
    manager.hears("STATUS=running with leader/daemon\nEXTEND_TIMEOUT_USEC=90000000");
}

#[test]
fn a_program_that_is_not_there_is_reported_as_before() {
    let agent = Agent::start();
    let manager = ServiceManager::start();
    let mut service = service(&manager, &agent, &["no-such-program"]);
    let (code, _, err) = run_to_end(&mut service);
    assert_eq!(code, 127, "{err}");
    assert!(err.contains("no-such-program"), "{err}");
}
