//! Other users of a node's host, who reach its port over loopback.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::{fs, net};

use serde_json::Value;
use tempfile::TempDir;
use tenure_tests::harness::{Gateway, binary, copy_for_others, free_port, other_users, until};

const WAY_OUT: &str = "run it as the user of the gateway, or as root";

/// A node of a cluster of its own, and a user who is neither its own nor root.
struct Scene {
    gateway: Gateway,
    address: String,
    stranger: u32,
    /// The program, where that user can run it.
    program: PathBuf,
    config: PathBuf,
    folder: TempDir,
}

impl Scene {
    /// `None` without root.
    fn new(settings: &str) -> Option<Scene> {
        let [stranger, _] = other_users()?;
        let (folder, address) = (TempDir::new().unwrap(), format!("127.0.0.1:{}", free_port()));
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let config = folder.path().join("node.toml");
        fs::write(&config, format!("[cluster]\nlisten = \"{address}\"\n{settings}")).unwrap();
        let named = format!("--config={}", config.display());
        let gateway = Gateway::start_by("cluster:", &[], &[named]);
        let program = copy_for_others("tenured-gateway", folder.path());
        let scene = Scene { gateway, address, stranger, program, config, folder };
        let begun = scene.own(&["init"]);
        assert!(begun.status.success(), "{begun:?}");
        Some(scene)
    }

    /// A command by the user of the gateway.
    fn own(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(binary("tenured-gateway"));
        command.arg("cluster").args(arguments).args(["--node", &self.address]).output().unwrap()
    }

    fn as_stranger(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.uid(self.stranger).gid(self.stranger).current_dir("/");
        command
    }

    /// The last words of the node to bytes of another user.
    fn told(&self, said: &[u8]) -> String {
        let (host, port) = self.address.split_once(':').unwrap();
        let talk = format!("exec 3<>/dev/tcp/{host}/{port}; cat >&3; cat <&3");
        let mut bash = self.as_stranger("bash");
        bash.args(["-c", &talk]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut bash = bash.stderr(Stdio::null()).spawn().unwrap();
        // It may be closed already.
        let _ = bash.stdin.take().unwrap().write_all(said);
        String::from_utf8_lossy(&bash.wait_with_output().unwrap().stdout).into_owned()
    }

    fn status(&self) -> Value {
        let output = self.own(&["status", "--json"]);
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

/// A frame as nodes send it.
fn frame(head: &str) -> Vec<u8> {
    let number = |length: usize| u32::try_from(length).unwrap().to_be_bytes();
    let lengths = [number(4 + head.len()), number(head.len())].concat();
    [&lengths, head.as_bytes()].concat()
}

#[test]
fn a_node_without_certificates_lets_in_nobody_but_its_own_user_and_root() {
    let Some(scene) = Scene::new("") else { return };
    let before = scene.status();
    let id = before["members"][0]["id"].as_str().unwrap().to_owned();
    // The other user may write there.
    let open = scene.folder.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    let backup = open.join("taken");
    let elsewhere = format!("127.0.0.1:{}", free_port());
    for arguments in [
        vec!["cluster", "status"],
        vec!["cluster", "backup", backup.to_str().unwrap()],
        vec!["cluster", "add", &elsewhere],
        vec!["cluster", "remove", &id],
        vec!["cluster", "init"],
    ] {
        let mut command = scene.as_stranger(&scene.program);
        let refused = command.args(&arguments).args(["--node", &scene.address]).output().unwrap();
        let words = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && words.contains(WAY_OUT), "{arguments:?}: {refused:?}");
    }
    let mut keys = scene.as_stranger(&scene.program);
    keys.args(["keys", "add", "--subject", "mallory", "--upstream", "cluster:", "--keys-in-store"]);
    keys.args(["--cluster-listen", &scene.address, "--config", "/dev/null"]);
    let refused = keys.output().unwrap();
    let words = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && words.contains(WAY_OUT), "{refused:?}");

    let number = u64::from_str_radix(&id, 16).unwrap();
    let vote = format!(r#"{{"leader_id":{{"term":1000000,"node_id":{number}}},"committed":true}}"#);
    let append = format!(
        r#"{{"number":1,"what":{{"Append":{{"vote":{vote},"prev_log_id":null,"entries":[],"leader_commit":null}}}}}}"#
    );
    let ask = format!(
        r#"{{"number":1,"what":{{"Vote":{{"vote":{vote},"last_log_id":null,"leadership_transfer":false}}}}}}"#
    );
    let hello = frame(r#"{"protocol":1,"to":null}"#);
    for what in [append.as_str(), ask.as_str(), r#"{"number":1,"what":{"Control":"Status"}}"#] {
        let told = scene.told(&[hello.clone(), frame(what)].concat());
        assert!(told.contains(WAY_OUT) && !told.contains(&id), "{what}: {told}");
    }
    let after = scene.status();
    assert_eq!(
        (&after["leader"], &after["members"][0]["role"]),
        (&before["leader"], &"leader".into())
    );
    // Root may, and is the gateway's user here.
    assert!(scene.own(&["backup", backup.to_str().unwrap()]).status.success());
}

#[test]
fn users_that_are_configured_are_let_in() {
    let Some(scene) = Scene::new("uids = \"65534\"\n") else { return };
    let mut command = scene.as_stranger(&scene.program);
    let status = command.args(["cluster", "status", "--node", &scene.address]).output().unwrap();
    assert!(status.status.success(), "{status:?}");
    assert!(scene.config.exists());
}

#[test]
fn nothing_is_told_to_another_user_who_listens_where_a_node_is_to_be() {
    let Some(scene) = Scene::new("") else { return };
    let port = free_port();
    let listens = format!(
        "import socket\ns = socket.create_server(('127.0.0.1', {port}))\nprint(flush=True)\n\
         while True:\n c = s.accept()[0]\n d = c.recv(1)\n print(d, flush=True)\n"
    );
    let mut python = scene.as_stranger("python3");
    let mut python = python.args(["-c", &listens]).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = python.stdout.take().unwrap();
    said.read_exact(&mut [0]).unwrap();
    let refused = scene.own(&["add", &format!("127.0.0.1:{port}")]);
    python.kill().unwrap();
    python.wait().unwrap();
    let words = String::from_utf8_lossy(&refused.stderr);
    assert!(words.contains("user 65534 listens at"), "{refused:?}");
    let mut heard = String::new();
    said.read_to_string(&mut heard).unwrap();
    assert!(heard.lines().all(|line| line == "b''"), "{heard}");
}

#[test]
fn an_administrator_comes_through_a_crowd_of_silent_strangers() {
    let Some(scene) = Scene::new("") else { return };
    // The node's own user, so that it does not close them at once.
    let crowd = (0..500).map(|_| net::TcpStream::connect(&scene.address).unwrap());
    let crowd: Vec<_> = crowd.collect();
    let status = scene.own(&["status", "--json"]);
    assert!(status.status.success(), "{status:?}");
    drop(crowd);
    until("the others to be gone", || scene.own(&["status"]).status.success());
    assert!(!scene.gateway.log().contains("panicked"));
}
