//! RFC 9457 problem details: what every refused request gets.

use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Holder, LimitChanged};

/// Why a request was refused. Stable: programs branch on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// A field is wrong; the detail names it.
    Invalid,
    /// The body is larger than 64 KiB.
    TooLarge,
    /// No identity.
    Unauthorized,
    /// The policy forbids it.
    Forbidden,
    /// No such endpoint, or no such process.
    NotFound,
    /// The endpoint wants another method.
    MethodNotAllowed,
    /// No such session, or not the caller's.
    SessionUnknown,
    /// The session ended.
    SessionLost,
    /// The hold is gone.
    HoldLost,
    /// Somebody has it.
    Contended,
    /// Nobody let go in time.
    WaitTimeout,
    /// A limit of the agent is reached.
    QuotaExceeded,
    /// The upstream is not available: it does not answer, or cannot take requests.
    UpstreamUnavailable,
    /// The agent is stopping.
    Stopping,
}

impl Code {
    /// The HTTP status that goes with it.
    pub const fn status(self) -> u16 {
        match self {
            Code::Invalid => 422,
            Code::TooLarge => 413,
            Code::Unauthorized => 401,
            Code::Forbidden => 403,
            Code::NotFound | Code::SessionUnknown => 404,
            Code::MethodNotAllowed => 405,
            Code::SessionLost | Code::HoldLost => 410,
            Code::Contended | Code::WaitTimeout => 409,
            Code::QuotaExceeded => 429,
            Code::UpstreamUnavailable | Code::Stopping => 503,
        }
    }

    /// The word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Code::Invalid => "invalid",
            Code::TooLarge => "too_large",
            Code::Unauthorized => "unauthorized",
            Code::Forbidden => "forbidden",
            Code::NotFound => "not_found",
            Code::MethodNotAllowed => "method_not_allowed",
            Code::SessionUnknown => "session_unknown",
            Code::SessionLost => "session_lost",
            Code::HoldLost => "hold_lost",
            Code::Contended => "contended",
            Code::WaitTimeout => "wait_timeout",
            Code::QuotaExceeded => "quota_exceeded",
            Code::UpstreamUnavailable => "upstream_unavailable",
            Code::Stopping => "stopping",
        }
    }

    /// One sentence that is the same for every occurrence.
    pub const fn title(self) -> &'static str {
        match self {
            Code::Invalid => "The request is not valid",
            Code::TooLarge => "The request is too large",
            Code::Unauthorized => "The caller is not known",
            Code::Forbidden => "The caller may not do this",
            Code::NotFound => "What is named does not exist",
            Code::MethodNotAllowed => "The endpoint does not take this method",
            Code::SessionUnknown => "There is no such session",
            Code::SessionLost => "The session has ended",
            Code::HoldLost => "The hold is gone",
            Code::Contended => "The resource is taken",
            Code::WaitTimeout => "The resource was not free in time",
            Code::QuotaExceeded => "A limit is reached",
            Code::UpstreamUnavailable => "The upstream is not available",
            Code::Stopping => "The agent is stopping",
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// `application/problem+json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Problem {
    /// A URI that names the code: `urn:tenure:problem:<code>`.
    #[serde(rename = "type")]
    pub kind: String,
    /// One sentence that is the same for every occurrence.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// Why. Stable.
    pub code: Code,
    /// The trouble this time, and the way out.
    pub detail: String,
    /// The field that is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// The holder of the resource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<Holder>,
    /// The hold that the request was about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<Uuid>,
    /// Semaphore only: the request changed the limit although it was not granted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_changed: Option<LimitChanged>,
    /// Try again after this many ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

impl Problem {
    /// A problem with nothing but its code and detail.
    pub fn new(code: Code, detail: impl Into<String>) -> Problem {
        Problem {
            kind: format!("urn:tenure:problem:{code}"),
            title: code.title().to_owned(),
            status: code.status(),
            code,
            detail: detail.into(),
            field: None,
            holder: None,
            hold: None,
            limit_changed: None,
            retry_after_ms: None,
        }
    }

    /// A wrong field.
    pub fn invalid(field: &str, detail: impl Into<String>) -> Problem {
        Problem { field: Some(field.to_owned()), ..Problem::new(Code::Invalid, detail) }
    }

    /// The same problem about a hold.
    #[must_use]
    pub fn about(self, hold: Uuid) -> Problem {
        Problem { hold: Some(hold), ..self }
    }

    /// The same problem with advice when to try again, ms.
    #[must_use]
    pub fn retry_after_ms(self, ms: u64) -> Problem {
        Problem { retry_after_ms: Some(ms), ..self }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.detail)
    }
}

impl std::error::Error for Problem {}
