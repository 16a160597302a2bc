use super::super::World;

const UNIT: &str = "/run/systemd/system/wrapped.service";
/// Speaks for itself with its service manager, as a daemon of `Type=notify` does.
const SERVICE: &str = "[Service]
Type=notify
ExecStart=tenure lock wrapped -- sh -c 'systemd-notify --ready --status=serving; while sleep 1; do systemd-notify WATCHDOG=1; done'
KillMode=mixed
TimeoutStartSec=10
WatchdogSec=60
";

pub(super) fn service(world: &mut World) {
    let machine = &world.machine;
    let log = &machine.log;
    machine.run(&format!("cat >{UNIT} <<'END'\n{SERVICE}END\nsystemctl daemon-reload")).ok();
    machine.run("systemd-run --unit=incumbent tenure lock wrapped -- sleep infinity").ok();
    machine.until(
        "another has the lock",
        "tenure standing leader wrapped --json | grep -q '\"holding\": 1'",
    );
    machine.run("systemctl start --no-block wrapped").ok();
    let waits = "systemctl show --property=StatusText wrapped | grep 'waiting for leader/wrapped'";
    machine.until("its wait is its status", waits);
    // Longer than its TimeoutStartSec.
    machine.until(
        "it is starting for 12 s",
        "test $(($(systemctl show --value --property=InactiveExitTimestampMonotonic wrapped) + 12000000)) \
         -lt $(cut -d. -f1 /proc/uptime)000000",
    );
    let state = machine.property("wrapped.service", "ActiveState");
    log.expect("and no start that hangs", state == "activating");
    machine.run("systemctl stop incumbent").ok();
    machine.until("it runs", "systemctl is-active wrapped");
    let status = machine.property("wrapped.service", "StatusText");
    log.expect("by its own word", status == "serving");
    let pinged = "systemctl show --value --property=WatchdogTimestampMonotonic wrapped";
    let first = machine.run(pinged).ok();
    machine.until("it answers the watchdog", &format!("test \"$({pinged})\" != '{first}'"));
    machine.run("systemctl stop wrapped").ok();
    let result = machine.property("wrapped.service", "Result");
    log.expect("it ends when it is told to", result == "success");
    machine.until(
        "nobody has the lock",
        "tenure standing leader wrapped --json | grep -q '\"holding\": 0'",
    );
    machine.run(&format!("rm {UNIT} && systemctl daemon-reload")).ok();
}
