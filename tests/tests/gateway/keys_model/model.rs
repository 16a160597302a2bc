//! PURE. The deeds that keys allow, and the holders of everything: a function for each bound and right.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

pub(crate) const KINDS: [&str; 4] = ["leader", "master", "lease", "semaphore"];
pub(crate) const RIGHTS: [&str; 9] =
    ["revoke", "limit", "proxy", "history", "agents", "examine", "metrics", "audit", "owners"];

/// A resource.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) tenant: String,
    pub(crate) kind: &'static str,
    pub(crate) name: &'static str,
}

impl Place {
    pub(crate) fn json(&self) -> Value {
        json!({"tenant": self.tenant, "kind": self.kind, "name": self.name})
    }
}

/// A hold of a principal.
#[derive(Debug, Clone)]
pub(crate) struct Hold {
    pub(crate) who: usize,
    pub(crate) id: usize,
    pub(crate) token: u64,
    pub(crate) priority: i64,
}

/// The bounds and rights of a key.
#[derive(Debug)]
pub(crate) struct Bounds {
    pub(crate) tenants: &'static str,
    pub(crate) projects: &'static str,
    pub(crate) names: &'static str,
    pub(crate) kinds: BTreeSet<&'static str>,
    pub(crate) priority_max: Option<i64>,
    pub(crate) rights: BTreeSet<&'static str>,
}

fn is_match(glob: &str, text: &str) -> bool {
    glob.strip_suffix('*').map_or(glob == text, |begin| text.starts_with(begin))
}

/// The bound or right, unless it is kept or there.
fn unless(is_good: bool, word: &'static str) -> Vec<&'static str> {
    if is_good { Vec::new() } else { vec![word] }
}

impl Bounds {
    /// The bounds that a resource is outside of; of a master that is claimed also that of its priority.
    pub(crate) fn outside(&self, place: &Place, priority: Option<i64>) -> Vec<&'static str> {
        let is_master = place.kind == "master";
        let (bound, globs) =
            if is_master { ("projects", self.projects) } else { ("names", self.names) };
        let priority = priority.filter(|_| is_master);
        [
            unless(is_match(self.tenants, &place.tenant), "tenants"),
            // Without a list a key has all kinds.
            unless(self.kinds.is_empty() || self.kinds.contains(place.kind), "kinds"),
            unless(is_match(globs, place.name), bound),
            unless(
                priority.is_none_or(|it| self.priority_max.is_none_or(|max| it <= max)),
                "priority_max",
            ),
        ]
        .concat()
    }

    /// Taking what others hold takes the right, and no master of others is taken by a key that bounds priorities.
    pub(crate) fn revoke(&self, who: usize, place: &Place, taken: &[Hold]) -> Vec<&'static str> {
        let is_own = taken.iter().all(|hold| hold.who == who);
        let is_bounded = place.kind == "master" && self.priority_max.is_some();
        [
            unless(is_own || self.rights.contains("revoke"), "revoke"),
            unless(is_own || !is_bounded, "priority_max"),
        ]
        .concat()
    }

    /// Others are seen with the right alone.
    pub(crate) fn owners(&self, who: usize, of: usize) -> bool {
        who == of || self.rights.contains("owners")
    }

    /// A deed that takes a right and nothing else.
    pub(crate) fn plain(&self, right: &'static str) -> Vec<&'static str> {
        unless(self.rights.contains(right), right)
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Held,
    Contended,
}

/// The holders of everything, and the limits in force.
#[derive(Debug, Default)]
pub(crate) struct World {
    holds: BTreeMap<Place, Vec<Hold>>,
    limits: BTreeMap<Place, i64>,
}

impl World {
    pub(crate) fn holders(&self, place: &Place) -> &[Hold] {
        self.holds.get(place).map_or(&[], Vec::as_slice)
    }

    /// A limit that others go by is changed with the right alone.
    pub(crate) fn limit(
        &self,
        bounds: &Bounds,
        who: usize,
        place: &Place,
        asked: i64,
    ) -> Vec<&'static str> {
        let is_alone = self.holders(place).iter().all(|hold| hold.who == who);
        let is_in_force = self.limits.get(place).is_none_or(|limit| *limit == asked);
        unless(is_alone || is_in_force || bounds.rights.contains("limit"), "limit")
    }

    /// A claim that is let through: what becomes of it, of the limit, and of a master with less priority.
    pub(crate) fn claim(&mut self, place: &Place, number: i64) -> Outcome {
        let holds = self.holds.entry(place.clone()).or_default();
        let room = match place.kind {
            "semaphore" => {
                self.limits.insert(place.clone(), number);
                usize::try_from(number).unwrap_or(0)
            }
            "master" => {
                holds.retain(|hold| hold.priority >= number);
                1
            }
            _ => 1,
        };
        if holds.len() < room { Outcome::Held } else { Outcome::Contended }
    }

    pub(crate) fn hold(&mut self, place: &Place, hold: Hold) {
        self.holds.entry(place.clone()).or_default().push(hold);
    }

    /// Ends some; with its last user a limit goes.
    pub(crate) fn end(&mut self, place: &Place, is_ended: impl Fn(&Hold) -> bool) {
        let holds = self.holds.entry(place.clone()).or_default();
        holds.retain(|hold| !is_ended(hold));
        if holds.is_empty() {
            self.limits.remove(place);
        }
    }
}
