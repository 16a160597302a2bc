//! The `[[allow]]` rules: the rights of each user.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use tenure_bounds::{Ask, Bounds, Outside};
use tenure_core::model::Quota;

/// A set of users or groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Who {
    /// Everybody.
    Any,
    /// These.
    Ids(Vec<u32>),
}

impl Who {
    fn contains(&self, id: u32) -> bool {
        match self {
            Who::Any => true,
            Who::Ids(ids) => ids.contains(&id),
        }
    }
}

/// One `[[allow]]`: everything in it must fit.
#[derive(Debug, Clone)]
pub struct Rule {
    /// The caller's user.
    pub uid: Who,
    /// The primary group of the caller's process.
    pub gid: Who,
    /// What they may have.
    pub bounds: Bounds,
}

/// No rule lets them. Says who, what, and whom to ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denied {
    uid: u32,
    gid: u32,
    asked: String,
    /// The asked priority, and the highest one that the user has.
    priority: Option<(i32, i32)>,
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Denied { uid, gid, asked, priority } = self;
        match priority {
            Some((asked, max)) => write!(
                f,
                "uid {uid} (gid {gid}) may ask for priority {max} at most, not {asked}; ask for less, \
                 or have priority_max raised in the [[allow]] rules of the agent's configuration"
            ),
            None => write!(
                f,
                "no [[allow]] rule of the agent's configuration lets uid {uid} (gid {gid}) have \
                 {asked}; ask the administrator of this host for one"
            ),
        }
    }
}

impl std::error::Error for Denied {}

/// All rules. Without any, everybody who can open the socket may do everything.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    rules: Vec<Rule>,
}

impl Policy {
    /// A policy of these rules.
    pub fn new(rules: Vec<Rule>) -> Policy {
        Policy { rules }
    }

    pub(super) fn extend(&mut self, rules: Vec<Rule>) {
        self.rules.extend(rules);
    }

    /// True if there are no rules, and so nothing to find out before asking.
    pub fn is_open(&self) -> bool {
        self.rules.is_empty()
    }

    /// Asks the rules: one of them must allow all that is asked for.
    ///
    /// # Errors
    ///
    /// [`Denied`] with the reason.
    pub fn allows(&self, uid: u32, gid: u32, ask: &Ask<'_>) -> Result<(), Denied> {
        if self.is_open() {
            return Ok(());
        }
        let mut ceiling = None;
        for rule in self.of(uid, gid) {
            match rule.bounds.outside(ask) {
                None => return Ok(()),
                Some(Outside::Priority(max)) => ceiling = ceiling.max(Some(max)),
                Some(_) => {}
            }
        }
        let priority = ask.priority.zip(ceiling);
        Err(Denied { uid, gid, asked: describe(ask), priority })
    }

    /// How much a user may have: the most generous of the rules for it.
    pub fn quota(&self, uid: u32, gid: u32) -> Quota {
        let most = |of: fn(&Bounds) -> Option<usize>| {
            let mut found: Option<usize> = None;
            for rule in self.of(uid, gid) {
                found = Some(found.unwrap_or(0).max(of(&rule.bounds)?));
            }
            found
        };
        Quota {
            sessions_max: most(|bounds| bounds.sessions_max),
            holds_max: most(|bounds| bounds.holds_max),
        }
    }

    fn of(&self, uid: u32, gid: u32) -> impl Iterator<Item = &Rule> {
        self.rules.iter().filter(move |rule| rule.uid.contains(uid) && rule.gid.contains(gid))
    }
}

fn describe(ask: &Ask<'_>) -> String {
    let what = match (ask.kind, ask.name) {
        (Some(kind), Some(name)) => format!("{kind}/{name}"),
        (Some(kind), None) => format!("a {kind}"),
        (None, _) => "a session".to_owned(),
    };
    match ask.project {
        Some(project) => format!("{what} in tenant {:?}, project {project:?}", ask.tenant),
        None => format!("{what} in tenant {:?}", ask.tenant),
    }
}

/// The policy in effect, which a reload replaces while requests are judged.
#[derive(Debug, Clone, Default)]
pub struct SharedPolicy(Arc<RwLock<Arc<Policy>>>);

impl SharedPolicy {
    /// Shares a policy.
    pub fn new(policy: Policy) -> SharedPolicy {
        SharedPolicy(Arc::new(RwLock::new(Arc::new(policy))))
    }

