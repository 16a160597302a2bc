//! Bounds: what somebody may have at most. Agents know users, gateways know keys; both go by this.

#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "a name that says all needs no comment; nobody else links this")]

mod globs;

use tenure_wire::Kind;

pub use self::globs::{BadGlob, Globs};

/// Everything in it must fit.
#[derive(Debug, Clone)]
pub struct Bounds {
    /// Tenants; `None` for all.
    pub tenants: Option<Globs>,
    /// Projects; `None` for all.
    pub projects: Option<Globs>,
    pub kinds: Vec<Kind>,
    /// Names of resources, not of masters, which have none; `None` for all.
    pub names: Option<Globs>,
    /// Highest priority that a master may be asked for with; `None` for any.
    pub priority_max: Option<i32>,
    /// Most sessions; `None` for no bound of this kind.
    pub sessions_max: Option<usize>,
    /// Most holds, waiting ones counted; `None` for no bound of this kind.
    pub holds_max: Option<usize>,
}

impl Default for Bounds {
    /// Everything fits.
    fn default() -> Bounds {
        Bounds {
            tenants: None,
            projects: None,
            kinds: Kind::ALL.to_vec(),
            names: None,
            priority_max: None,
            sessions_max: None,
            holds_max: None,
        }
    }
}

/// A wish.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ask<'a> {
    pub tenant: &'a str,
    /// `None` where no project is involved.
    pub project: Option<&'a str>,
    /// `None` to register.
    pub kind: Option<Kind>,
    /// `None` to register, for a master, and for all of a kind.
    pub name: Option<&'a str>,
    pub priority: Option<i32>,
}

impl<'a> Ask<'a> {
    /// A wish for a resource, or to read of it. The name of a master is its project.
    pub fn resource(tenant: &'a str, kind: Kind, name: &'a str) -> Ask<'a> {
        let ask = Ask { tenant, kind: Some(kind), ..Ask::default() };
        match kind {
            Kind::Master => Ask { project: Some(name), ..ask },
            Kind::Leader | Kind::Lease | Kind::Semaphore => Ask { name: Some(name), ..ask },
        }
    }
}

/// The bound that a wish is outside of.
#[derive(Debug, Clone, Copy)]
pub enum Outside<'a> {
    Tenant(&'a Globs),
    Project(&'a Globs),
    Kind(&'a [Kind]),
    Name(&'a Globs),
    /// Everything else fits.
    Priority(i32),
}

impl Bounds {
    /// True if every resource is within them.
    pub fn names_all(&self) -> bool {
        let Bounds { tenants, projects, names, kinds, .. } = self;
        [tenants, projects, names].iter().all(|globs| globs.is_none())
            && kinds.len() == Kind::ALL.len()
    }

    /// The first bound that a wish is outside of; `None` if it fits.
    pub fn outside<'a>(&'a self, ask: &Ask<'_>) -> Option<Outside<'a>> {
        let broken = |globs: &'a Option<Globs>, text: Option<&str>| {
            globs.as_ref().filter(|globs| text.is_some_and(|text| !globs.is_match(text)))
        };
        if let Some(globs) = broken(&self.tenants, Some(ask.tenant)) {
            return Some(Outside::Tenant(globs));
        }
        if let Some(globs) = broken(&self.projects, ask.project) {
            return Some(Outside::Project(globs));
        }
        if ask.kind.is_some_and(|kind| !self.kinds.contains(&kind)) {
            return Some(Outside::Kind(&self.kinds));
        }
        if let Some(globs) = broken(&self.names, ask.name) {
            return Some(Outside::Name(globs));
        }
        let (asked, max) = ask.priority.zip(self.priority_max)?;
        (asked > max).then_some(Outside::Priority(max))
    }
}
