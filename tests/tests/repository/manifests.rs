//! The files for Kubernetes: well-formed, and with all that the agent and the image need. They are not run here.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;
use tenure_tests::harness::{Authority, Python, binary};

/// The first version with native sidecars switched on, one in between, and the newest with schemas.
const KUBERNETES: [&str; 3] = ["1.29", "1.33", "1.37"];

fn packaged(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging").join(path)
}

/// The documents of a manifest, valid in every version.
#[track_caller]
fn manifest(name: &str) -> Vec<Value> {
    let path = packaged("kubernetes").join(name).display().to_string();
    let mut documents = KUBERNETES.map(|version| Python::run("manifests.py", &[version, &path]));
    let documents = documents[0].take();
    documents.as_array().expect("several documents").clone()
}

#[track_caller]
fn of_kind<'a>(documents: &'a [Value], kind: &str) -> &'a Value {
    let mut found = documents.iter().filter(|document| document["kind"] == kind);
    found.next().unwrap_or_else(|| panic!("there is no {kind}"))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

#[track_caller]
fn named<'a>(of: &'a Value, name: &str) -> &'a Value {
    let mut found = list(of).iter().filter(|item| item["name"] == name);
    found.next().unwrap_or_else(|| panic!("there is no {name}"))
}

/// One of our own containers, with what all manifests have in common.
#[track_caller]
fn own_container<'a>(pod: &'a Value, containers: &str, name: &str) -> &'a Value {
    assert_eq!(pod["automountServiceAccountToken"], false);
    assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
    let container = named(&pod[containers], name);
    let context = &container["securityContext"];
    assert_eq!(context["runAsUser"], 65532, "the image's user");
    assert_eq!(context["readOnlyRootFilesystem"], true);
    assert_eq!(context["allowPrivilegeEscalation"], false);
    assert_eq!(context["capabilities"], json!({"drop": ["ALL"]}));
    assert!(container["resources"]["limits"]["cpu"].is_null(), "when throttled it beats late");
    assert!(!container["resources"]["limits"]["memory"].is_null());

    // A secret that everybody can read is refused, and it can be read by its group only.
    assert_eq!(pod["securityContext"]["fsGroup"], 65532);
    for volume in list(&pod["volumes"]) {
        let mode = &volume["secret"]["defaultMode"];
        assert!(volume["secret"].is_null() || *mode == 0o440, "{volume}");
    }
    let volumes: HashSet<&str> = names(&pod["volumes"]).collect();
    for container in list(&pod["initContainers"]).iter().chain(list(&pod["containers"])) {
        for mount in names(&container["volumeMounts"]) {
            assert!(volumes.contains(mount), "{} mounts {mount}", container["name"]);
        }
    }
    container
}

/// The agent's own container, with what both of its manifests have in common.
#[track_caller]
fn check_agent(pod: &Value, containers: &str) {
    let agent = own_container(pod, containers, "tenured");
    for probe in ["startupProbe", "livenessProbe"] {
        let health = json!(["/usr/bin/tenure", "status", "--quiet"]);
        assert_eq!(agent[probe]["exec"]["command"], health, "as the image's own check");
        // The command gives up after five seconds, and then says why.
        assert!(agent[probe]["timeoutSeconds"].as_u64() > Some(5));
    }
    for (volume, path) in [("agent", "/run/tenured"), ("state", "/var/lib/tenured")] {
        let mount = named(&agent["volumeMounts"], volume);
        assert_eq!((&mount["mountPath"], &mount["readOnly"]), (&json!(path), &Value::Null));
    }
    assert!(!named(&pod["volumes"], "secret")["secret"].is_null());
    // It is stopped before it is killed.
    assert!(pod["terminationGracePeriodSeconds"].as_u64() >= Some(6));
}

fn names(of: &Value) -> impl Iterator<Item = &str> {
    list(of).iter().filter_map(|item| item["name"].as_str())
}

/// The configuration in the manifest is one that the agent takes.
#[track_caller]
fn check_configuration(documents: &[Value]) {
    let dir = TempDir::new().expect("a temporary directory can be made");
    let (file, secret) = (dir.path().join("tenured.toml"), dir.path().join("password"));
    fs::write(&secret, "a password").expect("the directory is ours");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o440)).expect("it is ours");
    let text = of_kind(documents, "ConfigMap")["data"]["tenured.toml"].as_str().expect("a text");
    let mounted = "/etc/tenured-secret/password";
    assert!(text.contains(mounted), "where the secret is mounted");
    let text = text.replace(mounted, &secret.display().to_string());
    fs::write(&file, text).expect("the directory is ours");
    let checked =
        Command::new(binary("tenured")).arg("check-config").arg("--config").arg(file).output();
    let checked = checked.expect("the agent can be started");
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}

