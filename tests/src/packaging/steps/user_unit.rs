use super::super::World;

pub(super) fn lingering(world: &mut World) {
    let machine = &world.machine;
    let log = &machine.log;
    machine.run("loginctl enable-linger carol").ok();
    machine
        .until("carol's service manager runs", "systemctl is-active user@$(id -u carol).service");
    let user = |script: &str| {
        let with = "export XDG_RUNTIME_DIR=/run/user/$(id -u) HOME=/home/carol";
        machine.run_as("carol", &format!("{with}\n{script}"))
    };
    user("systemctl --user enable --now tenured.socket tenured.service").ok();
    let active = user("systemctl --user is-active tenured.socket tenured.service").ok();
    log.expect("socket and service are active", active == "active\nactive");
    user("systemctl --user status --no-pager --lines=3 tenured").ok();
    let socket = user("stat --format '%U %a' $XDG_RUNTIME_DIR/tenured/api.sock").ok();
    log.expect("the socket is for carol alone", socket == "carol 600");
    let said = user("tenure run --leader mine -- echo led").ok();
    log.expect("carol runs something as a leader", said == "led");
    let hold = "tenure run --leader kept -- sh -c 'systemctl --user restart tenured && tenure standing leader kept'";
    let said = user(hold).ok();
    log.expect("a restart keeps what is held", said.contains("kept"));
    user("systemctl --user disable --now tenured.socket tenured.service").ok();
    machine.run("loginctl disable-linger carol && systemctl stop user@$(id -u carol).service").ok();
}
