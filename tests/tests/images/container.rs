//! The container image, run as in a pod: the agent and its clients have different users and PID
//! namespaces, and share a directory.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use tenure::wire::Code;
use tenure_tests::harness::{
    Client, Container, Containers, IMAGE, PageFile, Puppet, Python, SHARED_GROUP, STRICT, binary,
    eventually, until,
};

const SOCKET: &str = "/run/tenured/api.sock";

/// Containers share a directory, and nothing else.
const NO_NETWORK: &str = "--network=none";

/// An agent in a container, and the directory that it shares.
struct Pod {
    containers: Arc<Containers>,
    agent: Container,
    directory: PathBuf,
    name: &'static str,
}

impl Pod {
    /// With an agent as a user that the image does not know, as on OpenShift.
    #[track_caller]
    fn start(containers: &Arc<Containers>, name: &'static str, more: &[&str]) -> Pod {
        let directory = containers.shared_directory(name);
        let agent = Container::named(containers, &format!("{name}-agent"));
        let mut arguments = vec!["run", "--detach", "--name", agent.name()];
        let volume = format!("--volume={}:/run/tenured", directory.display());
        let group = format!("--group-add={SHARED_GROUP}");
        arguments.extend(STRICT);
        arguments.extend([NO_NETWORK, "--user=10001:0", &group, &volume]);
        arguments.push("--tmpfs=/var/lib/tenured:rw,mode=0777");
        arguments.extend(more);
        arguments.push(IMAGE);
        containers.run(&arguments);
        let pod = Pod { containers: Arc::clone(containers), agent, directory, name };
        pod.wait_healthy();
        pod
    }

    /// By the image's own health check.
    #[track_caller]
    fn wait_healthy(&self) {
        eventually("the container to be healthy", || {
            let check = self.containers.attempt(&["healthcheck", "run", self.agent.name()]);
            let running = self.agent.inspect("{{.State.Running}}");
            assert_eq!(running, "true", "it ended: {}", self.agent.log());
            check.status.success().then_some(())
        });
    }

    /// A client in a container of its own, of a user of its own, which can only read the directory.
    #[track_caller]
    fn client(&self, uid: u32) -> (Container, Puppet) {
        let container = Container::named(&self.containers, &format!("{}-{uid}", self.name));
        let mut arguments: Vec<String> =
            ["run", "--interactive", "--name", container.name()].map(String::from).into();
        arguments.extend(STRICT.map(String::from));
        arguments.push(NO_NETWORK.to_owned());
        arguments.push(format!("--user={uid}:{uid}"));
        arguments.push(format!("--group-add={SHARED_GROUP}"));
        arguments.push(format!("--volume={}:/run/tenured:ro", self.directory.display()));
        arguments.push(format!("--volume={}:/puppet:ro", binary("puppet").display()));
        // The puppet is not linked as the agent is.
        for libraries in ["/lib", "/lib64"].into_iter().filter(|path| Path::new(path).exists()) {
            arguments.push(format!("--volume={libraries}:{libraries}:ro"));
        }
        arguments.extend(["--entrypoint=/puppet", IMAGE].map(String::from));
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let puppet = Puppet::start_by(&mut self.containers.podman(&arguments), Path::new(SOCKET));
        (container, puppet)
    }

    /// A page that a client sees below /run/tenured.
    #[track_caller]
    fn page(&self, path: &str) -> PageFile {
        let name = path.strip_prefix("/run/tenured/").expect("in the shared directory");
        PageFile::open(&self.directory.join(name))
    }

    /// The agent's status as its own user sees it.
    #[track_caller]
    fn status(&self) -> Value {
        let name = self.agent.name();
        // It fails while the upstream cannot be reached.
        let asked = ["exec", name, "/usr/bin/tenure", "status", "--json"];
        let output = self.containers.attempt(&asked);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
    }
}

