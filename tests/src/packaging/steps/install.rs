use super::super::{Inventory, World};

pub(super) fn install(world: &mut World) {
    let machine = &world.machine;
    machine.run("systemctl is-system-running && systemctl --version | head -1").ok();
    world.before = Some(Inventory::of(machine));
    machine.run(&format!("apt-get install --yes {}", world.packages[0])).ok();
    runs(world);

    let (log, machine) = (&machine.log, machine);
    let socket = machine.run("stat --format '%U:%G %a' /run/tenured/api.sock").ok();
    log.expect("the socket is for the group", socket == "tenured:tenured 660");
    let folders = machine.run("stat --format '%U:%G %a %n' /run/tenured /var/lib/tenured").ok();
    let expected = "tenured:tenured 755 /run/tenured\ntenured:tenured 700 /var/lib/tenured";
    log.expect("the directories are the agent's", folders == expected);
    let status = machine.property("tenured.service", "StatusText");
    log.say(&format!("   STATUS: {status}"));
    log.expect("systemctl status says how it is", !status.is_empty());
}

pub(super) fn install_again(world: &mut World) {
    world.machine.run(&format!("apt-get install --yes {}", world.packages[1])).ok();
    runs(world);
}

/// Socket and service are up, now and after the next boot.
#[track_caller]
fn runs(world: &World) {
    let machine = &world.machine;
    let units = "tenured.socket tenured.service";
    let active = machine.run(&format!("systemctl is-active {units}")).ok();
    machine.log.expect("socket and service are active", active == "active\nactive");
    let enabled = machine.run(&format!("systemctl is-enabled {units}")).ok();
    machine.log.expect("and will be after a boot", enabled == "enabled\nenabled");
    machine.run("systemctl status --no-pager --lines=3 tenured.service tenured.socket").ok();
}

pub(super) fn documents(world: &mut World) {
    let machine = &world.machine;
    let effect = machine.run("grep -v '^#' /etc/tenured/tenured.toml | grep ' = '");
    machine.log.expect("the file that is installed sets nothing", !effect.succeeded());
    let example = "/usr/share/doc/tenured/examples/tenured.toml";
    let check = "tenured check-config";
    let valid =
        machine.run(&format!("{check} >/dev/null && {check} --config {example} >/dev/null"));
    machine.log.expect("both files are valid", valid.succeeded());
    let pages =
        "for page in $(dpkg -L tenured | grep /man/man./); do man --warnings -l $page; done";
    let warnings = machine.run(&format!("{{ {pages}; }} 2>&1 >/dev/null")).ok();
    machine.log.expect("the manual pages have no faults", warnings.is_empty());
    let found =
        machine.run("man -w 8 tenured && man -w 5 tenured.toml && man -w tenure tenure-run");
    machine.log.expect("and are found", found.ok().lines().count() == 4);
    let completions =
        "cd /usr/share/bash-completion/completions && bash -n tenure && bash -n tenured";
    machine.log.expect("completions can be read by bash", machine.run(completions).succeeded());
}
