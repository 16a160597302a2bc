//! Holders and waiters that are not of a Tenure agent.

use sha2::{Digest, Sha256};
use uuid::{Builder, Uuid};

/// The name of a host that is not known.
pub(super) const UNKNOWN_HOST: &str = "unknown";

/// The id that a value is, or else one derived from it: always the same for the same value.
pub(super) fn id_of(value: &str) -> Uuid {
    let is_plain = matches!(value.len(), 32 | 36);
    match is_plain.then(|| Uuid::try_parse(value).ok()).flatten() {
        Some(id) => id,
        None => {
            let hash = Sha256::digest(value.as_bytes());
            let mut bytes = [0; 16];
            bytes.copy_from_slice(&hash[..16]);
            Builder::from_custom_bytes(bytes).into_uuid()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_itself_and_anything_else_has_a_stable_id() {
        let id = Uuid::from_u128(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
        assert_eq!(id_of(&id.hyphenated().to_string()), id);
        assert_eq!(id_of(&id.simple().to_string()), id);
        assert_eq!(id_of("worker-1"), id_of("worker-1"));
        assert_ne!(id_of("worker-1"), id_of("worker-2"));
        assert_eq!(id_of("worker-1").get_version_num(), 8);
    }
}
