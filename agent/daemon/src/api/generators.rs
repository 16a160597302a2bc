//! What generators of clients need of the document: every part that several endpoints share once and with a name,
//! events that can be told apart, and the value of what a client leaves out.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use tenure_core::keeper::Settings;
use tenure_core::model::defaults;
use tenure_wire::{DEFAULT_TENANT, Tether, Wait, page};

use super::query::PAGE_DEFAULT;

pub(super) fn prepare(document: &mut Value) {
    add_defaults(document);
    name_events(document);
    share_parameters(document);
}

/// A default that depends on the kind or the surface is only in the words of its field.
fn add_defaults(document: &mut Value) {
    let settings = Settings::default();
    let defaults = [
        ("Register", "surface", json!(defaults::SURFACE)),
        ("Register", "tenant", json!(DEFAULT_TENANT)),
        ("Register", "tether", json!(Tether::Keepalive)),
        ("Register", "keepalive_ms", json!(settings.keepalive.as_millis())),
        ("Register", "linger_ms", json!(settings.linger.as_millis())),
        ("Register", "ttl_ms", json!(settings.session.ttl.as_millis())),
        ("Register", "guarded", json!(false)),
        ("Register", "holds", json!(page::SLOTS)),
        ("Acquire", "wait", json!(Wait::None)),
        ("Attributes", "status", json!(defaults::STATUS)),
        ("Revoke", "tenant", json!(DEFAULT_TENANT)),
    ];
    for (schema, field, default) in defaults {
        document["components"]["schemas"][schema]["properties"][field]["default"] = default;
    }
    for operation in operations(document) {
        for parameter in
            operation.get_mut("parameters").and_then(Value::as_array_mut).into_iter().flatten()
        {
            if parameter["name"] == "limit" {
                parameter["schema"]["default"] = json!(PAGE_DEFAULT);
            }
        }
    }
}

/// Makes a schema of each sort of event, and says that `event` tells them apart.
fn name_events(document: &mut Value) {
    let schemas = &mut document["components"]["schemas"];
    let mut mapping = Map::new();
    let mut named = Vec::new();
    for event in schemas["Events"]["oneOf"].as_array_mut().map(std::mem::take).into_iter().flatten()
    {
        let word = event["properties"]["event"]["enum"][0].as_str().unwrap_or_default().to_owned();
        let name = format!("On{}", pascal(&word));
        let reference = format!("#/components/schemas/{name}");
        schemas[&name] = event;
        mapping.insert(word, json!(reference));
        named.push(json!({"$ref": reference}));
    }
    let events = &mut schemas["Events"];
    events["description"] = json!(
        "One event of a session's stream: `event` is the field `event:` of the stream, and `data` the JSON in its \
         field `data:`. Skip those whose `event` you do not know."
    );
    events["oneOf"] = json!(named);
    events["discriminator"] = json!({"propertyName": "event", "mapping": mapping});
}

/// Parameters that more than one endpoint has, word for word.
fn share_parameters(document: &mut Value) {
    let mut counts: BTreeMap<String, (usize, Value)> = BTreeMap::new();
    for operation in operations(document) {
        for parameter in operation.get("parameters").and_then(Value::as_array).into_iter().flatten()
        {
            counts.entry(parameter.to_string()).or_insert_with(|| (0, parameter.clone())).0 += 1;
        }
    }
    let mut shared = Map::new();
    for (_, parameter) in counts.into_values().filter(|(count, _)| *count > 1) {
        let name = pascal(parameter["name"].as_str().unwrap_or_default());
        // Another one of that name stays where it is.
        shared.entry(name).or_insert(parameter);
    }
    for operation in operations(document) {
        for parameter in
            operation.get_mut("parameters").and_then(Value::as_array_mut).into_iter().flatten()
        {
            if let Some((name, _)) = shared.iter().find(|(_, one)| *one == parameter) {
                *parameter = json!({"$ref": format!("#/components/parameters/{name}")});
            }
        }
    }
    document["components"]["parameters"] = Value::Object(shared);
}

pub(super) fn operations(document: &mut Value) -> impl Iterator<Item = &mut Value> {
    let paths = document["paths"].as_object_mut().into_iter().flatten();
    paths.flat_map(|(_, item)| item.as_object_mut().into_iter().flat_map(|item| item.values_mut()))
}

fn pascal(word: &str) -> String {
    word.split('_')
        .map(|part| {
            let (first, rest) = part.split_at(part.len().min(1));
            first.to_uppercase() + rest
        })
        .collect()
}
