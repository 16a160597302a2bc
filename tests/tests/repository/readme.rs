//! README's commands, typed in their order on a host that has nothing but them: folders of its own in /run, /tmp and
//! /var/lib, no settings, and an empty environment.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;
use tenure_tests::harness::{binary, other_users};

/// Compiling takes minutes, and CI does it anyway: what `cargo` would build and start is there already.
const CARGO: &str = r#"#!/bin/sh
case "$*" in
    "run --release") exec setpriv --pdeathsig KILL -- BUILT/tenured ;;
    "build --release -p tenure-cli")
        mkdir -p target/release && cp BUILT/tenure BUILT/tenured target/release/ ;;
    # In three terminals at once.
    "build --release -p tenure-gateway")
        mkdir -p target/release && cp BUILT/tenured-gateway "target/release/$$" &&
            mv "target/release/$$" target/release/tenured-gateway ;;
    *) echo "README types another cargo: $*" >&2; exit 1 ;;
esac
"#;

/// The host. Its first argument is a script.
const HOST: &str = r#"
mkdir "$2/built" && mount --bind "$3" "$2/built"
for folder in /run /tmp /var/lib /usr/local/bin; do mount -t tmpfs none "$folder"; done
mkdir /tmp/clone && cd /tmp/clone
exec env -i PATH="$2:/usr/bin:/bin" HOME=/tmp bash "$1"
"#;

pub(super) fn document(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    fs::read_to_string(path).expect("it is there")
}

/// The blocks of a language, in their order.
pub(super) fn blocks(text: &str, language: &str) -> Vec<String> {
    let fence = format!("\n```{language}\n");
    let parts = text.split(&fence).skip(1);
    parts.map(|part| part.split("\n```").next().unwrap_or_default().to_owned()).collect()
}

/// Types a script on a fresh host; `None` without root.
#[track_caller]
fn typed(script: &str) -> Option<(TempDir, Output)> {
    other_users()?;
    let dir = TempDir::new_in("/dev/shm").expect("a folder can be made");
    let path = |name: &str| -> PathBuf { dir.path().join(name) };
    let binary = binary("tenured");
    let built = binary.parent().expect("a folder");
    fs::write(path("script"), script).expect("it is ours");
    fs::write(path("cargo"), CARGO.replace("BUILT", &path("built").display().to_string()))
        .expect("it is ours");
    let made = Command::new("chmod").arg("755").arg(path("cargo")).status();
    assert!(made.is_ok_and(|status| status.success()));
    let mut host = Command::new("unshare");
    host.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-ec", HOST]);
    host.args(["host".as_ref(), path("script").as_os_str(), dir.path().as_os_str()]);
    // A clone may lie in a folder that this host has of its own.
    host.arg(built);
    let output = host.output().expect("unshare is installed");
    Some((dir, output))
}

#[test]
fn the_first_minute_goes_as_it_is_written() {
    let readme = document("README.md");
    let [agent, minute, _, _, tests] = &blocks(&readme, "sh")[..] else { panic!("five blocks") };
    assert_eq!(tests, "tests/run", "what runs this");
    // The agent is in another terminal. Whoever types waits for its line.
    let script = format!(
        "{agent} >/tmp/agent 2>&1 &\nuntil grep -q ready /tmp/agent; do sleep 0.1; done\ncat /tmp/agent\n\
         exec 2>&1\n{minute}\necho \"the end: $?\"\n"
    );
    let Some((_dir, output)) = typed(&script) else { return };
    let said = String::from_utf8_lossy(&output.stdout);
    println!("{said}{}", String::from_utf8_lossy(&output.stderr));
    let mut rest = &*said;
    for part in [
        "socket /run/tenured/api.sock, upstream embedded",
        "leader/nightly is held",
        "by sleep on ",
        "tenure lock nightly -- sleep 15",
        "next     ",
        "leader/nightly: taken by sleep on ",
        "waiting for leader/nightly: held by sleep on ",
        "mine",
        "real",
        "the end: 0",
    ] {
        let (_, after) =
            rest.split_once(part).unwrap_or_else(|| panic!("{part:?} is not in {rest}"));
        rest = after;
    }
}

#[test]
fn a_killed_leader_of_three_nodes_loses_nothing_as_it_is_written() {
    let readme = document("README.md");
    let [_, minute, node, tour, _] = &blocks(&readme, "sh")[..] else { panic!("five blocks") };
    let build = minute.lines().next().expect("a line");
    let script = format!(
        "{build}\nfor n in 1 2 3; do ( {node} ) >/tmp/log-$n 2>&1 & done\n\
         timeout 60 sh -c \"until tenured-gateway cluster status --node 127.0.0.1:8741 | grep -c ' ok$' | grep -q 3; do sleep 0.1; done\"\n\
         exec 2>&1\n{tour}\n\
         echo \"the end: $?\"\n"
    );
    let Some((_dir, output)) = typed(&script) else { return };
    let said = String::from_utf8_lossy(&output.stdout);
    println!("{said}{}", String::from_utf8_lossy(&output.stderr));
    for part in ["3 nodes vote", "does not answer", "leader ", "the end: 0"] {
        assert!(said.contains(part), "{part:?} is not in it");
    }
    let tokens: Vec<_> = said.split("(token ").skip(1).map(|rest| rest.split_once(')')).collect();
    let tokens: Vec<_> = tokens.into_iter().map(|it| it.expect("a token").0).collect();
    assert!(tokens.len() == 2 && tokens[0] == tokens[1], "{tokens:?}");
}

#[test]
fn the_cron_line_runs_its_job_once_and_says_nothing() {
    let [line] = &blocks(&document("README.md"), "cron")[..] else { panic!("one line") };
    assert_eq!(blocks(&document("docs/cron.md"), "cron").first(), Some(line));
    let command: Vec<&str> = line.split_whitespace().skip(5).collect();
    let command = command.join(" ");
    // An agent as README starts it has a store of its own, and so no part in a fleet.
    let here = command.replace(" --fleet", "");
    let script = format!(
        "cargo run --release >/tmp/agent 2>&1 &\nuntil grep -q ready /tmp/agent; do sleep 0.1; done\n\
         cargo build --release -p tenure-cli && export PATH=\"$PWD/target/release:$PATH\"\n\
         printf '#!/bin/sh\\necho ran\\n' >/usr/local/bin/backup.sh; chmod 755 /usr/local/bin/backup.sh\n\
         {command} 2>/dev/null; echo \"status $?\"\n\
         for host in 1 2 3; do {here} 2>&1; echo \"status $?\"; done\n"
    );
    let Some((_dir, output)) = typed(&script) else { return };
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said, "status 77\nran\nstatus 0\nstatus 0\nstatus 0\n", "{output:?}");
}

#[test]
fn the_curl_lines_get_a_permit() {
    let [lines] = &blocks(&document("docs/api.md"), "sh")[..] else { panic!("one block") };
    let script = format!(
        "cargo run --release >/tmp/agent 2>&1 &\nuntil grep -q ready /tmp/agent; do sleep 0.1; done\n\
         cargo build --release -p tenure-cli && export PATH=\"$PWD/target/release:$PATH\"\n{lines}\n"
    );
    let Some((_dir, output)) = typed(&script) else { return };
    let said = String::from_utf8_lossy(&output.stdout);
    for part in ["\"kind\":\"semaphore\"", "\"state\":\"held\"", "\"limit\":4", "\"released\":true"]
    {
        assert!(said.contains(part), "{part} is not in {output:?}");
    }
}
