//! The compose files, brought up by the lines that the documentation and the files themselves tell people to type.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use tenure_tests::harness::{
    Authority, Client, Compose, Host, TenureRun, read_pid, run_to_end, until,
};

/// The user of the gateway's container.
const GATEWAY_USER: u32 = 65532;
/// The password of a published example.
const PUBLISHED: &str = "prism_server";

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    fs::read_to_string(path).expect("it is there")
}

/// The lines that the documentation has for a team.
#[track_caller]
fn lines_for_a_team() -> Vec<String> {
    let text = read("docs/gateway.md");
    let (_, block) = text.split_once("```sh\n").expect("lines to be typed");
    let (block, _) = block.split_once("```").expect("they end");
    block.lines().map(str::to_owned).collect()
}

/// The lines that a compose file has at its head.
#[track_caller]
fn lines_of(file: &str) -> Vec<String> {
    let text = read(&format!("packaging/compose/{file}"));
    let lines: Vec<String> =
        text.lines().filter_map(|line| line.strip_prefix("#   ").map(str::to_owned)).collect();
    assert!(!lines.is_empty(), "{file} says what to type");
    lines
}

/// The line among them that has this.
#[track_caller]
fn line<'a>(lines: &'a [String], word: &str) -> &'a str {
    lines.iter().find(|line| line.contains(word)).unwrap_or_else(|| panic!("no {word}"))
}

/// Runs `docker compose` with what is at the end of the line.
#[track_caller]
fn compose(host: &mut Host, file: &str, arguments: &str) {
    host.run(&format!("docker compose -f {file} {arguments} </dev/null"));
}

/// Has the containers stopped, which run without any right until then: each ends by itself, long before it would be
/// killed.
#[track_caller]
fn check_stops(team: &Compose, host: &mut Host, project: &str, file: &str) {
    let [gateway, redis] = ["gateway", "redis"].map(|service| format!("{project}_{service}_1"));
    team.containers.check_strict(&gateway, GATEWAY_USER);
    compose(host, file, "stop");
    for container in [gateway, redis] {
        let ended = ["container", "inspect", "--format", "{{.State.ExitCode}}", &container];
        assert_eq!(team.containers.run(&ended).trim(), "0", "{container}");
    }
}

#[test]
fn the_lines_for_a_team_end_in_a_leadership() {
    let Some(team) = Compose::empty() else { return };
    let lines = lines_for_a_team();
    assert_eq!(lines.len(), 5, "{lines:?}");
    let mut first = team.host(&[]);
    // All at once, as they come out of a clipboard: none may read what is meant for the shell.
    first.paste(&lines.join("\n"));
    first.until_printed("\nI lead\n");

    // Another host takes part with a key of its own, and waits until the program that leads is dead.
    let mut second = team.host(&[]);
    let (key, agent) = (line(&lines, "keys add"), line(&lines, "tenured --upstream"));
    second.run("cd packaging/compose");
    second.paste(&[&key.replace("laptop-7", "laptop-8"), agent].join("\n"));
    // A new key takes up to a second to be known.
    second.run("until tenure status; do sleep 0.2; done");
    let pid = first.path("pid");
    let command = format!("echo $$ >{} && exec sleep infinity", pid.display());
    let mut leads =
        TenureRun::new(&first.socket(), &["--leader", "nightly"], &["sh", "-c", &command]).start();
    let pid = read_pid(&pid);
    let mut waits =
        TenureRun::new(&second.socket(), &["--leader", "nightly"], &["echo", "mine"]).start();
    until("it to wait", || second.http().standing("leader", "nightly").waiters.len() == 1);
    kill(pid, Signal::SIGKILL).expect("it runs");
    let (code, out, err) = run_to_end(&mut waits);
    assert_eq!((code, out.as_str()), (0, "mine\n"), "{err}");
    assert_eq!(leads.wait_code(), 128 + Signal::SIGKILL as i32);
    second.stop_agent();
    first.stop_agent();

    check_stops(&team, &mut first, "tenured-local", "local.yml");

    // Keys and holds are kept, until they are to go as well.
    let local = "local.yml";
    compose(&mut first, local, "down");
    team.check_down(2);
    assert_eq!(team.volumes(), ["tenured-local_redis", "tenured-local_state"]);
    compose(&mut first, local, "up --detach");
    compose(&mut first, local, "exec -T gateway tenured-gateway keys list >listed");
    let listed = fs::read_to_string(first.folder().join("listed")).expect("it was made");
    assert!(listed.contains("\"laptop-7\"") && listed.contains("\"laptop-8\""), "{listed}");
    compose(&mut first, local, "down --volumes");
    team.check_down(2);
    assert_eq!(team.volumes(), [""; 0]);

    // What the file says is what the documentation says.
    for said in lines_of(local) {
        assert!(lines.iter().any(|line| line.starts_with(&said)), "{said}");
    }
}

