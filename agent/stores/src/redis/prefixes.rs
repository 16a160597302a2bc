//! Pure. What the names of keys begin with, as configured.

/// The prefixes of keys, as configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prefixes {
    /// For the session plane; a colon follows.
    pub session_prefix: String,
    /// For leaders, its colon included: the role follows at once.
    pub leader_prefix: String,
    /// For semaphores; a colon follows.
    pub semaphore_namespace: String,
    /// For keys that only Tenure uses; a colon follows.
    pub tenure_prefix: String,
}

impl Default for Prefixes {
    fn default() -> Prefixes {
        Prefixes {
            session_prefix: "prism".to_owned(),
            leader_prefix: "leader:".to_owned(),
            semaphore_namespace: "adv-sem".to_owned(),
            tenure_prefix: "tenure".to_owned(),
        }
    }
}

/// Prefixes that cannot be used together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "redis.{setting} gives keys that start with '{start}', which cannot be told from '{other_start}' of \
     {other}; choose prefixes none of which starts with another"
)]
pub struct PrefixClash {
    pub(super) setting: &'static str,
    pub(super) start: String,
    pub(super) other: &'static str,
    pub(super) other_start: String,
}

impl PrefixClash {
    /// The setting to change, without its section.
    pub fn setting(&self) -> &'static str {
        self.setting
    }
}
