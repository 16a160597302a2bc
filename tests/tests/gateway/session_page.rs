//! The examples of docs/session-plane.md, typed in their order into one shell, beside a gateway over a Redis.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Deserializer, Value};
use tempfile::TempDir;
use tenure_tests::harness::{Gateway, Key, RedisServer};
use uuid::Uuid;

/// Printed after each block, whose output ends there.
const END: char = '\u{1e}';
/// The gateway of the page.
const GATEWAY: &str = "http://127.0.0.1:8740";

/// A block of commands, and the answer that the page shows below it.
struct Example<'a> {
    typed: &'a str,
    shown: Option<Vec<Value>>,
}

fn examples(page: &str) -> Vec<Example<'_>> {
    let mut examples: Vec<Example<'_>> = Vec::new();
    for block in page.split("\n```").skip(1).step_by(2) {
        let (language, text) = block.split_once('\n').expect("a block has lines");
        match examples.last_mut() {
            _ if language == "sh" => examples.push(Example { typed: text, shown: None }),
            Some(last) => last.shown = Some(values(text)),
            None => panic!("an answer without commands: {text}"),
        }
    }
    examples
}

/// The values of an answer, or of an event stream: its names and data. Comments of a stream mean nothing.
fn values(text: &str) -> Vec<Value> {
    let json = |text: &str| -> Vec<Value> {
        let values = Deserializer::from_str(text).into_iter();
        values.map(|value| value.unwrap_or_else(|error| panic!("{text}: {error}"))).collect()
    };
    if !text.contains("event: ") {
        return json(text);
    }
    let parts = text.lines().filter_map(|line| match line.split_once(": ")? {
        ("event", name) => Some(vec![name.into()]),
        ("data", data) => Some(json(data)),
        _ => None,
    });
    parts.flatten().collect()
}

/// True if the answer fits the one on the page. Each id of the page stands for one id; tokens and times differ.
fn same(shown: &Value, told: &Value, field: &str, ids: &mut HashMap<Uuid, Uuid>) -> bool {
    match (shown, told) {
        (Value::Object(shown), Value::Object(told)) => {
            let mut fields = shown.iter();
            shown.len() == told.len()
                && fields.all(|(field, shown)| {
                    told.get(field).is_some_and(|told| same(shown, told, field, ids))
                })
        }
        (Value::Array(shown), Value::Array(told)) => {
            let mut pairs = shown.iter().zip(told);
            shown.len() == told.len() && pairs.all(|(shown, told)| same(shown, told, field, ids))
        }
        (Value::String(shown), Value::String(told)) => {
            match (shown.parse::<Uuid>(), told.parse::<Uuid>()) {
                (Ok(shown), Ok(told)) => *ids.entry(shown).or_insert(told) == told,
                _ => shown == told || (field == "registered_at" && shown.len() == told.len()),
            }
        }
        (Value::Number(_), Value::Number(_)) if field == "token" => true,
        _ => shown == told,
    }
}

#[test]
fn the_page_of_the_session_plane_shows_what_a_gateway_answers() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/session-plane.md");
    let page = fs::read_to_string(path).expect("it is there");
    let examples = examples(&page);
    let (redis, key) = (RedisServer::start(), Key::new("laptop-7"));
    let gateway = Gateway::start_with(&redis.url(), &[&key]);
    let dir = TempDir::new().expect("a folder can be made");
    fs::write(dir.path().join("key"), &key.text).expect("it is ours");
    let script: String =
        examples.iter().map(|it| format!("{}\nprintf '{END}'\n", it.typed)).collect();
    assert!(script.contains(GATEWAY));
    let script = script.replace(GATEWAY, &gateway.url());
    let mut shell = Command::new("timeout");
    shell.args(["60", "bash", "-ec", &script]).current_dir(dir.path());
    let output = shell.output().expect("bash is installed");
    let (said, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && errors.is_empty(), "{}: {said}{errors}", output.status);
    let mut ids = HashMap::new();
    let mut compared = 0;
    for (Example { typed, shown }, said) in examples.iter().zip(said.split(END)) {
        let Some(shown) = shown else {
            assert_eq!(said, "", "{typed}");
            continue;
        };
        let told = values(said);
        assert_eq!(shown.len(), told.len(), "{typed}: {said}");
        for (shown, told) in shown.iter().zip(&told) {
            assert!(same(shown, told, "", &mut ids), "{typed}: {told} instead of {shown}");
        }
        compared += 1;
    }
    assert!(compared >= 8, "{compared} answers");
}