#[test]
fn a_sidecar_starts_before_its_application_and_shares_a_directory() {
    let documents = manifest("sidecar.yaml");
    check_configuration(&documents);
    let pod = &of_kind(&documents, "Deployment")["spec"]["template"]["spec"];
    check_agent(pod, "initContainers");
    assert_eq!(named(&pod["initContainers"], "tenured")["restartPolicy"], "Always");
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    let shared = &named(&pod["volumes"], "agent")["emptyDir"];
    assert_eq!(shared["medium"], "Memory");
    assert!(shared["sizeLimit"].is_string());

    let application = &pod["containers"][0];
    assert_ne!(application["securityContext"]["runAsUser"], 65532);
    let mount = named(&application["volumeMounts"], "agent");
    assert_eq!((&mount["mountPath"], &mount["readOnly"]), (&json!("/run/tenured"), &json!(true)));
    assert!(!names(&application["volumeMounts"]).any(|name| name == "secret"));
}

#[test]
fn a_node_has_one_agent_with_directories_of_its_own() {
    let documents = manifest("agent/daemonset.yaml");
    check_configuration(&documents);
    let pod = &of_kind(&documents, "DaemonSet")["spec"]["template"]["spec"];
    check_agent(pod, "containers");
    assert_eq!(pod["hostPID"], true, "or an agent started again finds no process");
    for (volume, path) in [("agent", "/run/tenured"), ("state", "/var/lib/tenured")] {
        let directory = &named(&pod["volumes"], volume)["hostPath"];
        assert_eq!(directory, &json!({"path": path, "type": "DirectoryOrCreate"}));
    }
    let root = named(&pod["initContainers"], "directories");
    let expected = json!({"drop": ["ALL"], "add": ["CHOWN", "FOWNER"]});
    assert_eq!(root["securityContext"]["capabilities"], expected);
    let namespace = of_kind(&documents, "Namespace");
    let level = &namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"];
    assert_eq!(level, "privileged", "what hostPath and hostPID take");
}

#[test]
fn gateways_are_several_and_take_their_configuration() {
    let documents = manifest("gateway/gateway.yaml");
    let keys = "/etc/tenured-gateway-keys/keys.toml";
    let text = check_gateways_configuration(
        &documents,
        &[("/etc/tenured-gateway-secret/password", "a password"), (keys, "")],
        &[("tls", "DNS:tenured-gateway.tenure-gateway.svc")],
        &[],
    );
    let deployment = &of_kind(&documents, "Deployment")["spec"];
    let replicas = deployment["replicas"].as_u64();
    assert!(replicas >= Some(2));
    let pod = &deployment["template"]["spec"];
    let gateway = own_container(pod, "containers", "tenured-gateway");
    assert_eq!(pod["enableServiceLinks"], false, "their variables look like settings");
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    for secret in ["upstream", "keys", "tls"] {
        assert!(named(&pod["volumes"], secret)["secret"]["secretName"].is_string(), "{secret}");
        assert_eq!(named(&gateway["volumeMounts"], secret)["readOnly"], true, "{secret}");
    }
    for (volume, path) in
        [("runtime", "/run/tenured-gateway"), ("state", "/var/lib/tenured-gateway")]
    {
        assert_eq!(named(&gateway["volumeMounts"], volume)["mountPath"], path);
        assert!(named(&pod["volumes"], volume)["emptyDir"]["sizeLimit"].is_string());
    }
    check_service_and_stop(&documents, deployment, gateway);
    let port = &named(&gateway["ports"], "https")["containerPort"];
    assert!(text.contains(&format!("listen = \"[::]:{port}\"")), "it listens there");
}

