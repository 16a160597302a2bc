//! The examples of the document: for each endpoint a request, and a reply that it may get.

use serde_json::Value;

/// By method and path; the replies by status.
const EXAMPLES: &str = include_str!("examples.json");

pub(super) fn add(document: &mut Value) {
    // A test reads it: what is not JSON does not get here.
    let examples: Value = serde_json::from_str(EXAMPLES).unwrap_or_default();
    for (path, item) in document["paths"].as_object_mut().into_iter().flatten() {
        for (method, operation) in item.as_object_mut().into_iter().flatten() {
            let example = &examples[format!("{} {path}", method.to_uppercase())];
            if let Some(body) = operation.pointer_mut("/requestBody/content/application~1json") {
                body["example"] = example["request"].clone();
            }
            for (status, reply) in example["replies"].as_object().into_iter().flatten() {
                if let Some(content) = operation["responses"][status]["content"].as_object_mut() {
                    for (_, body) in content.iter_mut() {
                        body["example"] = reply.clone();
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use utoipa::OpenApi;

    use super::super::endpoints::Document;
    use super::*;

    /// Text, and this document.
    const WITHOUT: [&str; 2] = ["GET /metrics", "GET /openapi.json"];

    #[test]
    fn every_endpoint_has_examples_and_every_example_an_endpoint() {
        let examples: Value = serde_json::from_str(EXAMPLES).unwrap();
        let mut missing: Vec<_> = examples.as_object().unwrap().keys().cloned().collect();
        let document = serde_json::to_value(Document::openapi()).unwrap();
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                let name = format!("{} {path}", method.to_uppercase());
                if WITHOUT.contains(&name.as_str()) {
                    continue;
                }
                let example = &examples[&name];
                missing.retain(|one| *one != name);
                assert_eq!(
                    example["request"].is_object(),
                    operation["requestBody"].is_object(),
                    "{name}"
                );
                let replies = example["replies"].as_object();
                let replies = replies.unwrap_or_else(|| panic!("{name} has no example"));
                for (status, response) in operation["responses"].as_object().unwrap() {
                    let must = status.starts_with('2') && response["content"].is_object();
                    assert!(
                        !must || replies.contains_key(status),
                        "{name}: {status} has no example"
                    );
                }
                assert!(
                    replies
                        .keys()
                        .all(|status| operation["responses"][status]["content"].is_object()),
                    "{name}"
                );
            }
        }
        assert_eq!(missing, Vec::<String>::new(), "examples of endpoints that are not there");
    }
}
