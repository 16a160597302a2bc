//! The bounds of values in the document of the API: the same constants by which requests are
//! judged.

use serde_json::{Value, json};
use tenure_core::keeper::{BEAT_MIN, Settings};
use tenure_wire::Kind;
use tenure_wire::rules::{
    AT_LEAST_MAX, ATTRIBUTES_MAX, BARRED_MAX, CURSOR_MAX, NAME_MAX, PARTITION_MAX, PERMITS_MAX,
    TOKEN_MAX,
};

use super::validate::{LEFTOVERS_MAX, MAX_HOLD_MIN_MS, PID_MAX};

/// Tags and selectors beyond the basic plane, which have no escape that all dialects know.
const HIDDEN_BEYOND: &str = "\u{e0000}-\u{e0fff}";
/// Characters that a name cannot have, as a class of a regular expression; see `rules::is_hidden`.
const HIDDEN: &str = r"\u0000-\u001f\u007f-\u00a0\u00ad\u034f\u061c\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180f\u2000-\u200f\u2028-\u202f\u205f-\u206f\u2800\u3000\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\uffff";

/// A filter of the log in its usual forms; fields and spans may be named besides.
const FILTER: &str =
    "^(error|warn|info|debug|trace|off)(,[a-z_]+(::[a-z_]+)*=(error|warn|info|debug|trace|off))*$";

/// Any other cursor.
const CURSOR: &str = r"^[^\u0000-\u001f\u007f-\u009f]+$";
/// The cursor of a status.
const STATUS_CURSOR: &str = r"^[0-9a-f]{8}\.[0-9a-f]{32}\.[0-9a-f]{32}$";

/// Fields that only one kind has.
const ONLY: [(&str, Kind); 4] = [
    ("limit", Kind::Semaphore),
    ("priority", Kind::Master),
    ("grace_ms", Kind::Lease),
    ("attributes", Kind::Lease),
];

/// Adds the bounds of values, and the statuses that every endpoint has, to the document.
pub(super) fn add(document: &mut Value) {
    let settings = Settings::default();
    let (ttl_min, ttl_max) = (settings.ttl_min.as_millis(), settings.ttl_max.as_millis());
    let beat_min = BEAT_MIN.as_millis();
    let ttl = json!({"minimum": ttl_min, "maximum": ttl_max});
    let keepalive = json!({"minimum": beat_min, "maximum": ttl_max});
    let bounds = [
        ("Register", "name", visible("")),
        ("Register", "surface", visible("")),
        ("Register", "tenant", visible(":")),
        ("Register", "project", visible(":")),
        ("Register", "pid", json!({"minimum": 1, "maximum": PID_MAX})),
        ("Register", "holds", json!({"minimum": 1, "maximum": tenure_wire::page::SLOTS_MAX})),
        ("Register", "keepalive_ms", keepalive.clone()),
        ("Register", "progress_ms", keepalive),
        ("Register", "linger_ms", json!({"maximum": ttl_max})),
        ("Register", "ttl_ms", ttl.clone()),
        ("Resume", "secret", visible("")),
        ("Acquire", "name", visible("")),
        ("Acquire", "request", visible("")),
        ("Acquire", "ttl_ms", ttl),
        ("Acquire", "grace_ms", json!({"maximum": ttl_max})),
        ("Acquire", "max_hold_ms", json!({"minimum": MAX_HOLD_MIN_MS})),
        ("Acquire", "hold_at_least_ms", json!({"maximum": AT_LEAST_MAX.as_millis()})),
        ("Acquire", "limit", json!({"minimum": 1, "maximum": PERMITS_MAX})),
        ("Leftovers", "processes", leftovers()),
        ("Attributes", "address", visible("")),
        ("Attributes", "proxy_id", visible("")),
        ("Attributes", "status", visible("")),
        ("Attributes", "partition", json!({"maximum": PARTITION_MAX})),
        ("SetLog", "filter", json!({"pattern": FILTER})),
        ("Revoke", "name", visible(":")),
        ("Revoke", "tenant", visible(":")),
        ("Revoke", "reason", visible("")),
        ("Revoke", "token", json!({"minimum": 1, "maximum": TOKEN_MAX})),
        ("Revoke", "for_ms", json!({"maximum": BARRED_MAX.as_millis()})),
    ];
    for (schema, field, bound) in bounds {
        merge(&mut document["components"]["schemas"][schema]["properties"][field], bound);
    }
    let attributes = &mut document["components"]["schemas"]["Attributes"];
    let described = attributes["description"].as_str().unwrap_or_default();
    attributes["description"] =
        json!(format!("{described} Its texts have at most {ATTRIBUTES_MAX} bytes together."));
    let mut rules = rules_of_kinds();
    rules.push(json!({
        // Holds as well where `wait` is left out.
        "if": {"properties": {"wait": {"const": "none"}}},
        "then": {"properties": {"timeout_ms": {"type": "null"}}},
    }));
    document["components"]["schemas"]["Acquire"]["allOf"] = json!(rules);
    document["components"]["schemas"]["Register"]["allOf"] = json!([{
        "if": {"properties": {"pid": {"type": "integer"}}, "required": ["pid"]},
        "then": {"properties": {"tether": {"const": "process"}}, "required": ["tether"]},
    }]);
    name_unsigned(document);
    for (path, item) in document["paths"].as_object_mut().into_iter().flatten() {
        for operation in item.as_object_mut().into_iter().flat_map(|item| item.values_mut()) {
            bound_operation(path, operation);
        }
    }
}