/// The configuration in a manifest, which the gateway takes with these files, certificates and variables.
#[track_caller]
fn check_gateways_configuration(
    documents: &[Value],
    files: &[(&str, &str)],
    certificates: &[(&str, &str)],
    variables: &[(&str, &str)],
) -> String {
    let text = of_kind(documents, "ConfigMap")["data"]["gateway.toml"].as_str().expect("a text");
    let dir = TempDir::new().expect("a temporary directory can be made");
    let authority = Authority::new();
    let mut put = text.to_owned();
    let mut replace = |mounted: &str, path: &Path| {
        assert!(put.contains(mounted), "where {mounted} is mounted");
        put = put.replace(mounted, &path.display().to_string());
    };
    for (name, alternative) in certificates {
        authority.issue(name, alternative);
        for (mounted, made) in [("tls.crt", "pem"), ("tls.key", "key")] {
            let mounted = format!("/etc/tenured-gateway-{name}/{mounted}");
            replace(&mounted, &authority.path(&format!("{name}.{made}")));
        }
    }
    if certificates.len() > 1 {
        replace("/etc/tenured-gateway-nodes/ca.crt", &authority.path("ca.pem"));
    }
    for (mounted, contents) in files {
        let path = dir.path().join(mounted.rsplit('/').next().expect("a name"));
        fs::write(&path, contents).expect("the directory is ours");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o440)).expect("it is ours");
        replace(mounted, &path);
    }
    let file = dir.path().join("gateway.toml");
    fs::write(&file, &put).expect("the directory is ours");
    let mut check = Command::new(binary("tenured-gateway"));
    check.args(["check-config", "--config"]).arg(file).envs(variables.iter().copied());
    let checked = check.output().expect("the gateway can be started");
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    text.to_owned()
}

#[test]
fn nodes_of_a_cluster_find_each_other_and_keep_their_folders() {
    let documents = manifest("cluster/cluster.yaml");
    let domain = "tenured-gateway-nodes.tenure-gateway.svc.cluster.local";
    let set = &of_kind(&documents, "StatefulSet")["spec"];
    let mut pod = set["template"]["spec"].clone();
    let claimed = &set["volumeClaimTemplates"][0]["metadata"]["name"];
    pod["volumes"].as_array_mut().unwrap().push(json!({"name": claimed}));
    let gateway = own_container(&pod, "containers", "tenured-gateway");
    let address =
        named(&gateway["env"], "TENURED_GATEWAY_CLUSTER_ADDRESS")["value"].as_str().unwrap();
    assert_eq!(address, format!("$(POD).{domain}:8741"));
    let of_first = address.replace("$(POD)", "tenured-gateway-0");
    let text = check_gateways_configuration(
        &documents,
        &[("/etc/tenured-gateway-keys/keys.toml", "")],
        &[("tls", "DNS:tenured-gateway.tenure-gateway.svc"), ("nodes", &format!("DNS:*.{domain}"))],
        &[("TENURED_GATEWAY_CLUSTER_ADDRESS", &of_first)],
    );
    for node in 0..set["replicas"].as_u64().unwrap() {
        assert!(text.contains(&format!("tenured-gateway-{node}.{domain}:8741")), "{node}");
    }
    // They have names before they serve, and start without waiting for each other.
    let names = documents.iter().find(|it| it["metadata"]["name"] == set["serviceName"]).unwrap();
    assert_eq!(names["spec"]["publishNotReadyAddresses"], true);
    assert_eq!(names["spec"]["clusterIP"], "None");
    assert_eq!(set["podManagementPolicy"], "Parallel");
    // An update goes on to the next pod once this pod has been ready for a while.
    check_probes(gateway);
    assert!(set["minReadySeconds"].as_u64() >= Some(10));
    // A node's folder outlives its pod, and a drained machine takes one node at most.
    let kept = named(&gateway["volumeMounts"], "state");
    assert_eq!(kept["mountPath"], "/var/lib/tenured-gateway");
    assert_eq!(of_kind(&documents, "PodDisruptionBudget")["spec"]["maxUnavailable"], 1);
}

/// A gateway that is not ready, as a node that has not joined its cluster, is not started again for that.
#[track_caller]
fn check_probes(gateway: &Value) {
    for (probe, path) in [("readinessProbe", "/readyz"), ("livenessProbe", "/healthz")] {
        let asked = json!({"path": path, "port": "https", "scheme": "HTTPS"});
        assert_eq!(gateway[probe]["httpGet"], asked, "{probe}");
    }
}

