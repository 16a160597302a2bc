//! A key that is asked for on loopback.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;
use tenure_tests::harness::{Browser, Client, Gateway, Http, Program, binary, eventually};

/// An agent that looks for the key in this directory, and was given none.
fn start_agent(gateway: &Gateway, runtime: &Path, dir: &Path) -> (Program, Http) {
    let socket = dir.join("api.sock");
    let mut command = Command::new(binary("tenured"));
    command.env("XDG_RUNTIME_DIR", runtime).env("TENURED_CONFIG", "/dev/null");
    command.args(["--upstream", &gateway.url(), "--socket"]).arg(&socket);
    command.arg("--runtime-dir").arg(dir.join("run")).arg("--state-dir").arg(dir.join("state"));
    let agent = Program::start(&mut command);
    eventually("the agent to answer", || {
        Http::new(&socket).try_call("GET", "/v1/status", b"").ok().map(drop)
    });
    (agent, Http::new(&socket))
}

/// The key that the gateway left.
fn key_file(gateway: &Gateway) -> PathBuf {
    gateway.state_dir().with_file_name("run").join("key")
}

#[test]
fn programs_of_the_gateways_user_find_the_key_of_each_run() {
    let mut gateway = Gateway::start_by("embedded:", &[], &["--require-keys".to_owned()]);
    let file = key_file(&gateway);
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
    let first = fs::read_to_string(&file).unwrap();
    assert_eq!(gateway.call("GET /v1/overview", "").unwrap().0, 401);
    let header = format!("Authorization: Bearer {}\r\n", first.trim_end());
    for head in ["GET /v1/overview", "GET /metrics", "POST /v1/upstream/examine"] {
        assert_eq!(gateway.call_with(&header, head, "").unwrap().0, 200, "{head}");
    }

    let dir = tempfile::tempdir().unwrap();
    symlink(file.parent().unwrap(), dir.path().join("tenured-gateway")).unwrap();
    let (agent, mut http) = start_agent(&gateway, dir.path(), dir.path());
    let session = http.register(&json!({})).session;
    http.acquire(session, "leader", "before", &json!({}));

    assert!(gateway.stop().success());
    assert!(!file.exists());
    gateway.start_again();
    assert_ne!(fs::read_to_string(&file).unwrap(), first);
    eventually("the agent to show the new key", || {
        let wish = json!({"session": session, "kind": "leader", "name": "after"});
        (http.post("/v1/acquire", &wish).status == 200).then_some(())
    });
    assert!(!gateway.log().contains("tnr_"));
    drop(agent);
}

#[test]
fn the_page_takes_the_key_from_a_link_and_keeps_it_out_of_the_address() {
    let gateway = Gateway::start_by("embedded:", &[], &["--require-keys".to_owned()]);
    let mut command = Command::new(binary("tenured-gateway"));
    command.args(["page", "--require-keys"]).arg(format!("--listen=127.0.0.1:{}", gateway.port()));
    command.arg("--runtime-dir").arg(key_file(&gateway).parent().unwrap());
    let output = command.output().unwrap();
    let link = String::from_utf8(output.stdout).unwrap();
    let key = fs::read_to_string(key_file(&gateway)).unwrap();
    assert_eq!(link, format!("{}/#key={key}", gateway.url()));

    let browser = Browser::start();
    browser.open(link.trim_end());
    browser.until_text("#empty", "tenure run --leader hello -- sleep 60");
    assert_eq!(browser.value("location.hash"), json!(""));
    let kept = "Object.values(sessionStorage).concat(Object.values(localStorage))";
    assert_eq!(browser.value(kept), json!([key.trim_end()]));

    // Without a run of the gateway there is none.
    drop(gateway);
    let output = command.output().unwrap();
    assert!(!output.status.success());
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("the gateway makes it at its start"), "{error}");
}
