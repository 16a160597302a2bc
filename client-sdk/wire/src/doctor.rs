//! `GET /v1/doctor`.

use serde::{Deserialize, Serialize};

/// The verdict of an examination on one thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// It works, but will or may do harm.
    Warning,
    /// It does not work, or breaks what Tenure promises.
    Failure,
    /// It could not be found out; the detail says why.
    #[serde(other)]
    Unknown,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Check {
    /// The thing that was looked at; stable, and there once. `redis.eviction`, `socket`.
    pub name: String,
    /// The verdict.
    pub verdict: Verdict,
    /// The finding, for people. Never a secret.
    pub detail: String,
    /// The way out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl Check {
    /// As it should be.
    pub fn ok(name: &str, detail: impl Into<String>) -> Check {
        Check { name: name.to_owned(), verdict: Verdict::Ok, detail: detail.into(), remedy: None }
    }

    /// It works, but will or may do harm.
    pub fn warning(name: &str, detail: impl Into<String>, remedy: impl Into<String>) -> Check {
        Check { verdict: Verdict::Warning, remedy: Some(remedy.into()), ..Check::ok(name, detail) }
    }

    /// It does not work, or breaks what Tenure promises.
    pub fn failure(name: &str, detail: impl Into<String>, remedy: impl Into<String>) -> Check {
        Check { verdict: Verdict::Failure, ..Check::warning(name, detail, remedy) }
    }

    /// It could not be found out.
    pub fn unknown(name: &str, detail: impl Into<String>, remedy: impl Into<String>) -> Check {
        Check { verdict: Verdict::Unknown, ..Check::warning(name, detail, remedy) }
    }
}

/// The answer to `GET /v1/doctor`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Diagnosis {
    /// The checks, in the order in which they are worth reading.
    pub checks: Vec<Check>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_of_a_later_version_is_unknown() {
        let json = r#"{"checks":[{"name":"n","verdict":"splendid","detail":"d"}]}"#;
        let diagnosis: Diagnosis = serde_json::from_str(json).expect("a diagnosis");
        assert_eq!(diagnosis.checks[0].verdict, Verdict::Unknown);
        let json = serde_json::to_string(&Check::warning("n", "d", "r")).expect("JSON");
        assert_eq!(json, r#"{"name":"n","verdict":"warning","detail":"d","remedy":"r"}"#);
    }
}
