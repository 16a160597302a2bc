//! The gateway's container image, run as strictly as the compose files and manifests have it.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::Command;
use std::sync::Arc;

use serde_json::json;
use tenure_tests::harness::{
    Container, Containers, GATEWAY_IMAGE, Key, Program, eventually, other_users,
};

/// The most that the image may take, in bytes, with a program that is built for tests.
const IMAGE_MAX: u64 = 40 << 20;
/// The most of it beside the program: certificates, licences, the sample of the configuration.
const BESIDES_MAX: u64 = 1 << 20;

/// `None` without root.
fn containers() -> Option<Arc<Containers>> {
    other_users()?;
    Some(Containers::of_gateway())
}

#[test]
fn the_image_says_how_it_is_to_be_run() {
    let Some(containers) = containers() else { return };
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
    let Some(containers) = containers() else { return };
    let files = containers.files();
    let (mut found, mut all_bytes, mut besides_bytes) = (Vec::new(), 0, 0);
    for line in files.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [mode, owner, bytes, _, _, path] = words[..] else { panic!("{line}") };
        let bytes: u64 = bytes.parse().expect("a size");
        all_bytes += bytes;
        if mode.starts_with('-') {
            found.push(path);
            assert!(!mode[4..].contains('w'), "{line}");
            if !path.starts_with("usr/bin/") {
                besides_bytes += bytes;
            }
        }
        assert!(!mode.contains('s'), "{line}");
        let is_its = ["run/tenured-gateway/", "var/lib/tenured-gateway/"].contains(&path);
        assert_eq!(owner, if is_its { "65532/65532" } else { "0/0" }, "{line}");
    }
    found.sort_unstable();
    // No shell, and no program but one.
    let expected = [
        "etc/group",
        "etc/nsswitch.conf",
        "etc/passwd",
        "etc/ssl/certs/ca-certificates.crt",
        "usr/bin/tenured-gateway",
        "usr/share/doc/tenured-gateway/LICENSE-APACHE",
        "usr/share/doc/tenured-gateway/LICENSE-MIT",
        "usr/share/doc/tenured-gateway/gateway.toml",
    ];
    assert_eq!(found, expected);
    assert!(besides_bytes < BESIDES_MAX, "{besides_bytes} bytes beside the program");
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
    let Some(containers) = containers() else { return };
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
    run.extend(["--read-only", "--cap-drop=all", "--security-opt=no-new-privileges"]);
    run.extend(["--log-driver=k8s-file", "--pull=never", "--publish=127.0.0.1:18740:8740"]);
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

    let pid = gateway.inspect("{{.State.Pid}}");
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    for line in ["CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1"] {
        assert!(status.contains(line), "{status}");
    }
    assert!(status.contains("Uid:\t65532\t65532"), "{status}");
    let mounts = fs::read_to_string(format!("/proc/{pid}/mountinfo")).expect("it runs");
    let root = mounts.lines().find(|line| line.split(' ').nth(4) == Some("/")).expect("a root");
    assert!(root.split(' ').nth(5).is_some_and(|options| options.starts_with("ro")), "{root}");
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
