use super::super::{Inventory, World};
use super::work::Work;

pub(super) fn remove(world: &mut World) {
    let work = Work::start(world, &[("removed", "")]);
    let machine = &world.machine;
    machine.run("apt-get remove --yes tenured").ok();
    work.expect_passed_on(machine);
    let active = machine.run("systemctl is-active tenured.socket tenured.service").text;
    machine.log.expect("nothing runs", !active.lines().any(|line| line == "active"));
    let kept = "ls /etc/tenured/tenured.toml && ls -d /var/lib/tenured && getent passwd tenured";
    machine.log.expect("configuration, state and user are kept", machine.run(kept).succeeded());
}

pub(super) fn purge(world: &mut World) {
    let machine = &world.machine;
    machine.run("apt-get purge --yes tenured").ok();
    let before = world.before.take().expect("it was taken before the installation");
    let after = Inventory::of(machine);
    machine.log.say(&format!(
        "   {} lines of files, users and units before, {} after",
        before.len(),
        after.len()
    ));
    let changes = after.changes_since(&before);
    for change in &changes {
        machine.log.say(&format!("   {change}"));
    }
    machine.log.expect("everything is as before the installation", changes.is_empty());
    let failed = machine.run("systemctl --failed --no-legend").ok();
    machine.log.expect("no unit has failed", failed.is_empty());
}
