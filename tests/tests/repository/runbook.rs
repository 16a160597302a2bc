//! The runbook of a cluster that has lost its majority, typed as it is written, under load: on a host that has a
//! service manager of its own, and the addresses of five others.

use std::fs;
use std::process::Command;

use tempfile::TempDir;
use tenure_tests::harness::{binary, other_users};

use super::readme::{blocks, document};

/// Starts and stops the gateway of the host with the number $NODE.
const SYSTEMCTL: &str = r#"#!/bin/sh
pid=/run/gateway-$NODE.pid log=/tmp/gateway-$NODE.log
case "$*" in
    "start tenured-gateway")
        : >"$log"
        setsid tenured-gateway --config /etc/tenured-gateway/$NODE.toml >>"$log" 2>&1 9>&- &
        echo $! >"$pid"
        timeout 60 sh -c "until grep -q 'ready at' $log; do sleep 0.05; done" ;;
    "stop tenured-gateway")
        kill "$(cat "$pid")"
        timeout 60 sh -c "while kill -0 $(cat "$pid") 2>/dev/null; do sleep 0.05; done" ;;
    "restart tenured")
        for agent in a b; do
            pid=/run/agent-$agent.pid
            if [ -e "$pid" ]; then
                kill "$(cat "$pid")"
                timeout 60 sh -c "while kill -0 $(cat "$pid") 2>/dev/null; do sleep 0.05; done"
            fi
            tenured --upstream http://127.0.0.1:8751,127.0.0.1:8752,127.0.0.1:8753 --socket /run/agent-$agent/api.sock \
                --state-dir /var/lib/agent-$agent --runtime-dir /run/agent-$agent >/tmp/agent-$agent.log 2>&1 &
            echo $! >"$pid"
            timeout 60 sh -c "until grep -q ready /tmp/agent-$agent.log; do sleep 0.05; done"
        done ;;
    *) echo "the runbook types another systemctl: $*" >&2; exit 1 ;;
esac
"#;

/// Root is the user of every gateway here.
const SUDO: &str = r#"#!/bin/sh
[ "$1 $2" = "-u tenured-gateway" ] || { echo "the runbook types another sudo: $*" >&2; exit 1; }
shift 2
exec "$@"
"#;

/// The work of one program at a time.
const WORK: &str = r#"#!/bin/sh
exec 9>>/tmp/inside
flock -n 9 || echo "two at once" >>/tmp/wrong
echo "$TENURE_TOKEN" >>/tmp/tokens
sleep 0.05
"#;

/// The host. Its arguments are a folder in which it may write, and that of the programs, which may lie in a folder that
/// this host has of its own.
const HOST: &str = r#"
mkdir "$1/built" && mount --bind "$2" "$1/built"
cp -a /etc "$1/etc" && mount --bind "$1/etc" /etc
for folder in /run /tmp /var/lib; do mount -t tmpfs none "$folder"; done
mkdir -p /etc/tenured-gateway && cd /tmp
exec env -i PATH="$1:$1/built:/usr/bin:/bin" HOME=/tmp bash "$1/script"
"#;

/// Five hosts, three of which are a cluster, and programs at two agents that contend. Then two hosts are gone.
const BEFORE: &str = r#"
exec 2>&1
for n in 1 2 3 4 5; do
    echo "127.0.0.$n node-$n.example" >>/etc/hosts
    state=/var/lib/tenured-gateway
    [ $n = 3 ] || state=/var/lib/node-$n
    cat >/etc/tenured-gateway/$n.toml <<END
upstream = "cluster:"
listen = "127.0.0.1:875$n"
state_dir = "$state"
runtime_dir = "/run/gateway-$n"
[cluster]
listen = "127.0.0.$n:8741"
address = "node-$n.example:8741"
END
done
cp /etc/tenured-gateway/3.toml /etc/tenured-gateway/gateway.toml
for NODE in 1 2 3; do export NODE; systemctl start tenured-gateway; done
tenured-gateway cluster init
tenured-gateway cluster add node-1.example:8741
tenured-gateway cluster add node-2.example:8741
systemctl restart tenured
for agent in a b; do
    for worker in 1 2; do
        while [ ! -e /tmp/enough ]; do
            TENURE_SOCKET=/run/agent-$agent/api.sock tenure lock nightly -- work || sleep 0.2
        done >/tmp/worker-$agent-$worker.log 2>&1 &
    done
