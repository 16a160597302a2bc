//! `GET /v1/log` and `PUT /v1/log`.

use serde::{Deserialize, Serialize};

/// What the agent logs: a level (error, warn, info, debug, trace, off), or a filter such as
/// `info,tenured::api=debug`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LogFilter {
    /// What is in effect.
    pub filter: String,
    /// What the configuration says.
    pub configured: String,
}

/// The body of `PUT /v1/log`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SetLog {
    /// What to log for the time being; null for what the configuration says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
}