/// Gives the gateway a certificate for localhost, in the place that the file names.
fn certify(authority: &Authority, host: &Host) {
    authority.issue("tls", "DNS:localhost,IP:127.0.0.1");
    let folder = host.folder().join("tls");
    fs::create_dir_all(&folder).expect("it is ours");
    for (name, mode) in [("tls.pem", 0o444), ("tls.key", 0o400)] {
        // By another name first: a running gateway may read it at any time.
        let new = folder.join("new");
        fs::copy(authority.path(name), &new).expect("it is ours");
        fs::set_permissions(&new, fs::Permissions::from_mode(mode)).expect("it is ours");
        chown(&new, Some(GATEWAY_USER), None).expect("this is root");
        fs::rename(&new, folder.join(name)).expect("it is ours");
    }
}

#[test]
fn a_lan_has_a_certificate_and_a_password_that_nobody_else_knows() {
    let Some(team) = Compose::empty() else { return };
    let (lan, lines) = ("lan.yml", lines_of("lan.yml"));
    let authority = Authority::new();
    let ca = authority.path("ca.pem").display().to_string();
    let mut host = team.host(&[("TENURED_GATEWAY_TLS_CA_FILE", &ca)]);
    certify(&authority, &host);
    host.run("cd packaging/compose");

    // Without a password nothing starts, and the file says how to have one.
    host.run("! docker compose -f lan.yml up --detach");
    host.until_printed("openssl rand -base64 24 makes one");
    team.check_down(1);

    // With one that everybody knows the gateway does not.
    host.run(&format!("export PRISM_REDIS_PASSWORD={PUBLISHED}"));
    compose(&mut host, lan, "up --detach");
    until("the reason", || {
        let log = team.containers.attempt(&["logs", "tenured-lan_gateway_1"]).stderr;
        String::from_utf8_lossy(&log).contains("is the password of a published example")
    });
    compose(&mut host, lan, "down --volumes");
    team.check_down(1);

    // As the file says.
    let agent = line(&lines, "tenured --upstream").replace("HOST", "localhost");
    let before: Vec<&str> =
        lines.iter().map(String::as_str).filter(|line| !line.contains("tenured --up")).collect();
    host.paste(&before.join("\n"));
    host.paste(&format!("{agent} &\nuntil sleep 1; tenure status --quiet; do :; done"));
    host.run("tenure run --leader nightly -- echo I lead");
    host.until_printed("\nI lead\n");

    // Not even the gateway's neighbours reach the Redis without its password.
    let asked = team.containers.attempt(&["exec", "tenured-lan_redis_1", "redis-cli", "get", "x"]);
    assert!(String::from_utf8_lossy(&asked.stdout).contains("NOAUTH"), "{asked:?}");
    // A certificate that was renewed, in files of its own.
    certify(&authority, &host);
    compose(&mut host, lan, "kill --signal HUP gateway");
    until("the certificate to be read", || {
        let log = team.containers.attempt(&["logs", "tenured-lan_gateway_1"]).stderr;
        String::from_utf8_lossy(&log).contains("read the certificates of the gateway again")
    });
    host.run("tenure doctor");
    host.stop_agent();
    check_stops(&team, &mut host, "tenured-lan", lan);
    compose(&mut host, lan, "down --volumes");
    team.check_down(1);
    assert_eq!(team.volumes(), [""; 0]);
}
