//! `GET /v1/can`.

use serde::{Deserialize, Serialize};

/// What the `[[allow]]` rules of an agent say of a user who wants to hold a resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Permission {
    /// The user.
    pub uid: u32,
    /// The primary group of its processes.
    pub gid: u32,
    /// True if the rules allow it, or there are none.
    pub allowed: bool,
    /// Why not, in the words of the refusal that the user would get.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}
