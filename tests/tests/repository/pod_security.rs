//! The levels of Kubernetes' Pod Security that the manifests fit, by the rules of the Pod Security Standards.

use std::path::Path;

use serde_json::{Value, json};
use tenure_tests::harness::Python;

/// Capabilities that the level baseline lets a container add.
const BASELINE_CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];
/// Kinds of volumes that the level restricted lets a pod have.
const RESTRICTED_VOLUMES: [&str; 8] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    list(&pod["initContainers"]).iter().chain(list(&pod["containers"]))
}

/// The rules of the level baseline that a pod breaks.
fn against_baseline(pod: &Value) -> Vec<&'static str> {
    let mut broken = Vec::new();
    for shared in ["hostNetwork", "hostPID", "hostIPC"] {
        if pod[shared] == true {
            broken.push(shared);
        }
    }
    if list(&pod["volumes"]).iter().any(|volume| !volume["hostPath"].is_null()) {
        broken.push("hostPath");
    }
    for container in containers(pod) {
        let context = &container["securityContext"];
        if context["privileged"] == true {
            broken.push("privileged");
        }
        let mut added = list(&context["capabilities"]["add"]).iter().filter_map(Value::as_str);
        if added.any(|name| !BASELINE_CAPABILITIES.contains(&name)) {
            broken.push("capabilities");
        }
        if list(&container["ports"]).iter().any(|port| !port["hostPort"].is_null()) {
            broken.push("hostPort");
        }
        if [pod, container]
            .iter()
            .any(|it| it["securityContext"]["seccompProfile"]["type"] == "Unconfined")
        {
            broken.push("seccomp");
        }
        if !context["procMount"].is_null() {
            broken.push("procMount");
        }
    }
    broken
}

/// The rules of the level restricted that a pod breaks.
fn against_restricted(pod: &Value) -> Vec<&'static str> {
    let mut broken = against_baseline(pod);
    for volume in list(&pod["volumes"]) {
        let mut kinds = volume.as_object().expect("a volume").keys().filter(|key| *key != "name");
        if kinds.any(|kind| !RESTRICTED_VOLUMES.contains(&kind.as_str())) {
            broken.push("volumes");
        }
    }
    for container in containers(pod) {
        let (own, of_pod) = (&container["securityContext"], &pod["securityContext"]);
        if own["allowPrivilegeEscalation"] != false {
            broken.push("allowPrivilegeEscalation");
        }
        let either = |key: &str| if own[key].is_null() { &of_pod[key] } else { &own[key] };
        if either("runAsNonRoot") != true || either("runAsUser") == 0 {
            broken.push("runAsNonRoot");
        }
        if either("seccompProfile")["type"] != "RuntimeDefault" {
            broken.push("seccomp");
        }
        let capabilities = &own["capabilities"];
        let is_bound = list(&capabilities["add"]).iter().all(|name| name == "NET_BIND_SERVICE");
        if capabilities["drop"] != json!(["ALL"]) || !is_bound {
            broken.push("capabilities");
        }
    }
    broken
}

/// The pod of a manifest.
#[track_caller]
fn pod(file: &str, kind: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/kubernetes").join(file);
    let documents = Python::run("manifests.py", &["1.37", &path.display().to_string()]);
    let mut found = list(&documents).iter().filter(|document| document["kind"] == kind);
    let spec = &found.next().unwrap_or_else(|| panic!("{file} has no {kind}"))["spec"];
    let template = if kind == "CronJob" {
        &spec["jobTemplate"]["spec"]["template"]
    } else {
        &spec["template"]
    };
    template["spec"].clone()
}

#[test]
fn the_sidecar_and_the_gateways_fit_the_level_restricted() {
    for (file, kind) in [
        ("sidecar.yaml", "Deployment"),
        ("cronjob.yaml", "CronJob"),
        ("gateway/gateway.yaml", "Deployment"),
        ("cluster/cluster.yaml", "StatefulSet"),
    ] {
        assert_eq!(against_restricted(&pod(file, kind)), Vec::<&str>::new(), "{file}");
    }
}

#[test]
fn an_agent_for_each_node_takes_what_the_level_baseline_refuses() {
    let pod = pod("agent/daemonset.yaml", "DaemonSet");
    assert_eq!(against_baseline(&pod), ["hostPID", "hostPath"]);
    // A client of the agent mounts a directory of the node as well, as its manifest says.
    let client = json!({"volumes": [{"name": "agent", "hostPath": {"path": "/run/tenured"}}]});
    assert_eq!(against_baseline(&client), ["hostPath"]);
}
