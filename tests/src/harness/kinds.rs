//! Something of each kind.

use serde_json::{Value, json};

/// The kind of one of a program's five holds, and what it asks for besides.
pub fn kind_of(hold: usize) -> (&'static str, Value) {
    match hold {
        0 => ("leader", json!({})),
        1 => ("semaphore", json!({"limit": 1})),
        2 => ("semaphore", json!({"limit": 3})),
        3 => ("lease", json!({"attributes": {"address": "10.0.0.7:1"}})),
        _ => ("master", json!({})),
    }
}
