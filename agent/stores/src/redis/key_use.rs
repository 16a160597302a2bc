//! Pure. The use of each key: the type that it must have, and the setting that its name begins with.

use super::layout::Layout;
use super::prefixes::Prefixes;

/// The type of a key of Tenure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyType {
    String,
    Hash,
    Set,
    SortedSet,
}

impl KeyType {
    /// Its name as `TYPE` says it.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            KeyType::String => "string",
            KeyType::Hash => "hash",
            KeyType::Set => "set",
            KeyType::SortedSet => "zset",
        }
    }
}

/// The use of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KeyUse {
    pub(super) key_type: KeyType,
    /// The setting with the prefix of the key, without its section.
    pub(super) setting: &'static str,
    /// The name of a resource or a project is part of the key: another name is another key.
    pub(super) has_name: bool,
}

impl Layout {
    /// The use of a key; `None` if it is no key of the scripts.
    pub(super) fn key_use(&self, key: &str) -> Option<KeyUse> {
        let Prefixes { session_prefix, leader_prefix, semaphore_namespace, tenure_prefix } =
            self.prefixes();
        let key = match key.strip_prefix(Layout::OTHER_TENANTS) {
            Some(rest) => rest.split_once(':')?.1,
            None => key,
        };
        let part = |prefix: &str| key.strip_prefix(prefix)?.strip_prefix(':');
        if key.starts_with(leader_prefix.as_str()) {
            let key_type = KeyType::String;
            return Some(KeyUse { key_type, setting: "leader_prefix", has_name: true });
        }
        if let Some(part) = part(semaphore_namespace) {
            let part = part.strip_prefix("semaphore_")?;
            let key_type = match part.starts_with("max:") {
                true => KeyType::String,
                false => KeyType::SortedSet,
            };
            return Some(KeyUse { key_type, setting: "semaphore_namespace", has_name: true });
        }
        if let Some(part) = part(session_prefix) {
            let (key_type, has_name) = match part.split_once(':')?.0 {
                "session" => (KeyType::Hash, false),
                "master" => (KeyType::String, true),
                "project" => (KeyType::Set, true),
                _ => return None,
            };
            return Some(KeyUse { key_type, setting: "session_prefix", has_name });
        }
        let (key_type, has_name) = own_use(part(tenure_prefix)?)?;
        Some(KeyUse { key_type, setting: "tenure_prefix", has_name })
    }
}

/// The type of a key that only Tenure uses, by what follows the prefix, and whether it has the name of a resource.
fn own_use(rest: &str) -> Option<(KeyType, bool)> {
    Some(match rest.split(':').next()? {
        "lease" => (KeyType::Hash, true),
        "claim" | "epoch" => (KeyType::Hash, false),
        "leases" => (KeyType::Set, false),
        "routes" | "fence" | "caretaker" => (KeyType::String, false),
        "master" => (KeyType::String, true),
        "queue" | "queue_ends" | "queue_sessions" | "history" => (KeyType::SortedSet, true),
        "histories" | "sets" => (KeyType::SortedSet, false),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use tenure_core::model::Resource;
    use tenure_wire::Kind;

    use super::super::layout::SemaphoreKey;
    use super::*;

    #[test]
    fn every_key_of_a_script_has_a_use() {
        let layout = Layout::default();
        for tenant in ["default", "acme"] {
            let leader =
                Resource { tenant: tenant.into(), kind: Kind::Leader, name: "board".into() };
            let semaphore = |key| layout.semaphore(tenant, key, "gpu");
            for (key, key_type, setting, has_name) in [
                (layout.main(&leader), KeyType::String, "leader_prefix", true),
                (semaphore(SemaphoreKey::Main), KeyType::SortedSet, "semaphore_namespace", true),
                (semaphore(SemaphoreKey::Ttl), KeyType::SortedSet, "semaphore_namespace", true),
                (semaphore(SemaphoreKey::Waiting), KeyType::SortedSet, "semaphore_namespace", true),
                (
                    semaphore(SemaphoreKey::WaitingHeartbeat),
                    KeyType::SortedSet,
                    "semaphore_namespace",
                    true,
                ),
                (semaphore(SemaphoreKey::Max), KeyType::String, "semaphore_namespace", true),
                (layout.session("lola"), KeyType::Hash, "session_prefix", false),
                (layout.master(tenant, "p"), KeyType::String, "session_prefix", true),
                (layout.sessions(tenant, "p"), KeyType::Set, "session_prefix", true),
                (layout.lease(tenant, "l"), KeyType::Hash, "tenure_prefix", true),
                (layout.leases(tenant), KeyType::Set, "tenure_prefix", false),
                (layout.routes(tenant), KeyType::String, "tenure_prefix", false),
                (layout.fence(tenant), KeyType::String, "tenure_prefix", false),
                (layout.claim(tenant, "id"), KeyType::Hash, "tenure_prefix", false),
                (layout.master_claim(tenant, "p"), KeyType::String, "tenure_prefix", true),
                (layout.queue(&leader), KeyType::SortedSet, "tenure_prefix", true),
                (layout.queue_ends(&leader), KeyType::SortedSet, "tenure_prefix", true),
                (layout.queue_sessions(tenant, "l"), KeyType::SortedSet, "tenure_prefix", true),
                (layout.sets(), KeyType::SortedSet, "tenure_prefix", false),
                (layout.epoch(), KeyType::Hash, "tenure_prefix", false),
                (layout.caretaker(), KeyType::String, "tenure_prefix", false),
            ] {
                let expected = KeyUse { key_type, setting, has_name };
                assert_eq!(layout.key_use(&key), Some(expected), "{key}");
            }
        }
        for foreign in
            ["", "board", "prism:other", "prism:other:x", "tenure", "tenure:x", "tenant:x"]
        {
            assert_eq!(layout.key_use(foreign), None, "{foreign}");
        }
    }
}
