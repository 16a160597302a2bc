//! Requests that a program makes up from documents of the gateway's faces over HTTP.

use std::fs;

use tempfile::TempDir;
use tenure_tests::faces::document;
use tenure_tests::harness::{Gateway, Python};

/// Requests for each call.
const EXAMPLES: &str = "60";

#[test]
fn whatever_is_made_up_the_gateway_has_an_answer_that_is_no_fault_of_its_own() {
    let gateway = Gateway::start("embedded:");
    let folder = TempDir::new().expect("a temporary directory");
    let path = folder.path().join("gateway.json");
    let document = document::gateway();
    let calls = document["paths"].as_object().map_or(0, serde_json::Map::len);
    assert!(calls > 15, "{document:#}");
    fs::write(&path, document.to_string()).expect("the directory is ours");

    let mut schemathesis = Python::module("schemathesis.cli");
    schemathesis
        .arg("run")
        .arg(&path)
        .args(["--url", &format!("http://127.0.0.1:{}", gateway.port())]);
    schemathesis.args(["--no-color", "--generation-deterministic", "--max-examples", EXAMPLES]);
    schemathesis.args(["--mode", "all", "--checks", "not_a_server_error"]);
    let output = schemathesis.current_dir(folder.path()).output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains(" generated, "), "nothing was asked: {said}");

    let log = gateway.log();
    assert!(!log.contains("panicked"), "{log}");
    let is_obeyed = |letter: char| letter.is_control() && letter != '\n';
    assert!(!log.contains(is_obeyed), "{log:?}");
}

/// Every answer has a status, a content type and a shape that `openapi.json` names. A made-up session gets 410 with any
/// request, so that accepted and refused requests are not compared.
#[test]
fn the_gateway_is_as_its_document_says() {
    let gateway = Gateway::start("embedded:");
    let folder = TempDir::new().expect("a temporary directory");
    let document = format!("http://127.0.0.1:{}/openapi.json", gateway.port());
    let mut schemathesis = Python::module("schemathesis.cli");
    schemathesis.args(["run", &document, "--no-color", "--generation-deterministic"]);
    schemathesis.args(["--max-examples", EXAMPLES, "--checks"]);
    schemathesis.arg(
        "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance",
    );
    // An event stream does not end.
    schemathesis.args(["--exclude-path", "/api/v1/controller/events"]);
    let output = schemathesis.current_dir(folder.path()).output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains(" generated, "), "nothing was asked: {said}");
}
