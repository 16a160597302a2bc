use std::fs;
use std::process::{Command, Stdio};
use std::rc::Rc;

use super::super::World;
use super::super::machine::SHARED;
use crate::harness::{Agent, Program, binary, run_to_end, start_agent, until};

const UPSTREAM: &str = "/etc/tenured/conf.d/60-reboot.toml";
/// Notes the time every 50 ms: after a SIGTERM so many times more, or for ever.
const WORK: &str = r#"left=
trap "left=$1" TERM
while [ "$left" != 0 ]; do
    cat /proc/uptime
    sleep 0.05
    left=${left:+$((left - 1))}
done
"#;
/// Work that ends at once, after 3 s, after 60 s, and never.
const WORKS: [(&str, i32); 4] = [("at-once", 1), ("soon", 60), ("late", 1200), ("never", -1)];
/// Units that say nothing of the agent, that say that they need it, and those of a user.
const UNITS: [(&str, &str); 3] = [
    ("unordered", ""),
    ("ordered", "--property=After=tenured.service"),
    ("user", "--property=After=systemd-user-sessions.service --uid=alice"),
];

pub(super) fn reboot(world: &mut World) {
    let shared = world.redis.socket().parent().expect("it lies in a folder").to_owned();
    let machine = &world.machine;
    let upstream = format!("upstream = \"redis+unix://{SHARED}/redis.sock?db=0\"");
    machine.run(&format!("echo '{upstream}' >{UPSTREAM}")).ok();
    machine.run("systemctl restart tenured && tenure status").ok();
    fs::write(shared.join("work.sh"), WORK).expect("the folder is ours");

    let other = start_agent(1, &world.redis.url(), "");
    let mut successors = Vec::new();
    for (unit, options) in UNITS {
        for (work, left) in WORKS {
            let name = format!("{unit}-{work}");
            let notes = format!("{SHARED}/{name}");
            let output = format!(
                "--property=StandardOutput=append:{notes} --property=StandardError=journal \
                 --property=TimeoutStopSec=15"
            );
            let command = format!("tenure lock {name} -- sh {SHARED}/work.sh {left}");
            machine.run(&format!("systemd-run --unit={name} {options} {output} {command}")).ok();
            until(&format!("{name} to work"), || {
                fs::read(shared.join(&name)).is_ok_and(|notes| !notes.is_empty())
            });
            successors.push((successor(&other, &name), name));
        }
    }
    let count = u64::try_from(successors.len()).expect("there are few");
    until("the other host to wait for each of them", || other.counts().2 == count);

    let before = machine.property("tenured.service", "Before");
    let log = Rc::clone(&machine.log);
    let is_last =
        ["systemd-user-sessions.service", "cron.service"].iter().all(|it| before.contains(it));
    log.expect("sessions of users and cron end before the agent", is_last);
    world.machine.reboot();
    for (mut program, name) in successors {
        let (code, held_at, _) = run_to_end(&mut program);
        let notes = fs::read_to_string(shared.join(&name)).expect("the folder is ours");
        let later = seconds(&held_at) - seconds(notes.lines().last().unwrap_or_default());
        let had = code == 0 && later >= 0.0;
        log.expect(&format!("{name}: another host had it {later:.2} s after its last work"), had);
    }
    let machine = &world.machine;
    machine.run(&format!("rm {UPSTREAM} {SHARED}/work.sh {SHARED}/*-*")).ok();
    machine.run("systemctl restart tenured && tenure status").ok();
}

/// A program of another host that waits for a piece of work to be over, and then says the time.
#[track_caller]
fn successor(agent: &Agent, work: &str) -> Program {
    let mut command = Command::new(binary("tenure"));
    command.env("TENURE_SOCKET", agent.socket());
    command.args(["lock", work, "--", "cat", "/proc/uptime"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Program::start(&mut command)
}

/// The time since the start of the kernel, which machine and host share.
#[track_caller]
fn seconds(uptime: &str) -> f64 {
    let first = uptime.split(' ').next().and_then(|it| it.parse().ok());
    first.expect("it is what /proc/uptime says")
}
