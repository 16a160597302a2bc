//! The configuration in the words of the API, which does not know where its limits and rules come
//! from.

use crate::api;
use crate::config::{Ask, Limits, SharedPolicy};

impl api::Policy for SharedPolicy {
    fn has_rules(&self) -> bool {
        self.current().has_rules()
    }

    fn allows(&self, uid: u32, gid: u32, ask: &api::Ask<'_>) -> bool {
        let api::Ask { tenant, project, kind, name, priority } = *ask;
        self.current().allows(uid, gid, &Ask { tenant, project, kind, name, priority }).is_ok()
    }
}

/// The limits of the API as configured.
pub fn api_limits(limits: &Limits) -> api::Limits {
    api::Limits {
        connections_max: limits.connections_max,
        connections_per_uid_max: limits.connections_per_uid_max,
        head_timeout: limits.header_timeout,
        ..api::Limits::default()
    }
}

#[cfg(test)]
mod tests {
    use tenure::wire::Kind;

    use super::*;
    use crate::api::Policy;
    use crate::config::{self, Environment, Flags};

    #[test]
    fn rules_reach_the_api_also_after_a_reload() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("tenured.toml");
        std::fs::write(&file, "[[allow]]\nuid = 7\nkinds = [\"leader\"]\nnames = [\"a*\"]")
            .unwrap();
        let flags = Flags { config: Some(file), ..Flags::default() };
        let configured = config::load(&flags, &Environment::default()).unwrap().config.policy;
        let ask =
            |kind, name| api::Ask { kind: Some(kind), name: Some(name), ..api::Ask::tenant("t") };

        let shared = SharedPolicy::default();
        assert!(!shared.has_rules() && shared.allows(8, 8, &ask(Kind::Lease, "b")));
        shared.replace(configured);
        assert!(shared.has_rules());
        assert!(shared.allows(7, 8, &ask(Kind::Leader, "ab")));
        assert!(!shared.allows(7, 8, &ask(Kind::Leader, "b")));
        assert!(!shared.allows(7, 8, &ask(Kind::Lease, "ab")));
        assert!(!shared.allows(8, 8, &ask(Kind::Leader, "ab")));
    }

    #[test]
    fn defaults_agree() {
        assert_eq!(api_limits(&Limits::default()), api::Limits::default());
    }
}