/// The ports that the policies open, each with true if any client may connect.
fn let_in(documents: &[Value]) -> Vec<(u64, bool)> {
    let policy = &of_kind(documents, "NetworkPolicy")["spec"];
    let labels = &policy["podSelector"]["matchLabels"];
    let mut pods = documents.iter().filter_map(|it| it["spec"]["template"]["metadata"].as_object());
    assert!(pods.all(|pod| pod["labels"] == *labels), "it is of all pods: {labels}");
    assert_eq!(policy["policyTypes"], json!(["Ingress"]));
    let rules = list(&policy["ingress"]).iter().flat_map(|rule| {
        let is_for_all = rule["from"].is_null();
        list(&rule["ports"]).iter().map(move |it| (it["port"].as_u64().unwrap(), is_for_all))
    });
    rules.collect()
}

#[test]
fn policies_let_in_what_is_listened_at_and_no_more() {
    for (file, expected) in [
        ("gateway/gateway.yaml", &[(8740, true)][..]),
        ("cluster/cluster.yaml", &[(8740, true), (8741, false)]),
        ("agent/daemonset.yaml", &[(9464, false)]),
    ] {
        let documents = manifest(file);
        assert_eq!(let_in(&documents), expected, "{file}");
        let workloads = documents.iter().filter(|it| !it["spec"]["template"].is_null());
        for workload in workloads {
            let ports = &workload["spec"]["template"]["spec"]["containers"][0]["ports"];
            let ports: Vec<_> =
                list(ports).iter().map(|it| it["containerPort"].as_u64().unwrap()).collect();
            assert_eq!(ports, expected.iter().map(|(port, _)| *port).collect::<Vec<_>>(), "{file}");
        }
    }
}

/// Agents find a gateway that serves, also while they are replaced one by one.
#[track_caller]
fn check_service_and_stop(documents: &[Value], deployment: &Value, gateway: &Value) {
    check_probes(gateway);
    let labels = &deployment["template"]["metadata"]["labels"];
    let [service, budget] =
        ["Service", "PodDisruptionBudget"].map(|kind| &of_kind(documents, kind)["spec"]);
    assert_eq!(&deployment["selector"]["matchLabels"], labels);
    assert_eq!(&service["selector"], labels);
    assert_eq!(&budget["selector"]["matchLabels"], labels);
    let port = &named(&gateway["ports"], "https")["containerPort"];
    assert_eq!(&service["ports"][0]["targetPort"], port);

    // One stays, each serves until the service has forgotten it, and each stops before it is killed.
    assert_eq!(budget["maxUnavailable"], 1, "or no node with the only gateway can be drained");
    assert!(deployment["replicas"].as_u64() >= Some(2));
    assert_eq!(deployment["strategy"]["rollingUpdate"]["maxUnavailable"], 0);
    let forgotten = gateway["lifecycle"]["preStop"]["sleep"]["seconds"].as_u64();
    let [stop_deadline, answers_of_redis] = [5, 5];
    let stopped = forgotten.expect("it waits") + stop_deadline + answers_of_redis;
    let killed = deployment["template"]["spec"]["terminationGracePeriodSeconds"].as_u64();
    assert!(killed >= Some(stopped));
}

#[test]
fn a_job_runs_once_and_has_the_sidecar_of_the_application() {
    let documents = manifest("cronjob.yaml");
    let spec = &of_kind(&documents, "CronJob")["spec"]["jobTemplate"]["spec"];
    assert_eq!(spec["backoffLimit"], 0, "an interrupted job is not begun again");
    let pod = &spec["template"]["spec"];
    check_agent(pod, "initContainers");
    let application = manifest("sidecar.yaml");
    let application = &of_kind(&application, "Deployment")["spec"]["template"]["spec"];
    assert_eq!(pod["initContainers"], application["initContainers"]);
    assert_eq!(pod["volumes"], application["volumes"]);
    let mounts = [pod, application].map(|it| &it["containers"][0]["volumeMounts"]);
    assert_eq!(mounts[0], mounts[1]);
}

#[test]
fn the_schemas_are_heeded() {
    // Native sidecars were not known then.
    let path = packaged("kubernetes/sidecar.yaml").display().to_string();
    let refused = std::panic::catch_unwind(|| Python::run("manifests.py", &["1.27", &path]));
    let refused = refused.expect_err("an unknown field");
    let text = refused.downcast_ref::<String>().expect("a text");
    assert!(text.contains("restartPolicy"), "{text}");
}