/// 1 to 200 bytes of visible text without white space around it; see `rules::visible`.
fn visible(without: &str) -> Value {
    let inner = format!("{HIDDEN}{HIDDEN_BEYOND}{without}");
    let pattern = format!("^[^ {inner}]([^{inner}]*[^ {inner}])?$");
    json!({"minLength": 1, "maxLength": NAME_MAX, "pattern": pattern})
}

/// Some processes: the name of the program by the process id.
fn leftovers() -> Value {
    // A character has four bytes at most.
    let program = json!({"type": "string", "maxLength": NAME_MAX / 4, "pattern": r"^[^\u0000]*$"});
    let pid = json!({"pattern": "^[1-9][0-9]{0,5}$"});
    json!({"maxProperties": LEFTOVERS_MAX, "propertyNames": pid, "additionalProperties": program})
}

/// The fields that an acquire of each kind must and must not have.
fn rules_of_kinds() -> Vec<Value> {
    let absent = json!({"type": "null"});
    Kind::ALL
        .into_iter()
        .map(|kind| {
            let mut then: serde_json::Map<String, Value> = ONLY
                .into_iter()
                .filter(|(_, of)| *of != kind)
                .map(|(field, _)| (field.to_owned(), absent.clone()))
                .collect();
            let mut required = json!([]);
            if kind == Kind::Master {
                then.insert("name".to_owned(), absent.clone());
            } else {
                then.insert("name".to_owned(), json!({"type": "string"}));
                required = json!(["name"]);
            }
            json!({
                "if": {"properties": {"kind": {"const": kind.as_str()}}, "required": ["kind"]},
                "then": {"properties": then, "required": required},
            })
        })
        .collect()
}

/// Says of numbers without sign what they are: `int64` ends at 2^63.
fn name_unsigned(value: &mut Value) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(name_unsigned),
        Value::Object(object) => {
            if object.get("minimum").is_some_and(Value::is_number)
                && object.get("format").is_some_and(|format| format == "int64")
            {
                object.insert("format".to_owned(), json!("uint64"));
                object.entry("maximum").or_insert(json!(u64::MAX));
            }
            object.values_mut().for_each(name_unsigned);
        }
        _ => {}
    }
}

fn bound_operation(path: &str, operation: &mut Value) {
    let parameters = operation.get_mut("parameters").and_then(Value::as_array_mut);
    for parameter in parameters.into_iter().flatten() {
        let bound = match (path, parameter["name"].as_str()) {
            ("/v1/status", Some("cursor")) => json!({"pattern": STATUS_CURSOR}),
            (_, Some("cursor")) => {
                json!({"minLength": 1, "maxLength": CURSOR_MAX, "pattern": CURSOR})
            }
            (_, Some("glob")) => visible(""),
            (_, Some("uid" | "gid")) => json!({"maximum": u32::MAX}),
            (_, Some("name" | "tenant")) => visible(":"),
            _ => continue,
        };
        merge(&mut parameter["schema"], bound);
    }
    // A body that may be missing is an object where it is there.
    let schema = operation.pointer_mut("/requestBody/content/application~1json/schema");
    if let Some(schema) = schema
        && let Some(object) = schema.get("oneOf").and_then(|either| either.get(0)).cloned()
    {
        *schema = object;
    }
}

fn merge(schema: &mut Value, bounds: Value) {
    if let (Some(schema), Value::Object(bounds)) = (schema.as_object_mut(), bounds) {
        schema.extend(bounds);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pattern_of_names_has_every_hidden_character() {
        // And the joiners, which are not seen beside most letters.
        let hidden =
            |c: char| tenure_wire::rules::is_hidden(c) || matches!(c, '\u{200c}'..='\u{200d}');
        let escaped = |text: &str| u32::from_str_radix(text, 16).ok();
        let mut listed = Vec::new();
        let mut last = None;
        for part in HIDDEN.split(r"\u").skip(1) {
            let (digits, dash) = part.split_at(4);
            let Some(code) = escaped(digits) else { panic!("{part}") };
            match last.take() {
                Some(first) => listed.push((first, code)),
                None if dash == "-" => last = Some(code),
                None => listed.push((code, code)),
            }
        }
        for code in 0..=0xffff {
            let Some(c) = char::from_u32(code) else { continue };
            let in_pattern = listed.iter().any(|(first, end)| (*first..=*end).contains(&code));
            assert_eq!(in_pattern, hidden(c), "U+{code:04X}");
        }
    }
}
