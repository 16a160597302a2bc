//! The gateway's container image, run as strictly as the compose files and manifests have it.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::Command;

use serde_json::json;
use tenure_tests::harness::{
    Container, Containers, GATEWAY_IMAGE, Key, Program, STRICT, eventually,
};

/// The most that the image may take, in bytes, with a program that is built for tests.
const IMAGE_MAX: u64 = 64 << 20;

#[test]
fn the_image_says_how_it_is_to_be_run() {
    let Some(containers) = Containers::of_gateway() else { return };
    let image = containers.image();
    let config = &image["Docker"]["config"];
    assert_eq!(config["User"], "65532:65532");
    assert_eq!(config["Entrypoint"], json!(["/usr/bin/tenured-gateway"]));
    assert_eq!(config["ExposedPorts"], json!({"8740/tcp": {}}));
    let volumes = json!({"/run/tenured-gateway": {}, "/var/lib/tenured-gateway": {}});
    assert_eq!(config["Volumes"], volumes);
    let labels = &config["Labels"];
    assert_eq!(labels["org.opencontainers.image.title"], "tenured-gateway");
    assert_eq!(labels["org.opencontainers.image.version"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn there_is_nothing_in_it_but_the_gateway() {
    let Some(containers) = Containers::of_gateway() else { return };
    let all_bytes = containers.check_files("tenured-gateway", &["tenured-gateway"], "gateway.toml");
    assert!(all_bytes < IMAGE_MAX, "{all_bytes} bytes");
    println!("the image has {all_bytes} bytes");
}

/// curl as a neighbour of the container has it.
fn curl(containers: &Containers, args: &[&str]) -> Command {
    let mut command = containers.inside("curl");
    command.args(["--silent", "--show-error", "--no-buffer", "--noproxy", "*"]).args(args);
    command
}

#[test]
fn it_serves_as_nobody_on_a_root_that_cannot_be_written() {
    let Some(containers) = Containers::of_gateway() else { return };
    let (key, stranger) = (Key::new("laptop-7"), Key::new("laptop-8"));
    let directory = containers.shared_directory("keys");
    let keys = directory.join("keys.toml");
    fs::write(&keys, &key.line).expect("the directory is ours");
    // As a secret that is mounted for it alone.
    fs::set_permissions(&keys, fs::Permissions::from_mode(0o400)).expect("it is ours");
    chown(&keys, Some(65532), Some(65532)).expect("this is root");

    let gateway = Container::named(&containers, "strict");
    let volume = format!("--volume={}:/etc/tenured-gateway:ro", directory.display());
    let mut run = vec!["run", "--detach", "--name", gateway.name(), &volume];
    run.extend(STRICT);
    run.push("--publish=127.0.0.1:18740:8740");
    run.push("--env=TENURED_GATEWAY_LISTEN=0.0.0.0:8740");
    run.push("--env=TENURED_GATEWAY_INSECURE=true");
    run.push("--env=TENURED_GATEWAY_KEYS_FILE=/etc/tenured-gateway/keys.toml");
    run.push(GATEWAY_IMAGE);
    containers.run(&run);
    eventually("the gateway to be ready for others than itself", || {
        assert_eq!(gateway.inspect("{{.State.Running}}"), "true", "{}", gateway.log());
        let ready =
            curl(&containers, &["--fail", "http://127.0.0.1:18740/readyz"]).output().ok()?;
        ready.status.success().then_some(())
    });

    containers.check_strict(gateway.name(), 65532);
    let shell = containers.attempt(&["exec", gateway.name(), "/bin/sh", "-c", "true"]);
    assert!(!shell.status.success(), "there is a shell");

    // The keys count, and a stream that is open when it is told to stop ends whole: so does curl.
    let changes = "http://127.0.0.1:18740/v1/upstream/changes";
    let header = stranger.header();
    let shown = ["--header", header.trim_end(), "--output", "/dev/null", "--write-out"];
    let refused = curl(&containers, &[&shown[..], &["%{http_code}", changes]].concat()).output();
    assert_eq!(refused.expect("curl is installed").stdout, b"401");
    let body = directory.join("changes");
    let header = key.header();
    let mut stream = curl(&containers, &["--fail", "--header", header.trim_end(), "--output"]);
    let mut stream = Program::start(stream.arg(&body).arg(changes));
    eventually("the first bytes of a stream", || {
        fs::metadata(&body).ok().filter(|file| file.len() > 0)
    });
    // It would be killed after ten seconds, and say so by its exit code.
    containers.run(&["stop", "--time", "10", gateway.name()]);
    assert_eq!(gateway.inspect("{{.State.ExitCode}}"), "0");
    assert_eq!(stream.wait_code(), 0, "curl says whether a stream ended whole");
    let told = fs::read_to_string(&body).expect("it is there");
    assert!(told.contains(": the gateway is stopping"), "{told}");
    assert!(gateway.log().contains("stopping: what agents hold stays"), "{}", gateway.log());
}
