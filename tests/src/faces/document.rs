//! A document of the gateway's faces over HTTP, made of the requests that are drawn for them, for programs that make up
//! requests from such documents.

use serde_json::{Map, Value, json};
use tenure_stores::gateway::scope::Mark;

use super::Own;
use super::call::{Sent, Server};
use super::request::Request;
use super::{people, sessions, upstream};

/// Enough to have seen every call with all of its fields.
const DRAWN: u64 = 8000;

/// The document, in OpenAPI 3.
pub fn gateway() -> Value {
    let own = Own { agent_session: String::new(), mark: Mark::of("local") };
    let mut paths = Map::new();
    for seed in 1..=DRAWN {
        let request = Request::draw(seed);
        if !request.odd.is_empty() {
            continue;
        }
        let calls = [
            upstream::call(&request, &own),
            sessions::call(&request, &own),
            people::call(&request),
        ];
        for call in calls.into_iter().flatten() {
            if let Sent::Http { to: Server::Gateway, method, target, body, .. } = call.sent {
                add(&mut paths, method, &target, &body);
            }
        }
    }
    json!({"openapi": "3.0.3", "info": {"title": "gateway", "version": "0"}, "paths": paths})
}

fn add(paths: &mut Map<String, Value>, method: &str, target: &str, body: &[u8]) {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let path = paths.entry(path).or_insert_with(|| json!({}));
    let operation = &mut path[method.to_lowercase()];
    if operation.is_null() {
        *operation = json!({"parameters": [], "responses": {"default": {"description": "any"}}});
    }
    let known = operation["parameters"].as_array_mut().expect("as it was made");
    for name in query.split('&').filter_map(|pair| Some(pair.split_once('=')?.0)) {
        if known.iter().all(|it| it["name"] != name) {
            known.push(json!({"name": name, "in": "query", "schema": {"type": "string"}}));
        }
    }
    if let Ok(body) = serde_json::from_slice(body) {
        let schema = &mut operation["requestBody"]["content"]["application/json"]["schema"];
        *schema = either(schema.take(), schema_of(&body));
    }
}

fn schema_of(value: &Value) -> Value {
    match value {
        Value::Null => json!({"nullable": true}),
        Value::Bool(_) => json!({"type": "boolean"}),
        Value::Number(_) => json!({"type": "integer"}),
        Value::String(_) => json!({"type": "string"}),
        Value::Array(items) => {
            let items = items.iter().map(schema_of).fold(Value::Null, either);
            json!({"type": "array", "items": if items.is_null() { json!({}) } else { items }})
        }
        Value::Object(fields) => {
            let properties: Map<_, _> =
                fields.iter().map(|(name, it)| (name.clone(), schema_of(it))).collect();
            json!({"type": "object", "properties": properties})
        }
    }
}

/// What both schemas allow. Values of one type have one schema.
fn either(one: Value, other: Value) -> Value {
    if one.is_null() || one == other {
        return other;
    }
    if let Some(choices) = one["anyOf"].as_array() {
        let mut choices = choices.clone();
        match choices.iter_mut().find(|it| it["type"] == other["type"]) {
            Some(same) => *same = either(same.take(), other),
            None => choices.push(other),
        }
        return json!({"anyOf": choices});
    }
    if one["type"] != other["type"] {
        return json!({"anyOf": [one, other]});
    }
    let mut both = one;
    if let Value::Object(fields) = &other["properties"] {
        for (name, schema) in fields {
            let field = &mut both["properties"][name];
            *field = either(field.take(), schema.clone());
        }
    }
    if both["type"] == "array" {
        both["items"] = either(both["items"].take(), other["items"].clone());
    }
    both
}
