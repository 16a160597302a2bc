//! docs/api-reference.md: every request and answer of the agent, made of its document.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

const HEAD: &str = "# HTTP API: every request

Made from `agent/daemon/openapi.json`, which the agent serves as `GET /openapi.json`. [HTTP API](api.md) is the introduction, with recipes and
with what to do about each refusal.

- A field is a member of the JSON body, unless it is called one of the query or a header. The column *left out* says what becomes of a field
  that is not there. Unknown fields of requests are refused; clients skip fields and events of answers that they do not know.
- Bounds of texts are bytes; what a text is made of is in [Names](api.md#names). Bounds of times are those of the default configuration.
- A `u64` has up to 64 bits: tokens and instants do not fit into a number of JavaScript.
- A refusal is a [Problem](#problem). Those without a word are the usual ones: 413 `too_large` is a body of more than 64 KiB, 422 `invalid` a
  field that is wrong, unknown or missing, which the detail names; 429 `quota_exceeded` names the limit, 503 is `upstream_unavailable` or
  `stopping`, and `Retry-After` says when to come again.
";
/// Answers that nearly every call may have.
const USUAL: [&str; 5] = ["Invalid", "NoParameters", "QuotaExceeded", "TooLarge", "Unavailable"];
/// Columns of a page.
const WIDTH: usize = 140;

/// The OpenAPI document, and the types to which a table may refer.
struct Document(Value);

impl Document {
    fn schema(&self, name: &str) -> &Value {
        &self.0["components"]["schemas"][name]
    }

    /// A part of the document, or the part to which its `$ref` leads.
    fn resolve<'a>(&'a self, part: &'a Value) -> &'a Value {
        let Some(path) = part["$ref"].as_str() else { return part };
        self.0.pointer(path.trim_start_matches('#')).expect("a reference leads somewhere")
    }

    /// The fields of an object and of objects merged into it, and the names of the required fields.
    fn fields<'a>(&'a self, schema: &'a Value) -> (Map<String, Value>, Vec<&'a str>) {
        let (mut fields, mut required) = (Map::new(), Vec::new());
        let merged = list(&schema["allOf"]).filter(|part| part["if"].is_null());
        for part in merged.chain([schema]).map(|part| self.resolve(part)) {
            fields.extend(part["properties"].as_object().cloned().unwrap_or_default());
            required.extend(list(&part["required"]).filter_map(Value::as_str));
        }
        (fields, required)
    }

    /// The type of a field.
    fn kind(&self, schema: &Value) -> String {
        if let Some(name) = name_of(schema) {
            let named = self.schema(name);
            return if named["enum"].is_array() { words(named) } else { link(name) };
        }
        let inner = list(&schema["oneOf"]).find(|part| part["type"] != "null");
        if let Some(inner) = inner {
            return self.kind(inner);
        }
        let types = schema["type"].as_str().into_iter();
        let mut types = types.chain(list(&schema["type"]).filter_map(Value::as_str));
        match types.find(|name| *name != "null") {
            Some("integer") if schema["format"] == "uint64" => "u64".to_owned(),
            Some("array") => format!("list of {}", self.kind(&schema["items"])),
            Some("object") => format!("object of {}", self.kind(&schema["additionalProperties"])),
            Some("string") if schema["format"] == "uuid" => "uuid".to_owned(),
            Some("string") if schema["enum"].is_array() => words(schema),
            Some("string") => "text".to_owned(),
            Some(name) => name.to_owned(),
            None => "any JSON".to_owned(),
        }
    }

    /// The words of the type of a field, for a field that has none of its own.
    fn type_of(&self, schema: &Value) -> String {
        let inner = list(&schema["oneOf"]).find(|part| part["type"] != "null");
        let name = name_of(inner.unwrap_or(schema));
        name.map(|name| description(self.schema(name))).unwrap_or_default()
    }

    /// A row of a table of a request.
    fn asked(&self, name: &str, schema: &Value, is_required: bool, told: &str) -> String {
        let (mut meaning, default) = split_default(told);
        if meaning.is_empty() {
            meaning = self.type_of(schema);
        }
        let left_out = match (is_required, &schema["default"]) {
            (true, _) => "required".to_owned(),
            // The words say more than the value, such as whose.
            _ if !default.is_empty() => default,
            (_, Value::Null) if schema["type"] == "boolean" => "`false`".to_owned(),
            (_, Value::Null) => "–".to_owned(),
            (_, default) => format!("`{default}`").replace('"', ""),
        };
        let (kind, bounds) = (self.kind(schema), bounds(schema));
        format!("| `{name}` | {kind} | {bounds} | {left_out} | {meaning} |\n")
    }

    fn body(&self, name: &str) -> String {
        let (fields, required) = self.fields(self.schema(name));
        let row = |(name, schema): (&String, &Value)| {
            self.asked(name, schema, required.contains(&name.as_str()), &description(schema))
        };
        let mut rows: Vec<_> = fields.iter().map(row).collect();
        rows.sort_by_key(|row| !row.contains("| required |"));
        format!(
            "| field | type | bounds | left out | meaning |\n|---|---|---|---|---|\n{}\n",
            rows.concat()
        )
    }

    fn parameters(&self, operation: &Value) -> String {
        let row = |parameter: &Value| {
            let parameter = self.resolve(parameter);
            let name = parameter["name"].as_str().expect("a name");
            let place = if parameter["in"] == "header" { "Header" } else { "Query" };
            let told = format!("{place}: {}", first_lower(&description(parameter)));
            self.asked(name, &parameter["schema"], parameter["required"] == true, &told)
        };
        list(&operation["parameters"]).map(row).collect()
    }

    /// One call: what it does, what it takes, and what it answers.
    fn call(&self, method: &str, path: &str, operation: &Value) -> String {
        let texts = ["summary", "description"].map(|key| text(&operation[key]));
        let told = texts.join(" ");
        let mut page = format!("### {} {path}\n\n{}\n\n", method.to_uppercase(), wrap(told.trim()));
        let rows = self.parameters(operation);
        if !rows.is_empty() {
            page += "| field | type | bounds | left out | meaning |\n|---|---|---|---|---|\n";
            page += &format!("{rows}\n");
        }
        let body = &operation["requestBody"]["content"]["application/json"]["schema"];
        if let Some(name) = name_of(body) {
            page += &self.body(name);
        }
        let (mut answers, mut refusals) = (Vec::new(), Vec::new());
        for (status, answer) in operation["responses"].as_object().expect("answers") {
            let named = answer["$ref"].as_str().and_then(|path| path.rsplit('/').next());
            let is_usual = named.is_some_and(|name| USUAL.contains(&name));
            let answer = self.resolve(answer);
            let told = description(answer);
            if is_usual {
                refusals.push(status.clone());
            } else if status.starts_with('2') {
                let content = answer["content"].as_object().and_then(|it| it.iter().next());
                let is = content.map(|(media, content)| self.content(media, &content["schema"]));
                answers.push(format!("{status}{}: {told}", is.unwrap_or_default()));
            } else {
                refusals.push(format!("{status} {}", first_lower(&told)));
            }
        }
        page += &format!("{}\n\n", wrap(&format!("Answers {}.", answers.join("; "))));
        page + &format!("{}\n\n", wrap(&format!("Refused with {}.", refusals.join("; "))))
    }

    fn content(&self, media: &str, schema: &Value) -> String {
        let of = name_of(schema).map(link);
        match (media, of) {
            ("application/json", Some(of)) => format!(" {of}"),
            (_, Some(of)) => format!(" `{media}` of {of}"),
            (_, None) => format!(" `{media}`"),
        }
    }

    /// A type that requests or answers refer to.
    fn part(&self, name: &str, schema: &Value) -> String {
        let mut page = format!("### {name}\n\n{}\n\n", wrap(&description(schema)));
        if let Some(events) = schema["discriminator"]["mapping"].as_object() {
            page += "| `event` | `data` | meaning |\n|---|---|---|\n";
            for (event, on) in events {
                let on = self.resolve(&serde_json::json!({ "$ref": on })).clone();
                let data = self.kind(&on["properties"]["data"]);
                page += &format!("| `{event}` | {data} | {} |\n", description(&on));
            }
            return page + "\n";
        }
        if schema["additionalProperties"] == false {
            return page + &self.body(name);
        }
        let (fields, required) = self.fields(schema);
        page += "| field | type | | meaning |\n|---|---|---|---|\n";
        for (name, schema) in &fields {
            let absent = if required.contains(&name.as_str()) { "" } else { "may be absent" };
            let (kind, mut told) = (self.kind(schema), description(schema));
            if told.is_empty() {
                told = self.type_of(schema);
            }
            page += &format!("| `{name}` | {kind} | {absent} | {told} |\n");
        }
        page + "\n"
    }

    fn page(&self) -> String {
        let mut page = HEAD.to_owned();
        let paths = self.0["paths"].as_object().expect("paths");
        for tag in list(&self.0["tags"]) {
            page += &format!("\n## {}\n\n", description(tag));
            for (path, operations) in paths {
                for (method, operation) in operations.as_object().expect("operations") {
                    if operation["tags"][0] == tag["name"] {
                        page += &self.call(method, path, operation);
                    }
                }
            }
            page.truncate(page.trim_end().len());
            page.push('\n');
        }
        page += "\n## What answers are made of\n\n";
        let schemas = self.0["components"]["schemas"].as_object().expect("schemas");
        let parts: Vec<_> =
            schemas.iter().map(|(name, it)| (link(name), self.part(name, it))).collect();
        for (link, part) in &parts {
            // Words of an enum stand where they are used, and merged objects within the others.
            let leads_here =
                |(other, text): &(String, String)| other != link && text.contains(link);
            if page.contains(link) || parts.iter().any(leads_here) {
                page += part;
            }
        }
        page.trim_end().to_owned() + "\n"
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn name_of(schema: &Value) -> Option<&str> {
    schema["$ref"].as_str()?.strip_prefix("#/components/schemas/")
}

fn link(name: &str) -> String {
    format!("[{name}](#{})", name.to_lowercase())
}

fn words(schema: &Value) -> String {
    let words: Vec<_> = list(&schema["enum"]).filter_map(Value::as_str).collect();
    format!("`{}`", words.join("`, `"))
}

/// A text of the document on one line, without what only rustdoc follows.
fn text(value: &Value) -> String {
    let text = value.as_str().unwrap_or_default();
    text.replace("[`", "`").replace("`]", "`").replace('|', "\\|").replace('\n', " ")
}

fn description(schema: &Value) -> String {
    let inner = list(&schema["oneOf"]).find(|part| part["description"].is_string());
    text(&inner.filter(|_| schema["description"].is_null()).unwrap_or(schema)["description"])
}

fn first_lower(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_lowercase().chain(chars).collect()).unwrap_or_default()
}

/// The meaning of a field, and its default, which is a sentence or a part of one.
fn split_default(told: &str) -> (String, String) {
    let at = told.find("Default").or_else(|| told.find("; default"));
    let Some((before, sentence)) = at.and_then(|at| told.split_at_checked(at)) else {
        return (told.to_owned(), String::new());
    };
    let (sentence, after) = sentence.split_once(". ").unwrap_or((sentence, ""));
    let default = sentence.trim_start_matches("; ").get("default".len()..).unwrap_or_default();
    let default = default.trim_start_matches(':').trim().trim_end_matches('.');
    (format!("{} {after}", before.trim_end()).trim().to_owned(), default.to_owned())
}

fn bounds(schema: &Value) -> String {
    let number = |key: &str| schema[key].as_u64().filter(|number| *number < u64::MAX);
    let is_text = !schema["maxLength"].is_null();
    let (least, most) = if is_text {
        (number("minLength"), number("maxLength"))
    } else {
        (number("minimum"), number("maximum"))
    };
    match (least, most) {
        (least, Some(most)) => format!("{}–{}", grouped(least.unwrap_or(0)), grouped(most)),
        (Some(least), None) if least > 0 => format!("≥ {}", grouped(least)),
        _ => String::new(),
    }
}

/// A number with a space before each three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let first = digits.len() % 3;
    let (head, rest) = digits.split_at(first);
    let parts = rest.as_bytes().chunks(3).map(|part| String::from_utf8_lossy(part).into_owned());
    let parts: Vec<_> = std::iter::once(head.to_owned()).chain(parts).collect();
    parts.join(" ").trim().to_owned()
}

fn wrap(text: &str) -> String {
    let (mut page, mut column) = (String::new(), 0);
    for word in text.split_whitespace() {
        let length = word.chars().count();
        let fits = column + length < WIDTH;
        page += if column == 0 {
            ""
        } else if fits {
            " "
        } else {
            "\n"
        };
        column = if fits { column + length + 1 } else { length + 1 };
        page += word;
    }
    page
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn the_reference_of_the_api_is_that_of_its_document() {
    let document = fs::read_to_string(root().join("agent/daemon/openapi.json"));
    let document = Document(
        serde_json::from_str(&document.expect("it is committed")).expect("the document is JSON"),
    );
    let page = document.page();
    let path = root().join("docs/api-reference.md");
    if std::env::var_os("UPDATE_API_REFERENCE").is_some() {
        fs::write(&path, &page).expect("the tree is ours");
    }
    assert!(
        fs::read_to_string(&path).is_ok_and(|committed| committed == page),
        "docs/api-reference.md is not what openapi.json says: run `UPDATE_API_REFERENCE=1 cargo \
         test -p tenure-tests --test repository api_reference`, and commit it"
    );
    let schemas = document.0["components"]["schemas"].as_object().expect("schemas");
    for (name, schema) in schemas {
        for field in document.fields(schema).0.keys() {
            assert!(page.contains(&format!("`{field}`")), "{field} of {name} is missing");
        }
    }
}
