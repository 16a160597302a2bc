//! What the API asks of the configured policy.

use tenure::wire::{Code, Kind, Problem};

use crate::keeper::Peer;

/// What somebody wants to do. Absent parts are not asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask<'a> {
    /// In which tenant.
    pub tenant: &'a str,
    /// In which project.
    pub project: Option<&'a str>,
    /// With which kind of resource.
    pub kind: Option<Kind>,
    /// With which resource.
    pub name: Option<&'a str>,
    /// With which priority.
    pub priority: Option<i32>,
}

impl<'a> Ask<'a> {
    /// Anything in a tenant.
    pub fn tenant(tenant: &'a str) -> Ask<'a> {
        Ask { tenant, project: None, kind: None, name: None, priority: None }
    }
}

/// Who may do what. Asked for every request, so that a reload takes effect at once.
pub trait Policy: Send + Sync {
    /// Whether there are any rules. Without, everybody who can open the socket may do everything,
    /// and nothing needs to be looked up.
    fn has_rules(&self) -> bool;

    /// Whether a rule allows it.
    fn allows(&self, uid: u32, gid: u32, ask: &Ask<'_>) -> bool;
}

/// No rules.
#[derive(Debug, Clone, Copy, Default)]
pub struct Open;

impl Policy for Open {
    fn has_rules(&self) -> bool {
        false
    }

    fn allows(&self, _uid: u32, _gid: u32, _ask: &Ask<'_>) -> bool {
        true
    }
}

/// Refuses with `forbidden` what no rule allows.
pub(super) fn check(policy: &dyn Policy, peer: &Peer, ask: &Ask<'_>) -> Result<(), Box<Problem>> {
    if !policy.has_rules() || policy.allows(peer.uid, peer.gid, ask) {
        return Ok(());
    }
    let mut what = format!("tenant {:?}", ask.tenant);
    let mut add = |part: String| {
        what.push_str(", ");
        what.push_str(&part);
    };
    if let Some(project) = ask.project {
        add(format!("project {project:?}"));
    }
    if let Some(kind) = ask.kind {
        add(format!("kind {kind}"));
    }
    if let Some(name) = ask.name {
        add(format!("name {name:?}"));
    }
    if let Some(priority) = ask.priority {
        add(format!("priority {priority}"));
    }
    Err(Problem::new(
        Code::Forbidden,
        format!(
            "no [[allow]] rule covers {what} for uid {} and gid {}; ask whoever configures the agent to add one",
            peer.uid, peer.gid
        ),
    )
    .into())
}