#[test]
fn the_image_says_how_it_is_to_be_run() {
    let Some(containers) = Containers::of_agent() else { return };
    let image = containers.image();
    let config = &image["Docker"]["config"];
    assert_eq!(config["User"], "65532:65532");
    assert_eq!(config["Entrypoint"], json!(["/usr/bin/tenured"]));
    assert_eq!(config["StopSignal"], "SIGTERM");
    let check = json!(["CMD", "/usr/bin/tenure", "status", "--quiet"]);
    assert_eq!(config["Healthcheck"]["Test"], check, "not by a shell");
    assert_eq!(config["Volumes"], json!({"/run/tenured": {}, "/var/lib/tenured": {}}));
    let labels = &config["Labels"];
    assert_eq!(labels["org.opencontainers.image.version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(labels["org.opencontainers.image.licenses"], "MIT OR Apache-2.0");
}

#[test]
fn there_is_nothing_in_it_but_the_agent() {
    let Some(containers) = Containers::of_agent() else { return };
    containers.check_files("tenured", &["tenure", "tenured"], "tenured.toml");
}

#[test]
fn two_containers_hand_over_and_the_agent_may_crash() {
    let Some(containers) = Containers::of_agent() else { return };
    let pod = Pod::start(&containers, "pod", &[]);
    containers.check_strict(pod.agent.name(), 10001);

    let (first_container, mut first) = pod.client(1001);
    let (_second_container, mut second) = pod.client(1002);
    let with = json!({"tether": "process"});
    let [held, waiting] = [&mut first, &mut second].map(|puppet| puppet.register(&with));
    let grant = first.acquire(held.session, "leader", "role", &json!({"ttl_ms": 600_000}));
    let events = second.open_events(waiting.session);
    let wait = second.queue(waiting.session, "leader", "role", &json!({})).hold;

    // Both see their own page, and on it what is theirs.
    for (puppet, own, other) in [(&mut first, &held, &waiting), (&mut second, &waiting, &held)] {
        assert_eq!(puppet.read_file(&own.page), Ok(4096));
        puppet.read_file(&other.page).expect_err("it is another user's");
    }
    assert!(pod.page(&held.page).held(grant.hold));
    assert!(!pod.page(&waiting.page).held(wait));
    let seen = pod.status();
    assert_eq!(seen["agent"]["sessions"], 2, "{seen}");
    for session in seen["sessions"].as_array().expect("a list") {
        assert!(session["pid"].is_null(), "no number rather than a wrong one: {session}");
    }

    // A crash of the agent's container.
    pod.agent.kill();
    containers.run(&["wait", pod.agent.name()]);
    assert!(pod.page(&held.page).held(grant.hold), "valid while there is no agent");
    containers.run(&["start", pod.agent.name()]);
    pod.wait_healthy();
    first.resume(&held);
    second.resume(&waiting);
    events.wait_end();
    let events = second.open_events(waiting.session);
    let holder = second.standing("leader", "role").holders.remove(0);
    assert_eq!(holder.token, grant.token);

    first_container.kill();
    let granted = events.granted(wait);
    assert!(granted.token > grant.token);
    assert!(pod.page(&waiting.page).held(wait));

    // It would be killed after five seconds, and say so by its exit code.
    containers.run(&["stop", "--time", "5", pod.agent.name()]);
    assert_eq!(pod.agent.inspect("{{.State.ExitCode}}"), "0");
    until("the page to be gone", || {
        !pod.directory.join("pages").join(waiting.session.to_string()).exists()
    });
    assert!(!pod.directory.join("api.sock").exists());
}

#[test]
fn strangers_to_the_group_are_kept_out() {
    let Some(containers) = Containers::of_agent() else { return };
    let pod = Pod::start(&containers, "closed", &[]);
    let volume = format!("--volume={}:/run/tenured:ro", pod.directory.display());
    let mut arguments = vec!["run", "--rm", &volume, "--user=1001:1001"];
    arguments.extend(STRICT);
    arguments.push(NO_NETWORK);
    arguments.extend(["--entrypoint=/usr/bin/tenure", IMAGE, "status"]);
    let refused = containers.attempt(&arguments);
    let error = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && error.contains("you may not open the agent's socket"),
        "{error}"
    );
}

#[test]
fn root_without_capabilities_is_told_why_it_cannot_serve() {
    let Some(containers) = Containers::of_agent() else { return };
    let directory = containers.shared_directory("roots");
    let volume = format!("--volume={}:/run/tenured", directory.display());
    let mut arguments = vec!["run", "--rm", &volume, "--user=0:0"];
    arguments.extend(STRICT);
    arguments.push(NO_NETWORK);
    arguments.extend(["--tmpfs=/var/lib/tenured:rw,mode=0777", IMAGE]);
    let refused = containers.attempt(&arguments);
    let error = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(69), "{error}");
    assert!(
        error.contains("it cannot be given to the group tenured; be a member of it"),
        "{error}"
    );
}

#[test]
fn names_of_users_and_hosts_and_public_authorities_are_known() {
    let Some(containers) = Containers::of_agent() else { return };
    // Nobody listens there, and to know that takes the host's address.
    let upstream = "--env=TENURED_UPSTREAM=redis://redis.test:1/0";
    let pod = Pod::start(&containers, "names", &["--add-host=redis.test:127.0.0.1", upstream]);
    let refused = eventually("a try to connect", || {
        pod.status()["upstream"]["last_error"].as_str().map(str::to_owned)
    });
    assert!(refused.contains("onnection refused"), "{refused}");

    let rules = pod.directory.join("tenured.toml");
    let text =
        "upstream = \"rediss://redis.test/0\"\n[[allow]]\nuid = \"tenured\"\ngid = \"tenured\"\n";
    fs::write(&rules, text).expect("the directory is ours");
    let volume = format!("--volume={}:/etc/tenured/tenured.toml:ro", rules.display());
    let mut arguments = vec!["run", "--rm", &volume];
    arguments.extend(STRICT);
    arguments.push(NO_NETWORK);
    arguments.extend([IMAGE, "check-config"]);
    let effective = containers.run(&arguments);
    assert!(effective.contains("rediss://redis.test"), "{effective}");
    assert!(effective.contains("runtime_dir = \"/run/tenured\""), "{effective}");
}

