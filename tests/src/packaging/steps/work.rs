//! Guarded commands in the machine, and programs of another host that wait for the lock of each.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::super::machine::SHARED;
use super::super::{Machine, World};
use crate::harness::{Agent, Program, binary, run_to_end, start_agent, until};

const UPSTREAM: &str = "/etc/tenured/conf.d/60-shared.toml";
/// Notes the time every 50 ms: after a SIGTERM so many times more, or for ever.
const SCRIPT: &str = r#"left=
trap "left=$1" TERM
while [ "$left" != 0 ]; do
    cat /proc/uptime
    sleep 0.05
    left=${left:+$((left - 1))}
done
"#;
/// Work that ends at once, after 3 s, after 60 s, and never.
const ENDS: [(&str, i32); 4] = [("at-once", 1), ("soon", 60), ("late", 1200), ("never", -1)];

/// Each piece of work has a hold that a program of another host waits for.
pub(super) struct Work {
    shared: PathBuf,
    successors: Vec<(Program, String)>,
    _other: Agent,
}

impl Work {
    /// Starts work in units of these names, with these options of systemd-run.
    #[track_caller]
    pub(super) fn start(world: &World, units: &[(&str, &str)]) -> Work {
        let machine = &world.machine;
        let upstream = format!("upstream = \"redis+unix://{SHARED}/redis.sock?db=0\"");
        machine.run(&format!("echo '{upstream}' >{UPSTREAM}")).ok();
        machine.run("systemctl restart tenured && tenure status").ok();
        let shared = world.redis.socket().parent().expect("it lies in a folder").to_owned();
        fs::write(shared.join("work.sh"), SCRIPT).expect("the folder is ours");

        let other = start_agent(1, &world.redis.url(), "");
        let mut successors = Vec::new();
        for (unit, options) in units {
            for (end, left) in ENDS {
                let name = format!("{unit}-{end}");
                let options = format!(
                    "--collect --unit={name} {options} --property=TimeoutStopSec=15 \
                     --property=StandardOutput=append:{SHARED}/{name} --property=StandardError=journal"
                );
                let command = format!("tenure lock {name} -- sh {SHARED}/work.sh {left}");
                machine.run(&format!("systemd-run {options} {command}")).ok();
                until(&format!("{name} to work"), || {
                    fs::read(shared.join(&name)).is_ok_and(|notes| !notes.is_empty())
                });
                successors.push((successor(&other, &name), name));
            }
        }
        let count = u64::try_from(successors.len()).expect("there are few");
        until("the other host to wait for each of them", || other.counts().2 == count);
        Work { shared, successors, _other: other }
    }

    /// Expects that the other host got each lock after the last sign of its command. Removes the files of the commands.
    #[track_caller]
    pub(super) fn expect_passed_on(self, machine: &Machine) {
        for (mut program, name) in self.successors {
            let (code, held_at, _) = run_to_end(&mut program);
            let notes = fs::read_to_string(self.shared.join(&name)).expect("the folder is ours");
            let later = seconds(&held_at) - seconds(notes.lines().last().unwrap_or_default());
            let what = format!("{name}: another host had it {later:.2} s after its last work");
            machine.log.expect(&what, code == 0 && later >= 0.0);
            let later = fs::read_to_string(self.shared.join(&name)).expect("the folder is ours");
            machine.log.expect("the work is over", later == notes);
        }
        let works =
            machine.run("grep --files-with-matches '[w]ork.sh' /proc/[0-9]*/cmdline 2>/dev/null");
        machine.log.expect("no work goes on", works.text.is_empty());
        machine.run(&format!("rm {UPSTREAM} {SHARED}/work.sh {SHARED}/*-*")).ok();
    }
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
