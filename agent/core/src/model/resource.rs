//! Resources, and the ids of claims and sessions.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tenure_wire::{DEFAULT_TENANT, Kind};
use uuid::Uuid;

/// A session's id: unique per incarnation, never a host name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SessionId(pub Uuid);

/// A hold's id. It doubles as the operation id of its claim and of its release: the same claim
/// sent twice is one claim.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ClaimId(pub Uuid);

/// Bytes of an id's end that are its principal's mark, behind a gateway.
pub const MARK_BYTES: usize = 6;

impl ClaimId {
    /// True if a gateway scoped both for the same principal: their ids have the same end.
    pub fn shares_mark(self, other: ClaimId) -> bool {
        self.0.as_bytes().last_chunk::<MARK_BYTES>() == other.0.as_bytes().last_chunk()
    }
}

/// A host's name as people know it. Never used to decide who owns what.
pub type HostId = Arc<str>;

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Display for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// A named thing that can be held. Tenants never see or block each other.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Resource {
    pub tenant: Arc<str>,
    pub kind: Kind,
    /// The name; for a master the project.
    pub name: Arc<str>,
}

impl fmt::Debug for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if &*self.tenant != DEFAULT_TENANT {
            write!(f, "{}:", self.tenant)?;
        }
        write!(f, "{}/{}", self.kind, self.name)
    }
}