#[test]
fn a_secret_is_read_by_its_group_and_refused_when_it_is_everybodys() {
    let Some(containers) = Containers::of_agent() else { return };
    let directory = containers.shared_directory("secret");
    let secret = directory.join("password");
    fs::write(&secret, "hunter2").expect("the directory is ours");
    let volume = format!("--volume={}:/etc/tenured-secret:ro", directory.display());
    let group = format!("--group-add={SHARED_GROUP}");
    let mut arguments = vec!["run", "--rm", &volume, &group, "--user=10001:0"];
    arguments.extend(STRICT);
    arguments.push(NO_NETWORK);
    arguments.push("--env=TENURED_UPSTREAM=redis://tenured@redis.test/0");
    arguments.push("--env=TENURED_UPSTREAM_SECRET_FILE=/etc/tenured-secret/password");
    arguments.extend([IMAGE, "check-config"]);
    // The modes of a secret in a pod with an fsGroup, with and without defaultMode.
    for (mode, expected) in [(0o440, true), (0o644, false)] {
        fs::set_permissions(&secret, fs::Permissions::from_mode(mode)).expect("it is ours");
        let checked = containers.attempt(&arguments);
        let all = String::from_utf8_lossy(&[checked.stdout, checked.stderr].concat()).into_owned();
        assert_eq!(checked.status.success(), expected, "{all}");
        assert!(!all.contains("hunter2"), "{all}");
    }
}

#[test]
fn hosts_are_found_through_a_name_server() {
    let Some(containers) = Containers::of_agent() else { return };
    let file = containers.shared_directory("resolver").join("resolv.conf");
    fs::write(&file, "nameserver 127.0.0.1\n").expect("the directory is ours");
    let volume = format!("--volume={}:/etc/resolv.conf:ro", file.display());
    let upstream = "--env=TENURED_UPSTREAM=redis://db.example:1/0";
    let pod = Pod::start(&containers, "resolves", &[&volume, upstream]);
    let pid = pod.agent.inspect("{{.State.Pid}}").parse().expect("a number");
    let server = Python::start_in_network(pid, "name_server.py", &["db.example"]);
    server.event_after(0, "the name server", |line| line["listens"].as_bool());
    // Nobody listens there, and to know that takes the address.
    until("a try to connect", || {
        let status = pod.status();
        let error = status["upstream"]["last_error"].as_str();
        error.is_some_and(|error| error.contains("onnection refused"))
    });
}

/// As on Linux before 6.5, which knows no SO_PEERPIDFD.
const NO_PEER_HANDLES: &str = r#"{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [{
    "names": ["getsockopt"], "action": "SCMP_ACT_ERRNO", "errnoRet": 92, "args": [
        {"index": 1, "value": 1, "op": "SCMP_CMP_EQ"},
        {"index": 2, "value": 77, "op": "SCMP_CMP_EQ"}]}]}"#;

#[test]
fn where_the_kernel_gives_no_handle_a_process_tether_is_refused() {
    let Some(containers) = Containers::of_agent() else { return };
    let profile = containers.shared_directory("profile").join("seccomp.json");
    fs::write(&profile, NO_PEER_HANDLES).expect("the directory is ours");
    let seccomp = format!("--security-opt=seccomp={}", profile.display());
    let pod = Pod::start(&containers, "old", &[&seccomp]);
    let (container, mut client) = pod.client(1001);
    let refused = client.post("/v1/register", &json!({"tether": "process"}));
    let problem = refused.problem(Code::Invalid);
    assert!(problem.detail.contains("before Linux 6.5"), "{problem}");

    // Its connection is one to be tied to all the same.
    let session = client.register(&json!({"tether": "connection", "linger_ms": 1})).session;
    client.open_events(session).snapshot();
    client.acquire(session, "leader", "role", &json!({}));
    let (_next, mut heir) = pod.client(1002);
    let waiting = heir.register(&json!({"tether": "connection"})).session;
    let events = heir.open_events(waiting);
    let wait = heir.queue(waiting, "leader", "role", &json!({})).hold;
    container.kill();
    events.granted(wait);
}
