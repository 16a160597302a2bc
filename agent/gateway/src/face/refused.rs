//! Refusals, as problem documents.

use std::fmt;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use tenure_core::model::{Denial, DenialRule, Failure};
use tenure_service::browsers::quoted;
use tenure_wire::rules::{self, Invalid};
use tenure_wire::{Code, Problem};

use crate::access::{Caller, Denied, Lacking, Stranger};

/// When somebody should come again whom the store could not serve.
const RETRY_AFTER_MS: u64 = 1000;

/// Most characters of a refusal's words.
const DETAIL_MAX: usize = 2000;

const UNSUPPORTED_MEDIA_TYPE: u16 = 415;
/// The settings of limits by which a body may be left unread.
const BODY_LIMITS: &str = "limits.body_bytes";

/// A request that was refused.
#[derive(Debug)]
pub(super) struct Refused(Box<Problem>);

impl Refused {
    /// A library's words may repeat a part of what was sent: a terminal, a log or the trail would obey it.
    pub(super) fn new(code: Code, detail: impl Into<String>) -> Refused {
        let detail: String = detail.into();
        let shown = rules::escape(detail.chars().take(DETAIL_MAX));
        Refused(Box::new(Problem::new(code, shown)))
    }
}

impl Refused {
    /// A field that is wrong.
    pub(super) fn field(field: &str, rule: &str) -> Refused {
        let mut refused = Refused::new(Code::Invalid, format!("{field} {rule}"));
        refused.0.field = Some(field.to_owned());
        refused
    }

    /// A body of a type that the endpoint does not take.
    pub(super) fn media_type(expected: &str, given: Option<&[u8]>) -> Refused {
        let given = match given {
            None => "there is none".to_owned(),
            Some(given) => format!("not \"{}\"", quoted(given)),
        };
        let mut refused = Refused::field("content-type", &format!("must be {expected}, {given}"));
        refused.0.status = UNSUPPORTED_MEDIA_TYPE;
        refused
    }

    /// Something that a setting of the gateway lets nobody do.
    pub(super) fn forbidden(setting: &str, detail: String) -> Refused {
        let mut refused = Refused::new(Code::Forbidden, detail);
        refused.0.field = Some(setting.to_owned());
        refused
    }

    /// Something outside of the bounds of a key. There may be room for one more before long.
    pub(super) fn denied(denied: &Denied) -> Refused {
        let code = if denied.is_quota { Code::QuotaExceeded } else { Code::Forbidden };
        let mut refused = Refused::new(code, denied.to_string());
        refused.0.field = Some(denied.bound.to_owned());
        refused.0.retry_after_ms = denied.is_quota.then_some(RETRY_AFTER_MS);
        refused
    }

    /// A limit that is reached, which others may leave room in soon.
    pub(super) fn over(code: Code, limit: &str, detail: String) -> Refused {
        let mut refused = Refused::new(code, detail);
        refused.0.field = Some(limit.to_owned());
        refused.0.retry_after_ms = Some(RETRY_AFTER_MS);
        refused
    }

    /// More calls than a key lets its principal make.
    pub(super) fn too_fast(caller: &Caller, wait: Duration) -> Refused {
        let rate = caller.bounds.requests_per_second.unwrap_or_default();
        let mut refused = Refused::new(
            Code::QuotaExceeded,
            format!(
                "{:?} makes more calls than requests_per_second = {rate} of its key; wait as long as \
                 Retry-After says, or ask the gateway's administrator to raise it",
                caller.principal.name
            ),
        );
        refused.0.field = Some("requests_per_second".to_owned());
        refused.0.retry_after_ms = u64::try_from(wait.as_millis()).ok().map(|ms| ms.max(1));
        refused
    }

    /// Something that the store cannot do for a while.
    pub(super) fn unavailable(detail: String, wait: Duration) -> Refused {
        let mut refused = Refused::later(detail, wait);
        let problem = *refused.0;
        refused.0 = Box::new(Problem {
            retry_after_ms: problem.retry_after_ms,
            ..Problem::new(Code::UpstreamUnavailable, problem.detail)
        });
        refused
    }

    /// Something that may be asked again after a while.
    pub(super) fn later(detail: String, wait: Duration) -> Refused {
        let mut refused = Refused::new(Code::QuotaExceeded, detail);
        refused.0.retry_after_ms = u64::try_from(wait.as_millis()).ok().map(|ms| ms.max(1));
        refused
    }

    /// What is refused, for a face that has other words for it.
    pub(super) fn problem(&self) -> &Problem {
        &self.0
    }

    /// True if the caller could have known better.
    pub(super) fn is_of_caller(&self) -> bool {
        self.0.status < 500
    }
}

impl From<Problem> for Refused {
    fn from(problem: Problem) -> Refused {
        Refused(Box::new(problem))
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl From<Lacking> for Refused {
    fn from(lacking: Lacking) -> Refused {
        let mut refused = Refused::new(Code::Forbidden, lacking.to_string());
        refused.0.field = Some(lacking.right.word().to_owned());
        refused
    }
}

impl From<Stranger> for Refused {
    fn from(stranger: Stranger) -> Refused {
        match stranger {
            Stranger::Doubtful => {
                let mut refused = Refused::new(Code::UpstreamUnavailable, stranger.to_string());
                refused.0.retry_after_ms = Some(RETRY_AFTER_MS);
                refused
            }
            // Another key or certificate would be of no use.
            Stranger::Unlisted | Stranger::NoOrigin => {
                Refused::new(Code::Forbidden, stranger.to_string())
            }
            _ => Refused::new(Code::Unauthorized, stranger.to_string()),
        }
    }
}

impl From<Invalid> for Refused {
    fn from(invalid: Invalid) -> Refused {
        Refused(Box::new(invalid.into()))
    }
}

impl From<Failure> for Refused {
    /// Both failures are 503: something between the gateway and its caller may say so, too, and never tells
    /// which of them it is. What the store's own check refuses is its caller's fault, and where it has no room nothing was done.
    fn from(failure: Failure) -> Refused {
        match failure {
            Failure::Denied(Denial { rule: DenialRule::Invalid, detail }) => {
                return Refused::new(Code::Invalid, detail);
            }
            Failure::Denied(Denial { rule: DenialRule::Quota(after), detail }) => {
                return Refused::later(detail, after);
            }
            _ => {}
        }
        let mut refused = Refused::new(Code::UpstreamUnavailable, failure.cause());
        refused.0.retry_after_ms = Some(RETRY_AFTER_MS);
        refused
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let Refused(problem) = self;
        let body = serde_json::to_vec(&problem).unwrap_or_default();
        let mut response = Response::new(Body::from(body));
        *response.status_mut() =
            StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        let media_type = HeaderValue::from_static("application/problem+json");
        headers.insert(header::CONTENT_TYPE, media_type);
        if let Some(ms) = problem.retry_after_ms {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(ms.div_ceil(1000).max(1)));
        }
        if problem.code == Code::Unauthorized {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        let is_cut = problem.field.as_deref().is_some_and(|field| field.starts_with(BODY_LIMITS));
        if problem.code == Code::TooLarge || is_cut {
            // Bytes that the caller still sends would be taken for its next request.
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}
