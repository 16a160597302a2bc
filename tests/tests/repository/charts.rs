//! The kustomizations and the Helm charts: what they make is valid, and is what the manifests say.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Map, Value, json};
use tempfile::TempDir;
use tenure_tests::harness::Python;

/// The oldest and the newest version with schemas that the manifests are for.
const KUBERNETES: [&str; 2] = ["1.29", "1.37"];

fn packaged(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging").join(path)
}

#[track_caller]
fn output(program: &mut Command) -> String {
    let output = program.output().unwrap_or_else(|error| {
        panic!("{program:?}: {error}; tests/run installs kubernetes-client and golang-go")
    });
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program:?}: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

/// The documents of a text, those of Kubernetes itself checked against its schemas.
#[track_caller]
fn documents(text: &str) -> Vec<Value> {
    let dir = TempDir::new().expect("a folder can be made");
    let path = dir.path().join("all.yaml");
    fs::write(&path, text).expect("it is ours");
    let path = path.display().to_string();
    let mut read = KUBERNETES.map(|version| Python::run("manifests.py", &[version, &path]));
    read[0].take().as_array().expect("documents").clone()
}

#[track_caller]
fn kustomized(folder: &str) -> Vec<Value> {
    let folder = packaged("kubernetes").join(folder);
    documents(&output(Command::new("kubectl").arg("kustomize").arg(folder)))
}

/// A chart as Helm renders it: tests/helm/render.go has Helm's own engine.
#[track_caller]
fn rendered(chart: &str, namespace: &str, values: &Value) -> Vec<Value> {
    let dir = TempDir::new().expect("a folder can be made");
    let (render, file) = (dir.path().join("render"), dir.path().join("values.yaml"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("helm/render.go");
    output(
        Command::new("go")
            .args(["build", "-o"])
            .args([&render, &source])
            .envs([("GO111MODULE", "off"), ("GOPATH", "/usr/share/gocode")])
            .env("GOCACHE", Path::new(env!("CARGO_TARGET_TMPDIR")).join("go")),
    );
    // JSON is YAML.
    fs::write(&file, values.to_string()).expect("it is ours");
    let chart = packaged("helm").join(chart);
    documents(&output(Command::new(render).arg(chart).arg(namespace).arg(file)))
}

/// The agent's chart.
#[track_caller]
fn agents(values: &Value) -> Vec<Value> {
    rendered("tenured", "tenure-system", values)
}

/// The chart of gateways.
#[track_caller]
fn gateways(values: &Value) -> Vec<Value> {
    rendered("tenured-gateway", "tenure-gateway", values)
}

#[track_caller]
fn of_kind<'a>(documents: &'a [Value], kind: &str) -> &'a Value {
    let mut found = documents.iter().filter(|document| document["kind"] == kind);
    found.next().unwrap_or_else(|| panic!("there is no {kind}"))
}

