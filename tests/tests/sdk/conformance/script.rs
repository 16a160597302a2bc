//! The shape of the script; `client-sdk/conformance/README.md` says what each step means.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use tenure::wire::Kind;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    scenarios: Vec<Scenario>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Scenario {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) needs: Vec<String>,
    #[serde(default)]
    pub(crate) redis: bool,
    /// Tests run side by side here.
    #[serde(default, rename = "slow")]
    _slow: bool,
    #[serde(default)]
    pub(crate) agent: BTreeMap<String, String>,
    pub(crate) steps: Vec<Step>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Options {
    pub(crate) name: Option<String>,
    pub(crate) project: Option<String>,
    pub(crate) progress_ms: Option<u64>,
    pub(crate) linger_ms: Option<u64>,
    pub(crate) holds: Option<u32>,
}

/// A step that acquires, or begins to.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Want {
    pub(crate) session: String,
    pub(crate) r#as: String,
    pub(crate) kind: Kind,
    #[serde(default)]
    pub(crate) name: String,
    #[serde(default = "held")]
    pub(crate) expect: String,
    pub(crate) code: Option<String>,
    pub(crate) holder: Option<String>,
    #[serde(flatten)]
    pub(crate) terms: Terms,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Terms {
    pub(crate) wait_ms: Option<u64>,
    pub(crate) ttl_ms: Option<u64>,
    pub(crate) max_hold_ms: Option<u64>,
    #[serde(default)]
    pub(crate) fleet: bool,
    pub(crate) limit: Option<u32>,
    pub(crate) priority: Option<i32>,
    pub(crate) grace_ms: Option<u64>,
    pub(crate) address: Option<String>,
    /// What this runner does not know; serde refuses nothing beside a flattened field.
    #[serde(flatten)]
    pub(crate) unknown: BTreeMap<String, serde_json::Value>,
}

fn held() -> String {
    "held".to_owned()
}

fn released() -> String {
    "released".to_owned()
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Action {
    Restart,
    Crash,
    Kill,
    Stop,
    Start,
    Freeze,
    Thaw,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Step {
    Session {
        r#as: String,
        #[serde(default)]
        options: Options,
    },
    Acquire(Want),
    Begin(Want),
    End {
        of: String,
        #[serde(default = "held")]
        expect: String,
        code: Option<String>,
        holder: Option<String>,
    },
    Cancel {
        of: String,
    },
    Waiting {
        session: String,
        kind: Kind,
        name: String,
        count: u64,
    },
    Holding {
        session: String,
        kind: Kind,
        name: String,
        count: u64,
    },
    Release {
        hold: String,
        #[serde(default = "released")]
        expect: String,
        reason: Option<String>,
    },
    Held {
        hold: String,
        is: bool,
    },
    Steadily {
        hold: String,
        ms: u64,
    },
    Guard {
        hold: String,
        r#as: String,
    },
    Ended {
        of: String,
        reason: String,
    },
    Token {
        hold: String,
        above: String,
    },
    Slots {
        session: String,
        count: usize,
    },
    Event {
        session: String,
        event: String,
        hold: Option<String>,
        reason: Option<String>,
        cause: Option<String>,
    },
    None {
        session: String,
        event: String,
    },
    Revoke {
        kind: Kind,
        name: String,
    },
    Agent {
        action: Action,
    },
    Redis {
        action: Action,
    },
    Block(Block),
    Beat {
        session: String,
    },
    Close {
        session: String,
    },
    Sessions {
        count: usize,
        kind: Kind,
        name: String,
        limit: u32,
    },
    Fork {
        steps: Vec<Step>,
    },
    Pause {
        ms: u64,
    },
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Block {
    pub(crate) ms: u64,
    pub(crate) kind: Option<Kind>,
    pub(crate) name: Option<String>,
    pub(crate) held: Option<String>,
    pub(crate) over: Option<String>,
}

/// The scenarios of a file.
#[track_caller]
pub(crate) fn scenarios(file: &str) -> Vec<Scenario> {
    let text = std::fs::read_to_string(directory().join(file)).expect("the file is there");
    let file: File = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{file}: {error}"));
    file.scenarios
}

/// Where the script lies.
pub(crate) fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../client-sdk/conformance")
}
