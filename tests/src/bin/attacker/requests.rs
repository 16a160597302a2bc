//! Requests that are as long as they may be, and that have long answers.

use serde_json::json;

use super::connection::post;

/// As long as a name may be, with a number in front.
const NAME_LENGTH: usize = 200;

pub(super) fn long_name(number: usize) -> String {
    format!("{number:n<NAME_LENGTH$}")
}

pub(super) fn page_of(of: &str) -> &'static str {
    match of {
        "status" => "/v1/status?limit=1000",
        "routes" => "/v1/routes?limit=1000",
        _ => "/v1/standing?kind=semaphore&name=big",
    }
}

pub(super) fn ask(of: &str, session: &str, number: usize) -> Vec<u8> {
    let name = long_name(number);
    let ask = match of {
        "routes" => {
            // 399 bytes: the sum is bounded.
            let long = "a".repeat(133);
            let attributes = json!({"address": long, "proxy_id": long, "status": long});
            json!({"kind": "lease", "name": name, "ttl_ms": 86_400_000, "attributes": attributes})
        }
        "standing" => {
            json!({"kind": "semaphore", "name": "big", "limit": 1, "wait": "queue", "ttl_ms": 600_000})
        }
        "permits" => json!({"kind": "semaphore", "name": name, "limit": 1000}),
        _ => json!({"kind": "leader", "name": name, "ttl_ms": 600_000}),
    };
    let mut ask = ask;
    ask["session"] = json!(session);
    post("/v1/acquire", &ask)
}
