//! `GET /v1/log` and `PUT /v1/log`.

use serde::{Deserialize, Serialize};

/// The filter of the agent's log: a level (error, warn, info, debug, trace, off), or a filter such
/// as `info,tenured::api=debug`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LogFilter {
    /// The filter in effect.
    pub filter: String,
    /// The configured filter.
    pub configured: String,
}

/// The body of `PUT /v1/log`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SetLog {
    /// The filter for the time being; null for the configured one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
}