/// The configuration, without comments and empty lines, and each value on one line.
fn configuration(documents: &[Value]) -> String {
    let data = &of_kind(documents, "ConfigMap")["data"];
    let text = data.as_object().and_then(|data| data.values().next()?.as_str()).expect("a text");
    let text = text.replace("\\\n", "").replace("\"\"\"", "\"");
    let lines = text.lines().map(str::trim).filter(|it| !it.is_empty() && !it.starts_with('#'));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn kustomizations_make_what_the_manifests_say() {
    for (folder, file) in [
        ("agent", "agent/daemonset.yaml"),
        ("gateway", "gateway/gateway.yaml"),
        ("cluster", "cluster/cluster.yaml"),
    ] {
        let manifest = fs::read_to_string(packaged("kubernetes").join(file)).expect("it is there");
        let (mut made, mut said) = (kustomized(folder), documents(&manifest));
        // It sorts them.
        for documents in [&mut made, &mut said] {
            sort(documents);
        }
        assert_eq!(made, said, "{folder}");
    }
    let monitored = kustomized("monitoring");
    check_scrape(&monitored);
}

fn sort(documents: &mut [Value]) {
    let name = |document: &Value| format!("{} {}", document["kind"], document["metadata"]["name"]);
    documents.sort_by_key(name);
}

/// Prometheus finds the agent's metrics.
#[track_caller]
fn check_scrape(documents: &[Value]) {
    let monitor = &of_kind(documents, "PodMonitor")["spec"];
    let pod = &of_kind(documents, "DaemonSet")["spec"]["template"];
    let label = monitor["jobLabel"].as_str().expect("a label");
    assert_eq!(pod["metadata"]["labels"][label], "tenured", "the job of the alerts");
    assert_eq!(monitor["selector"]["matchLabels"], pod["metadata"]["labels"]);
    let port = &pod["spec"]["containers"][0]["ports"][0];
    assert_eq!(monitor["podMetricsEndpoints"][0]["port"], port["name"]);
    let listen = format!("metrics_listen = \"0.0.0.0:{}\"", port["containerPort"]);
    assert!(configuration(documents).contains(&listen), "{listen}");
}

#[test]
fn the_chart_makes_what_the_manifest_says() {
    let text =
        fs::read_to_string(packaged("kubernetes/agent/daemonset.yaml")).expect("it is there");
    let said = documents(&text);
    let nightly = json!({"uid": 10001, "kinds": ["leader"], "names": ["nightly"]});
    let mut made = agents(&json!({"allow": [nightly]}));
    take_annotations(&mut made);
    assert_eq!(of_kind(&made, "DaemonSet"), of_kind(&said, "DaemonSet"));
    assert_eq!(of_kind(&made, "NetworkPolicy"), of_kind(&said, "NetworkPolicy"));
    // It sorts the keys of a rule.
    let [made, said] = [made, said].map(|documents| {
        configuration(&documents).lines().map(str::to_owned).collect::<BTreeSet<String>>()
    });
    assert_eq!(made, said);
}

/// The pod has an annotation that no manifest has.
#[track_caller]
fn take_annotations(made: &mut [Value]) {
    let annotations = made
        .iter_mut()
        .filter_map(|document| document.pointer_mut("/spec/template/metadata")?.as_object_mut())
        .filter_map(|metadata: &mut Map<String, Value>| metadata.remove("annotations"));
    assert_eq!(annotations.count(), 1, "a changed configuration is another pod");
}

#[test]
fn the_chart_of_gateways_makes_what_their_manifests_say() {
    for (file, values) in [
        ("gateway/gateway.yaml", json!({})),
        ("cluster/cluster.yaml", json!({"upstream": "cluster:"})),
    ] {
        let manifest = fs::read_to_string(packaged("kubernetes").join(file)).expect("it is there");
        let (mut made, mut said) = (gateways(&values), documents(&manifest));
        take_annotations(&mut made);
        assert_eq!(configuration(&made), configuration(&said), "{file}");
        for documents in [&mut made, &mut said] {
            documents.retain(|document| document["kind"] != "ConfigMap");
            sort(documents);
        }
        assert_eq!(made, said, "{file}");
    }
}

#[test]
fn the_chart_of_gateways_takes_its_values() {
    let made = gateways(&json!({
        "upstream": "cluster:",
        "replicas": 5,
        "tls": {"client_ca_file": "/etc/clients/ca.crt"},
        "configuration": "log = \"debug\"\n[proxies]\nwait = \"5s\"",
        "cluster": {"storageClass": "fast", "accessMode": "ReadWriteOnce", "storage": "8Gi", "domain": "k8s.example"},
        "networkPolicy": {"from": [{"namespaceSelector": {}}]},
        "metrics": {"serviceMonitor": true, "prometheusRule": true},
    }));
    let text = configuration(&made);
    assert!(text.contains("\nlog = \"debug\"\n[proxies]\nwait = \"5s\"\n[tls]\n"), "{text}");
    assert!(text.contains("\nclient_ca_file = \"/etc/clients/ca.crt\"\n[cluster]\n"), "{text}");
    assert!(text.contains(
        ",tenured-gateway-4.tenured-gateway-nodes.tenure-gateway.svc.k8s.example:8741\""
    ));
    let set = &of_kind(&made, "StatefulSet")["spec"];
    assert_eq!(set["replicas"], 5);
    let claim = &set["volumeClaimTemplates"][0]["spec"];
    assert_eq!(claim["storageClassName"], "fast");
    assert_eq!(claim["accessModes"], json!(["ReadWriteOnce"]));
    assert_eq!(claim["resources"]["requests"]["storage"], "8Gi");
    let policy = &of_kind(&made, "NetworkPolicy")["spec"]["ingress"][0];
    assert_eq!(policy["from"], json!([{"namespaceSelector": {}}]));
    let rules = &of_kind(&made, "PrometheusRule")["spec"]["groups"][0];
    assert!(rules["rules"].as_array().is_some_and(|rules| rules.len() > 5), "{rules}");
    let manifest = packaged("kubernetes/monitoring/servicemonitor.yaml");
    let said = documents(&fs::read_to_string(manifest).expect("it is there"));
    let monitor = of_kind(&made, "ServiceMonitor");
    assert_eq!(monitor, of_kind(&said, "ServiceMonitor"));

    // Prometheus finds the gateways, and not once more by the names of nodes.
    let services = made.iter().filter(|document| document["kind"] == "Service");
    let found = services
        .filter(|it| it["metadata"]["labels"] == monitor["spec"]["selector"]["matchLabels"]);
    let found: Vec<_> = found.collect();
    assert_eq!(found.len(), 1);
    let endpoint = &monitor["spec"]["endpoints"][0];
    assert_eq!(endpoint["port"], found[0]["spec"]["ports"][0]["name"]);
    let label = monitor["spec"]["jobLabel"].as_str().expect("a label");
    assert_eq!(found[0]["metadata"]["labels"][label], "tenured-gateway", "the job of the alerts");

    let made = gateways(&json!({"upstreamSecret": "", "networkPolicy": {"enabled": false}}));
    assert!(!configuration(&made).contains("upstream_secret_file"));
    assert!(made.iter().all(|document| document["kind"] != "NetworkPolicy"));
}

#[test]
fn the_chart_takes_its_values() {
    let made = agents(&json!({
        "image": {"tag": "2", "pullPolicy": "Always"},
        "upstream": "https://gateway.example",
        "upstreamSecret": "",
        "hostPID": false,
        "priorityClassName": "",
        "tolerations": [],
        "nodeSelector": {"disk": "fast"},
        "pullSecrets": [{"name": "registry"}],
        "configuration": "log = \"debug\"\n[leader]\nttl = \"40s\"\n",
        "metrics": {"port": 9000, "podMonitor": true, "prometheusRule": true, "dashboard": true},
    }));
    let pod = &of_kind(&made, "DaemonSet")["spec"]["template"]["spec"];
    assert_eq!(pod["containers"][0]["image"], "registry.example/tenured:2");
    assert_eq!(pod["containers"][0]["imagePullPolicy"], "Always");
    assert_eq!(pod["nodeSelector"], json!({"disk": "fast"}));
    assert_eq!(pod["imagePullSecrets"], json!([{"name": "registry"}]));
    for absent in ["hostPID", "priorityClassName", "tolerations", "affinity"] {
        assert!(pod[absent].is_null(), "{absent}");
    }
    assert!(!pod.to_string().contains("tenured-secret"), "there is no secret");
    let expected = "upstream = \"https://gateway.example\"\nmetrics_listen = \"0.0.0.0:9000\"\n\
                    metrics_listen_public = true\nlog = \"debug\"\n[leader]\nttl = \"40s\"";
    assert_eq!(configuration(&made), expected);
    check_scrape(&made);
    let rules = &of_kind(&made, "PrometheusRule")["spec"]["groups"][0];
    assert!(rules["rules"].as_array().is_some_and(|rules| rules.len() > 5), "{rules}");
    let maps = made.iter().filter(|document| document["kind"] == "ConfigMap");
    let dashboard = maps.filter_map(|map| map["data"]["tenured.json"].as_str()).next();
    let dashboard: Value = serde_json::from_str(dashboard.expect("a dashboard")).expect("JSON");
    assert!(dashboard["panels"].is_array());
}

#[test]
fn the_charts_schemas_fit_their_values_and_refuse_nonsense() {
    for (chart, change, is_valid) in [
        ("tenured", json!({}), true),
        ("tenured", json!({"upstream": "localhost:6379"}), false),
        ("tenured", json!({"upstreem": "redis://h"}), false),
        ("tenured", json!({"metrics": {"port": 0}}), false),
        ("tenured", json!({"allow": ["nightly"]}), false),
        ("tenured-gateway", json!({}), true),
        ("tenured-gateway", json!({"replicas": 4}), true),
        ("tenured-gateway", json!({"upstream": "cluster:", "replicas": 5}), true),
        ("tenured-gateway", json!({"upstream": "cluster:", "replicas": 4}), false),
        ("tenured-gateway", json!({"upstream": "cluster:", "replicas": 1}), false),
        ("tenured-gateway", json!({"upstream": "https://gateway.example"}), false),
        ("tenured-gateway", json!({"cluster": {"accessMode": "ReadWriteMany"}}), false),
        ("tenured-gateway", json!({"keysSecret": ""}), false),
    ] {
        let folder = packaged("helm").join(chart);
        let [schema, values] = ["values.schema.json", "values.yaml"]
            .map(|name| folder.join(name).display().to_string());
        let verdict = Python::run("chart_values.py", &[&schema, &values, &change.to_string()]);
        assert_eq!(verdict, json!(is_valid), "{chart}: {change}");
    }
}