done
touch /tmp/tokens /tmp/wrong
grants() { timeout 400 sh -c "until [ \$(wc -l </tmp/tokens) -ge $1 ]; do sleep 0.1; done" || echo "too few grants"; }
grants 40
kill -9 "$(cat /run/gateway-1.pid)" "$(cat /run/gateway-2.pid)"
rm -rf /var/lib/node-1 /var/lib/node-2
timeout 60 sh -c 'until tenured-gateway cluster status | grep "NONE LEADS"; do sleep 0.1; done'
tenured-gateway cluster status >/dev/null; echo "without a leader: $?"
curl -s http://127.0.0.1:8753/metrics | grep '^tenured_gateway_cluster_leads '
export NODE=3
lost=$(date +%s) before=$(wc -l </tmp/tokens)
"#;

const AFTER: &str = r#"
timeout 60 sh -c "until tenured-gateway cluster status | grep -c ' ok\$' | grep -q 3; do sleep 0.1; done" && echo "all keep up"
grants $((before + 40))
echo "granted again after $(($(date +%s) - lost)) s"
touch /tmp/enough
sort -c -n -u /tmp/tokens && echo "tokens rise"
cat /tmp/wrong
export NODE=3; systemctl stop tenured-gateway
mv /var/lib/tenured-gateway/cluster /var/lib/tenured-gateway/cluster-new
mv /var/lib/tenured-gateway/cluster-before /var/lib/tenured-gateway/cluster
tenured-gateway --config /etc/tenured-gateway/3.toml; echo "the folder of before: $?"
echo "the end"
"#;

#[test]
fn two_of_three_nodes_that_are_gone_are_recovered_from_as_it_is_written() {
    if other_users().is_none() {
        return;
    }
    let page = document("docs/cluster.md");
    let section = page.split("\n## Two of three are gone\n").nth(1).expect("the runbook");
    let section = section.split("\n## ").next().expect("its text");
    let [survivor, new, join, agents] = &blocks(section, "sh")[..] else { panic!("four blocks") };
    let script = format!(
        "{BEFORE}\n{survivor}\nfor NODE in 4 5; do export NODE\n{new}\ndone\nexport NODE=3\n{join}\n{agents}\n{AFTER}"
    );
    let dir = TempDir::new_in("/dev/shm").expect("a folder can be made");
    for (name, text) in
        [("script", script.as_str()), ("systemctl", SYSTEMCTL), ("sudo", SUDO), ("work", WORK)]
    {
        fs::write(dir.path().join(name), text).expect("it is ours");
    }
    let made = Command::new("chmod").arg("-R").arg("755").arg(dir.path()).status();
    assert!(made.is_ok_and(|status| status.success()));
    let mut host = Command::new("unshare");
    host.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-ec", HOST]);
    let built = binary("tenured");
    host.arg("host").arg(dir.path()).arg(built.parent().expect("a folder"));
    let output = host.output().expect("unshare is installed");
    let said = String::from_utf8_lossy(&output.stdout);
    println!("{said}{}", String::from_utf8_lossy(&output.stderr));
    let mut rest = &*said;
    for part in [
        "NONE LEADS",
        "without a leader: 69",
        "tenured_gateway_cluster_leads 0",
        "it grants nothing for 1m 30s",
        "must never run again",
        "at node-4.example:8741 votes; 2 are no safer than 1",
        "at node-5.example:8741 votes\n",
        "3 nodes vote",
        "all keep up",
        "granted again after",
        "tokens rise",
        "recovered from",
        "the folder of before: 78",
        "the end",
    ] {
        let (_, after) =
            rest.split_once(part).unwrap_or_else(|| panic!("{part:?} is not in {rest}"));
        rest = after;
    }
    for wrong in ["two at once", "too few grants"] {
        assert!(!said.contains(wrong), "{said}");
    }
}
