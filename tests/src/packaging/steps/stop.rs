use super::super::World;

pub(super) fn stop(world: &mut World) {
    let machine = &world.machine;
    machine.run("systemctl stop tenured.service").ok();
    let crowd = world.crowd.take().expect("it was gathered");
    crowd.expect_all_released(machine);
    crowd.expect_shutdown(machine, "stopping");
    let active = machine.run("systemctl is-active tenured.socket tenured.service").text;
    machine.log.expect("the socket still listens", active == "active\ninactive");
}

pub(super) fn socket_alone(world: &mut World) {
    let machine = &world.machine;
    machine.run("systemctl stop tenured.service tenured.socket").ok();
    let refused = machine.run_as("alice", "tenure status").fails();
    machine.log.expect("nobody serves", !refused.is_empty());
    machine.run("systemctl start tenured.socket").ok();
    let active = machine.run("systemctl is-active tenured.socket tenured.service").text;
    machine.log.expect("the socket is alone", active == "active\ninactive");
    let said = machine.run_as("alice", "tenure run --leader nightly -- echo led").ok();
    machine.log.expect("the first client is served", said == "led");
    // It may serve before it has said that it is ready.
    machine.until(
        "it was an agent that it started",
        "test \"$(systemctl is-active tenured.socket tenured.service | sort -u)\" = active",
    );
}
