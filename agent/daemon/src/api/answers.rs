//! Refusals that several endpoints have: in the document of the API each of them stands once.

use tenure_wire::Problem;
use utoipa::{IntoResponses, ToResponse};

macro_rules! refusals {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        $(
            $(#[$doc])*
            #[derive(ToResponse)]
            #[response(content_type = "application/problem+json")]
            #[expect(dead_code, reason = "only its shape is used")]
            pub(super) struct $name(Problem);
        )*
    };
}

refusals! {
    /// `forbidden`
    Forbidden,
    /// `forbidden`: only root and the agent's own user may
    AdministratorsOnly,
    /// `session_unknown`
    SessionUnknown,
    /// `session_lost`
    SessionLost,
    /// `too_large`: the body is larger than 64 KiB
    TooLarge,
    /// `invalid`: a field is wrong, unknown or missing; the detail names it
    Invalid,
    /// `invalid`: there are no query parameters
    NoParameters,
    /// `quota_exceeded`: the detail names the limit, `Retry-After` says when to come again
    QuotaExceeded,
    /// `upstream_unavailable` or `stopping`; `Retry-After` says when to come again
    Unavailable,
}

/// Answers that every endpoint has which takes input and asks the heart.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "only its shape is used")]
pub(super) enum Common {
    #[response(status = 422)]
    Invalid(#[ref_response] Invalid),
    #[response(status = 429)]
    QuotaExceeded(#[ref_response] QuotaExceeded),
    #[response(status = 503)]
    Unavailable(#[ref_response] Unavailable),
}

/// Further answers of an endpoint that takes no input and asks nobody.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "only its shape is used")]
pub(super) enum NoInput {
    #[response(status = 422)]
    NoParameters(#[ref_response] NoParameters),
    #[response(status = 429)]
    QuotaExceeded(#[ref_response] QuotaExceeded),
}

/// Further answers of every endpoint with a body.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "only its shape is used")]
pub(super) enum BadBody {
    #[response(status = 413)]
    TooLarge(#[ref_response] TooLarge),
}
