use super::super::World;
use super::work::Work;

/// Units that say nothing of the agent, that say that they need it, and those of a user.
const UNITS: [(&str, &str); 3] = [
    ("unordered", ""),
    ("ordered", "--property=After=tenured.service"),
    ("user", "--property=After=systemd-user-sessions.service --uid=alice"),
];

pub(super) fn reboot(world: &mut World) {
    let work = Work::start(world, &UNITS);
    let before = world.machine.property("tenured.service", "Before");
    let is_last =
        ["systemd-user-sessions.service", "cron.service"].iter().all(|it| before.contains(it));
    world.machine.log.expect("sessions of users and cron end before the agent", is_last);
    world.machine.reboot();
    work.expect_passed_on(&world.machine);
    world.machine.run("systemctl restart tenured && tenure status").ok();
}