    /// The one in effect now.
    pub fn current(&self) -> Arc<Policy> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts another one into effect.
    pub fn replace(&self, policy: Policy) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(policy);
    }
}

#[cfg(test)]
mod tests {
    use tenure_wire::Kind;

    use super::*;
    use crate::config::{Origin, allow};

    fn policy(text: &str) -> Policy {
        let mut table: toml::Table = text.parse().unwrap();
        let tables =
            allow::ALLOW.tables(&table.remove("allow").unwrap(), &Origin::Default).unwrap();
        Policy::new(allow::rules(&tables, &vec![Origin::Default; tables.len()], 0).unwrap())
    }

    fn ask<'a>(kind: Kind, name: &'a str) -> Ask<'a> {
        Ask {
            tenant: "default",
            project: Some("default"),
            kind: Some(kind),
            name: Some(name),
            priority: None,
        }
    }

    #[test]
    fn without_rules_everything_is_allowed() {
        let policy = Policy::default();
        assert_eq!(policy.allows(7, 7, &ask(Kind::Leader, "a")), Ok(()));
        assert_eq!(policy.quota(7, 7), Quota::default());
    }

    #[test]
    fn one_rule_must_allow_all_of_it() {
        let policy = policy(
            r#"
            [[allow]]
            uid = 7
            tenants = ["default", "team-*"]
            kinds = ["leader", "semaphore"]
            names = ["ci/*", "gpu"]
            [[allow]]
            gid = [50, 51]
            tenants = ["other"]
            "#,
        );
        let leader = ask(Kind::Leader, "ci/a/b");
        assert_eq!(policy.allows(7, 7, &leader), Ok(()));
        assert_eq!(policy.allows(7, 7, &Ask { tenant: "team-x", ..leader }), Ok(()));
        assert_eq!(policy.allows(7, 7, &ask(Kind::Semaphore, "gpu")), Ok(()));
        policy.allows(8, 7, &leader).unwrap_err();
        policy.allows(7, 7, &ask(Kind::Lease, "gpu")).unwrap_err();
        policy.allows(7, 7, &ask(Kind::Leader, "prod")).unwrap_err();
        policy.allows(7, 7, &Ask { tenant: "other", ..leader }).unwrap_err();
        // Rules do not add up to more than each of them allows.
        policy.allows(7, 50, &Ask { tenant: "other", ..ask(Kind::Leader, "x") }).unwrap();
        policy.allows(7, 50, &ask(Kind::Leader, "x")).unwrap_err();
        // To register is to ask for the tenant alone.
        let register = Ask { tenant: "default", ..Ask::default() };
        assert_eq!(policy.allows(7, 7, &register), Ok(()));
        let denied = policy.allows(8, 9, &register).unwrap_err();
        assert_eq!(
            denied.to_string(),
            "no [[allow]] rule of the agent's configuration lets uid 8 (gid 9) have a session in \
             tenant \"default\"; ask the administrator of this host for one"
        );
    }

    #[test]
    fn priority_has_a_ceiling() {
        let policy = policy(
            "[[allow]]\nuid = \"*\"\npriority_max = 10\n[[allow]]\nuid = 7\npriority_max = 100",
        );
        let master =
            |priority| Ask { kind: Some(Kind::Master), priority: Some(priority), ..Ask::default() };
        assert_eq!(policy.allows(8, 8, &master(10)), Ok(()));
        assert_eq!(policy.allows(7, 8, &master(100)), Ok(()));
        let denied = policy.allows(7, 8, &master(101)).unwrap_err();
        assert!(denied.to_string().contains("priority 100 at most, not 101"), "{denied}");
    }

    #[test]
    fn the_most_generous_quota_counts() {
        let policy = policy(
            "[[allow]]\nuid = \"*\"\nsessions_max = 2\nholds_max = 5\n[[allow]]\nuid = 7\nsessions_max = 9",
        );
        assert_eq!(policy.quota(8, 8), Quota { sessions_max: Some(2), holds_max: Some(5) });
        assert_eq!(policy.quota(7, 8), Quota { sessions_max: Some(9), holds_max: None });
    }

    #[test]
    fn a_shared_policy_can_be_replaced() {
        let shared = SharedPolicy::default();
        let other = shared.clone();
        shared.replace(policy("[[allow]]\nuid = 7"));
        assert!(other.current().allows(8, 8, &ask(Kind::Leader, "a")).is_err());
    }
}
