use super::super::{Machine, World};

/// Ten times the figure that is printed.
const EXPOSURE_MAX: u32 = 14;

pub(super) fn in_force(world: &mut World) {
    let machine = &world.machine;
    let log = &machine.log;
    let units = "tenured.service tenured.socket";
    let said = machine.run(&format!("systemd-analyze verify {units}")).ok();
    log.expect("the units have no faults", said.is_empty());
    let user = "/usr/lib/systemd/user/tenured.service /usr/lib/systemd/user/tenured.socket";
    let said =
        machine.run(&format!("XDG_RUNTIME_DIR=/tmp systemd-analyze --user verify {user}")).ok();
    log.expect("nor have those for one user", said.is_empty());
    exposure(machine, "tenured.service");

    let pid = machine.agent_pid();
    let status = machine.run(&format!(
        "grep -E '^(Uid|Groups|CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/{pid}/status | tr '\\t' ' '"
    ));
    let status = status.ok();
    for line in
        ["CapEff: 0000000000000000", "CapBnd: 0000000000000000", "NoNewPrivs: 1", "Seccomp: 2"]
    {
        log.expect(&format!("the process has {line}"), status.contains(line));
    }
    let limits = machine.run(&format!("grep -E 'core file|open files' /proc/{pid}/limits")).ok();
    let core = limits.lines().any(|line| line.starts_with("Max core file size        0 "));
    log.expect("it leaves no core dump", core);
    let inside =
        format!("nsenter --target {pid} --mount -- setpriv --reuid tenured --clear-groups");
    for path in ["/etc/tenured/x", "/usr/bin/x", "/var/lib/x"] {
        let said = machine.run(&format!("{inside} touch {path}")).fails();
        log.expect("it can write nowhere else", said.contains("Read-only file system"));
    }
    let home = machine.run(&format!("{inside} ls /home")).fails();
    log.expect("it does not see homes", home.contains("Permission denied"));
}

/// Checks how much of the system a unit could reach.
#[track_caller]
pub(super) fn exposure(machine: &Machine, unit: &str) {
    for how in ["--offline=true", "--offline=false"] {
        let command = format!("systemd-analyze security {how} --threshold={EXPOSURE_MAX}");
        let said = machine.run(&format!("{command} --no-pager {unit} | grep -v '✓'")).ok();
        // The pipe hides the exit code, which is what counts.
        machine.look(&format!("{command} {unit}")).ok();
        let overall = said.lines().last().unwrap_or_default();
        let what = format!("exposure at most 1.4: {overall}");
        machine.log.expect(&what, overall.contains("exposure"));
    }
}
