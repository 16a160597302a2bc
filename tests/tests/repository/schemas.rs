//! The schemas in `docs/schemas`: made of the agent's `openapi.json`, and true of what each command prints
//! with `--json`.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::{Map, Value, json};
use tenure_tests::harness::{Agent, Client, Program, Python, binary, run_to_end};

/// The output of a command.
enum Printed {
    /// The part of this name in `openapi.json`, and what the command adds to it.
    One(&'static str, &'static [&'static str]),
    /// A list of those.
    Many(&'static str),
    /// One of each under a name of its own, and what the command adds.
    Parts(&'static [(&'static str, &'static str)], &'static [&'static str]),
}
use Printed::{Many, One, Parts};

const COMMANDS: [(&str, Printed); 15] = [
    ("agents", One("Agents", &[])),
    ("can", One("Permission", &[])),
    ("doctor", One("Diagnosis", &[])),
    ("error", Parts(&[], &["type", "code", "detail", "exit_status"])),
    ("events", One("Events", &["session"])),
    ("history", One("History", &[])),
    ("limit", One("Standing", &[])),
    ("log", One("LogFilter", &[])),
    ("ls", Many("Standing")),
    ("observe", One("Standing", &[])),
    ("revoke", One("Revoked", &[])),
    ("routes", One("Routes", &[])),
    ("standing", One("Standing", &[])),
    ("status", One("Status", &[])),
    ("why", Parts(&[("standing", "Standing"), ("history", "History")], &["here"])),
];

fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/schemas"))
}

fn path(command: &str) -> PathBuf {
    folder().join(format!("{command}.json"))
}

/// The schema of a command, with everything that it refers to inside of it.
fn schema(components: &Value, command: &str, printed: &Printed) -> String {
    let mut inside = BTreeMap::new();
    let mut component = |name: &str| inline(&components[name], components, &mut inside);
    let mut schema = match printed {
        One(name, adds) => with_texts(json!({"allOf": [component(name)]}), adds),
        Many(name) => json!({"type": "array", "items": component(name)}),
        Parts(parts, adds) => {
            let fields = parts.iter().map(|(field, name)| ((*field).to_owned(), component(name)));
            let fields: Map<_, _> = fields.collect();
            let required: Vec<_> = parts.iter().map(|(field, _)| *field).collect();
            with_texts(json!({"properties": fields, "required": required}), adds)
        }
    };
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = match command {
        "error" => json!("an error of any command with --json, on stderr"),
        command => json!(format!("tenure {command} --json")),
    };
    if !inside.is_empty() {
        schema["$defs"] = json!(inside);
    }
    format!("{schema:#}\n")
}

/// The schema of an object with more fields.
fn with_texts(mut schema: Value, names: &[&str]) -> Value {
    schema["type"] = json!("object");
    for name in names {
        schema["properties"][name] = match *name {
            "exit_status" => json!({"type": "integer", "minimum": 1, "maximum": 255}),
            _ => json!({"type": "string"}),
        };
        if schema["required"].is_null() {
            schema["required"] = json!([]);
        }
        schema["required"].as_array_mut().expect("a list").push(json!(name));
    }
    schema
}

/// The part of a schema with its references led to `$defs`, where what they name is put.
fn inline(part: &Value, all: &Value, inside: &mut BTreeMap<String, Value>) -> Value {
    match part {
        Value::Object(fields) => {
            let field = |(key, value): (&String, &Value)| {
                let reference = value.as_str().filter(|_| key == "$ref");
                let name = reference.and_then(|it| it.strip_prefix("#/components/schemas/"));
                let Some(name) = name else { return (key.clone(), inline(value, all, inside)) };
                if !inside.contains_key(name) {
                    // Something there, so that one which refers to itself has an end.
                    inside.insert(name.to_owned(), Value::Null);
                    let named = inline(&all[name], all, inside);
                    inside.insert(name.to_owned(), named);
                }
                (key.clone(), format!("#/$defs/{name}").into())
            };
            fields.iter().map(field).collect::<Map<_, _>>().into()
        }
        Value::Array(parts) => parts.iter().map(|it| inline(it, all, inside)).collect(),
        other => other.clone(),
    }
}

#[test]
fn the_committed_schemas_are_of_the_agents_document() {
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../agent/daemon/openapi.json");
    let document = fs::read_to_string(document).expect("it is committed");
    let document: Value = serde_json::from_str(&document).expect("JSON");
    for (command, printed) in &COMMANDS {
        let (path, schema) =
            (path(command), schema(&document["components"]["schemas"], command, printed));
        if std::env::var_os("UPDATE_SCHEMAS").is_some() {
            fs::create_dir_all(folder()).expect("the tree is ours");
            fs::write(&path, &schema).expect("the tree is ours");
        }
        assert!(
            fs::read_to_string(&path).is_ok_and(|committed| committed == schema),
            "{} is not what openapi.json says: run `UPDATE_SCHEMAS=1 cargo test -p tenure-tests --test \
             repository schemas`, and commit it",
            path.display()
        );
    }
}

fn start(agent: &Agent, line: &str) -> Program {
    let mut command = Command::new(binary("tenure"));
    command.env("TENURE_SOCKET", agent.socket()).args(line.split(' '));
    Program::start(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()))
}

/// What a command prints to its end; an error is on stderr.
#[track_caller]
fn said(agent: &Agent, line: &str) -> String {
    let (_, out, err) = run_to_end(&mut start(agent, line));
    if out.is_empty() { err } else { out }
}

/// The first line of a command that goes on for ever.
#[track_caller]
fn first_line(agent: &Agent, line: &str) -> String {
    let mut program = start(agent, line);
    let out = program.pipes().stdout.take().expect("standard output is piped");
    BufReader::new(out).lines().next().expect("a line").expect("UTF-8")
}

#[track_caller]
fn errors(command: &str, document: &str) -> Vec<String> {
    let path = path(command).display().to_string();
    let errors = Python::run("schemas.py", &[&path, document]);
    serde_json::from_value(errors).expect("a list of texts")
}

#[test]
fn what_commands_print_is_as_their_schemas_say() {
    let agent = Agent::start();
    let mut http = agent.http();
    let session = http.register(&json!({"name": "mail", "keepalive_ms": 600_000})).session;
    http.acquire(session, "lease", "web-7", &json!({"attributes": {"address": "10.0.0.7:80"}}));
    http.acquire(session, "semaphore", "gpu", &json!({"limit": 2}));
    http.acquire(session, "leader", "role", &json!({}));
    let other = http.register(&json!({"keepalive_ms": 600_000})).session;
    http.queue(other, "leader", "role", &json!({}));
    let check = |command: &str, document: &str| {
        assert_eq!(errors(command, document), [""; 0], "{command}: {document}");
        assert_ne!(errors(command, "{}"), [""; 0], "{command}: it allows everything");
        assert_ne!(errors(command, "[{}]"), [""; 0], "{command}: it allows everything");
    };
    for line in [
        "agents --json",
        "status --json",
        "status leader/* --json",
        "standing leader role --json",
        "standing semaphore gpu --json",
        "standing leader nobody --json",
        "why leader role --json",
        "why semaphore nothing --json",
        "history leader role --json",
        "ls --json",
        "limit gpu --json",
        "routes --json",
        "doctor --json",
        "log --json",
        "can leader role --json",
    ] {
        check(line.split(' ').next().expect("a word"), &said(&agent, line));
    }
    check("observe", &first_line(&agent, "observe leader role --json"));
    check("events", &first_line(&agent, &format!("events --session {session} --json")));
    check("revoke", &said(&agent, "revoke leader role --json"));
    check("error", &said(&agent, "standing leader --json"));
    check("error", &said(&agent, "events --json --session 0192f6c8-4c1e-7d0a-9b1f-0a8f4f1f7c11"));
    check("error", &said(&agent, "--socket /nowhere/api.sock status --json"));
}
