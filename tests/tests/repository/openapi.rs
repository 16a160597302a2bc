//! Requests that a program makes up from `openapi.json`: what the document allows is taken, what it does not
//! allow is refused, and every answer is one that it names.

use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use tenure_tests::harness::{Agent, Python};

/// Requests per endpoint.
const EXAMPLES: &str = "50";

/// Leads TCP connections to the agent's socket, until the test ends.
fn proxy(socket: PathBuf) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback interface");
    let port = listener.local_addr().expect("it is bound").port();
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(agent) = UnixStream::connect(&socket) else { continue };
            std::thread::spawn(move || join(client, agent));
        }
    });
    port
}

fn join(client: TcpStream, agent: UnixStream) {
    let (Ok(mut from), Ok(mut to)) = (client.try_clone(), agent.try_clone()) else { return };
    // Either side may leave when it likes.
    let sends = std::thread::spawn(move || {
        let _ = io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    });
    let _ = io::copy(&mut &agent, &mut &client);
    let _ = client.shutdown(Shutdown::Both);
    let _ = sends.join();
}

#[test]
fn the_agent_is_as_its_document_says() {
    let agent = Agent::start();
    let document = format!("http://127.0.0.1:{}/openapi.json", proxy(agent.socket()));
    let mut schemathesis = Python::module("schemathesis.cli");
    schemathesis.args(["run", &document, "--no-color", "--generation-deterministic"]);
    schemathesis.args(["--max-examples", EXAMPLES]);
    let hooks = concat!(env!("CARGO_MANIFEST_DIR"), "/python");
    schemathesis.env("PYTHONPATH", hooks).env("SCHEMATHESIS_HOOKS", "normal_form");
    // Event streams do not end.
    schemathesis.args(["--exclude-path", "/v1/events", "--exclude-path", "/v1/observe"]);
    // Its parameters depend on each other, which the document cannot say.
    schemathesis.args(["--exclude-path", "/v1/can"]);
    let output = schemathesis.current_dir(agent.dir()).output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains(" generated, "), "nothing was asked: {said}");
}

#[test]
fn the_examples_of_the_documents_are_as_their_schemas_say() {
    for (daemon, least) in [("daemon", 20), ("gateway", 5)] {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../agent");
        let told = Python::run("examples.py", &[&format!("{root}/{daemon}/openapi.json")]);
        assert_eq!(told["wrong"], serde_json::json!([]), "{daemon}");
        assert!(told["count"].as_u64().is_some_and(|count| count > least), "{daemon}: {told}");
    }
}
