use serde_json::json;

use super::super::{World, crowd};
use crate::harness::{Client, eventually};

pub(super) fn members_and_others(world: &mut World) {
    let machine = &world.machine;
    let log = &machine.log;
    machine.run("gpasswd --add alice tenured").ok();
    let said = machine.run_as("alice", "id -nG && tenure run --leader nightly -- id -un").ok();
    log.expect("a member runs something as a leader", said.ends_with("\nalice"));
    machine.run_as("alice", "tenure status").ok();
    machine.run("tenure doctor").ok();
    let typed = "HOME=/tmp/alice script -qec 'tenure lock typed -- true' /dev/null";
    let said = [(); 2].map(|()| machine.run_as("alice", typed).ok());
    let told = said.map(|said| said.contains("held on this host alone"));
    log.expect("a terminal is told once that no other host takes part", told == [true, false]);

    let refused = machine.run_as("mallory", "tenure run --leader nightly -- true").fails();
    log.expect("somebody else is refused", refused.contains("you may not open the agent's socket"));
    let said = machine.run_as("mallory", "tenure doctor").fails();
    log.expect("and told how to join", said.contains("sudo usermod -aG tenured mallory"));

    let mut alice = crowd::puppet(machine, "alice", &world.puppet);
    let session = alice.register(&json!({"name": "page", "tether": "process"}));
    let seen = alice.status();
    let seen = &seen.sessions[0];
    let (uid, pid) = (seen.uid, seen.pid.expect("the kernel tells the process"));
    let process = machine.run(&format!("id -u alice && tr '\\0' ' ' </proc/{pid}/cmdline")).ok();
    let expected = format!("{uid}\n{} {}", world.puppet, crowd::SOCKET);
    log.expect("the agent knows user and process of a client", process == expected);
    let granted = alice.acquire(session.session, "leader", "page", &json!({}));
    machine.run(&format!("getfacl {0} 2>/dev/null || ls -l {0}", session.page)).ok();
    let page = alice.read_file(&session.page);
    log.expect("its user can read its page", page.is_ok_and(|bytes| bytes > 0));
    let stranger = machine.run_as("mallory", &format!("cat {}", session.page)).fails();
    log.expect("nobody else can", stranger.contains("Permission denied"));

    let mut root = crowd::puppet(machine, "root", &world.puppet);
    let waiting = root.register(&json!({"tether": "process"}));
    root.queue(waiting.session, "leader", "page", &json!({}));
    machine.run(&format!("kill -KILL {pid}")).ok();
    let next = eventually("the next in line to have it", || {
        root.standing("leader", "page").holders.into_iter().find(|it| it.token != granted.token)
    });
    log.expect("a killed client's hold passes on", next.token > granted.token);
}
