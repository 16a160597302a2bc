use super::super::World;

const SLOWLY: &str = "/run/systemd/system/tenured.socket.d";
const WRONG: &str = "/etc/tenured/conf.d/50-wrong.toml";
const UPSTREAM: &str = "/etc/tenured/conf.d/60-redis.toml";
const SECRET: &str = "/etc/credstore/tenured.upstream-secret";
const PASSWORD: &str = "open-sesame-4711";

pub(super) fn reload(world: &mut World) {
    let machine = &world.machine;
    let before = machine.agent_pid();
    machine.run(&format!("echo 'leader.tll = \"30s\"' >{WRONG}")).ok();
    machine.run("systemctl reload tenured").fails();
    machine.until(
        "the journal names the key",
        "journalctl --unit=tenured --output=cat --lines=8 --no-pager | grep -F leader.tll",
    );
    let active = machine.run("systemctl is-active tenured").ok();
    let same = machine.agent_pid() == before && active == "active";
    machine.log.expect("the agent goes on", same);

    machine.run(&format!("echo 'log = \"debug\"' >{WRONG}")).ok();
    machine.run("systemctl reload tenured").ok();
    machine.until(
        "the agent says what it reloaded",
        "journalctl --unit=tenured --output=cat --lines=20 --no-pager | grep -i reload",
    );
    machine.log.expect("by the same process", machine.agent_pid() == before);
    machine.run(&format!("rm {WRONG} && systemctl reload tenured")).ok();
    let crowd = world.crowd.as_mut().expect("it was gathered");
    crowd.expect_all_kept(&world.machine, &world.puppet);
}

pub(super) fn wrong_until_mended(world: &mut World) {
    let machine = &world.machine;
    machine.run(&format!("echo 'leader.tll = \"30s\"' >{WRONG}")).ok();
    machine.run("systemctl restart tenured").fails();
    machine.run("systemctl status --no-pager --lines=4 tenured").fails();
    let state = machine.property("tenured.service", "ActiveState");
    machine.log.expect("the service has failed, for everybody to see", state == "failed");
    let status = machine.property("tenured.service", "ExecMainStatus");
    machine.log.expect("with the exit status for it", status == "78");
    // A client makes the socket start it, again and again, until the socket's own limit is reached:
    // so many starts within 2 s, which a busy machine does not make. There it is reached later.
    let slowly = format!(
        "mkdir -p {SLOWLY} && printf '[Socket]\\nTriggerLimitIntervalSec=1h\\n' >{SLOWLY}/test.conf"
    );
    machine.run(&format!("{slowly} && systemctl daemon-reload")).ok();
    let rests = "test \"$(systemctl is-active tenured.socket tenured.service | sort -u)\" = failed";
    let asked = "timeout 1 tenure status >/dev/null 2>&1";
    machine.run(&format!("timeout 300 sh -c 'until {rests}; do {asked}; sleep 0.1; done'")).ok();
    machine.run("tenure status").fails();
    let active = machine.run("systemctl is-active tenured.socket tenured.service").fails();
    let rests = active.lines().all(|line| line == "failed");
    machine.log.expect("clients are refused, and nothing runs in circles", rests);
    machine.run(&format!("rm -r {SLOWLY} && systemctl daemon-reload")).ok();
    machine.run(&format!("rm {WRONG} && systemctl restart tenured")).ok();
    let active = machine.run("systemctl is-active tenured.socket tenured.service").ok();
    machine.log.expect("a restart brings both back", active == "active\nactive");
    machine.run("tenure status").ok();
}

pub(super) fn credential(world: &mut World) {
    let machine = &world.machine;
    let log = &machine.log;
    let absent = machine.run(&format!("ls {SECRET}"));
    log.expect("so far there was none, and the service ran", !absent.succeeded());
    let upstream = "upstream = \"redis://tenured@127.0.0.1:6379/0\"";
    machine.run(&format!("echo '{upstream}' >{UPSTREAM}")).ok();
    machine.run(&format!("install -d -m 0700 /etc/credstore && : >{SECRET}")).ok();
    machine.run("systemctl restart tenured").fails();
    machine.until(
        "an empty one is refused",
        "journalctl --unit=tenured --output=cat --lines=6 --no-pager | grep 'must contain a password'",
    );
    machine.run(&format!("echo {PASSWORD} >{SECRET} && chmod 0600 {SECRET}")).ok();
    machine.run("systemctl restart tenured && systemctl is-active tenured").ok();
    let inside = format!("nsenter --target {} --mount", machine.agent_pid());
    machine.run(&format!("{inside} ls -l /run/credentials/tenured.service")).ok();
    let check = "systemd-run --quiet --pipe --wait --property=User=tenured \
                 --property=LoadCredential=upstream-secret:tenured.upstream-secret \
                 tenured check-config | grep upstream";
    let effective = machine.run(check).ok();
    log.expect(
        "it is what is in effect",
        effective.contains("CREDENTIALS_DIRECTORY/upstream-secret"),
    );
    let everywhere = "tenure status; tenured check-config; journalctl --no-pager; \
                      systemctl show tenured; cat /proc/*/cmdline /proc/*/environ";
    let shown = machine.run(&format!("{{ {everywhere}; }} 2>&1 | grep -a -c -F -f {SECRET}"));
    log.expect("and is shown nowhere", shown.text == "0");
    machine
        .run(&format!("rm {SECRET} {UPSTREAM} && rmdir /etc/credstore; systemctl restart tenured"))
        .ok();
}
