//! Everything that a remote store needs and that is not its own.

pub(crate) mod expiries;
pub(crate) mod own_claims;
