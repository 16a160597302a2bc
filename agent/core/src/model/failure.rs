//! Requests without an answer, and refusals.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure_wire::rules::Invalid;

/// No answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Failure {
    /// It was never sent: nothing happened upstream.
    Unavailable(String),
    /// The upstream refused it, and nothing happened.
    Denied(Denial),
    /// No answer came in time, or the connection broke: it may or may not have happened.
    Unknown(String),
}

/// The refusal of an upstream that answers, but lets its agent not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Denial {
    pub rule: DenialRule,
    /// The thing, the value, the rule and the way out, in the upstream's words.
    pub detail: String,
}

/// The sort of rule that a [`Denial`] goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum DenialRule {
    /// The upstream does not know this agent, or not any more.
    Unauthorized,
    /// The agent may never do that.
    Forbidden,
    /// Nobody may ever say that: it breaks the rules of [`Request::check`](super::Request::check).
    Invalid,
    /// The agent has as much as it may have, or asks too often; it may ask again after this time.
    Quota(Duration),
}

impl DenialRule {
    /// True if the same is denied again, whenever it is asked.
    pub fn is_final(self) -> bool {
        matches!(self, DenialRule::Forbidden | DenialRule::Invalid)
    }
}

impl Failure {
    /// The refusal of a request that does not pass [`Request::check`](super::Request::check): it was never sent.
    pub fn invalid(invalid: &Invalid) -> Failure {
        Failure::Denied(Denial { rule: DenialRule::Invalid, detail: invalid.to_string() })
    }

    /// The cause, for people.
    pub fn cause(&self) -> &str {
        match self {
            Failure::Unavailable(cause) | Failure::Unknown(cause) => cause,
            Failure::Denied(denial) => &denial.detail,
        }
    }

    /// True if the request may have taken effect, or may do so later.
    pub fn is_uncertain(&self) -> bool {
        matches!(self, Failure::Unknown(_))
    }
}
