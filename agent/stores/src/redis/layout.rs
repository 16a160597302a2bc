//! Pure. Names of keys and channels, and what a name is about.
//!
//! The session plane is that of SPEC-032, leaders that of ADR-0004, semaphores those of the Python
//! package `asyncio-advanced-semaphores`; what starts with the tenure prefix is Tenure's own.

use std::sync::Arc;

use tenure_core::model::{ClaimId, Resource};
use tenure_wire::{DEFAULT_TENANT, Kind};

use super::ids::{AGENTS_OF, claim_of_member};
pub use super::ids::{agents_of, hyphenated, member, principal_of, session_text};
pub use super::prefixes::{PrefixClash, Prefixes};

/// The subject of a key. Expired-key events name keys, so this is what they are about too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum About {
    /// Holders of an exclusive resource, or sessions of a master's project, came or went.
    Resource(Resource),
    /// Holders of a semaphore came, went or were renewed.
    Permits(Resource),
    /// Waiters of a semaphore came or went.
    Queue(Resource),
    /// The limit of a semaphore.
    Limit(Resource),
    /// Somebody granted a waiting claim its permit.
    Notification {
        /// The claim, if it is one of a Tenure agent.
        id: ClaimId,
    },
}

/// The subject of a message on a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Channel {
    /// A message to a project.
    ProjectEvents { tenant: Arc<str>, project: Arc<str> },
    /// A message to a session.
    SessionEvents {
        /// The session's id; programs without Tenure may use other ids than uuids.
        session: String,
    },
    /// The message is a claim, and either `lost` if its grant was taken away, or, if it waited and was granted, its
    /// token, the server's time, ms, for how many ms it is kept, and the limit of a semaphore.
    Agent,
    /// The same for the agents of a principal behind gateways, or what one gateway tells the others for them.
    Agents { principal: Arc<str> },
    /// A routing table has a new version.
    Routes { tenant: Arc<str> },
}

/// Names of keys and channels.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Layout {
    prefixes: Prefixes,
}

/// The five keys of a semaphore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SemaphoreKey {
    /// ZSET of holders, by when they expire.
    Main,
    /// ZSET of holders, by when their longest duration ends.
    Ttl,
    /// STRING, the limit.
    Max,
    /// ZSET of waiters, by when they came.
    Waiting,
    /// ZSET of waiters, by when they expire.
    WaitingHeartbeat,
}

impl SemaphoreKey {
    const fn as_str(self) -> &'static str {
        match self {
            SemaphoreKey::Main => "main",
            SemaphoreKey::Ttl => "ttl",
            SemaphoreKey::Max => "max",
            SemaphoreKey::Waiting => "waiting",
            SemaphoreKey::WaitingHeartbeat => "waiting_heartbeat",
        }
    }
}

/// The prefix of the keys of every other tenant.
const OTHER_TENANTS: &str = Layout::OTHER_TENANTS;

impl Layout {
    /// The prefix of the keys of every tenant but the default one: its name and a colon follow.
    pub const OTHER_TENANTS: &str = "tenant:";

    /// A layout with these prefixes; refused if a key of one family could be read as one of another.
    pub fn new(prefixes: Prefixes) -> Result<Layout, PrefixClash> {
        let layout = Layout { prefixes };
        let families = layout.families();
        for (index, (setting, start)) in families.iter().enumerate() {
            for (other, other_start) in &families[..index] {
                if start.starts_with(other_start.as_str())
                    || other_start.starts_with(start.as_str())
                {
                    return Err(PrefixClash {
                        setting,
                        start: start.clone(),
                        other,
                        other_start: other_start.clone(),
                    });
                }
            }
        }
        Ok(layout)
    }

    /// The prefixes of the default tenant's keys, each with the setting it comes from.
    fn families(&self) -> Vec<(&'static str, String)> {
        let Prefixes { session_prefix, leader_prefix, semaphore_namespace, tenure_prefix } =
            &self.prefixes;
        let mut families = vec![
            ("keys of other tenants", OTHER_TENANTS.to_owned()),
            ("leader_prefix", leader_prefix.clone()),
            ("semaphore_namespace", format!("{semaphore_namespace}:semaphore_")),
            ("semaphore_namespace", format!("{semaphore_namespace}:acquisition_notification:")),
        ];
        for part in ["session:", "master:", "project:"] {
            families.push(("session_prefix", format!("{session_prefix}:{part}")));
        }
        let own = "lease: leases routes fence claim: master: caretaker: queue key history: histories sets store epoch";
        for part in own.split(' ') {
            families.push(("tenure_prefix", format!("{tenure_prefix}:{part}")));
        }
        families
    }

    /// The prefixes.
    pub fn prefixes(&self) -> &Prefixes {
        &self.prefixes
    }

    /// STRING: the hold of the leader.
    pub fn leader(&self, tenant: &str, role: &str) -> String {
        format!("{}{}{role}", tenant_prefix(tenant), self.prefixes.leader_prefix)
    }

    /// One of a semaphore's keys.
    pub fn semaphore(&self, tenant: &str, key: SemaphoreKey, name: &str) -> String {
        let namespace = &self.prefixes.semaphore_namespace;
        format!("{}{namespace}:semaphore_{}:{name}", tenant_prefix(tenant), key.as_str())
    }

    /// LIST: an element wakes up the waiter. `member` is the id as the semaphore's sets have it.
    pub fn notification(&self, tenant: &str, member: &str) -> String {
        let namespace = &self.prefixes.semaphore_namespace;
        format!("{}{namespace}:acquisition_notification:{member}", tenant_prefix(tenant))
    }

    /// HASH: a session of the session plane.
    pub fn session(&self, session: &str) -> String {
        format!("{}:session:{session}", self.prefixes.session_prefix)
    }

    /// STRING: the session that is master.
    pub fn master(&self, tenant: &str, project: &str) -> String {
        format!("{}{tenant}:{project}", self.masters())
    }

    /// SET: the sessions of a project.
    pub fn sessions(&self, tenant: &str, project: &str) -> String {
        let (start, end) = self.projects();
        format!("{start}{tenant}:{project}{end}")
    }

    /// The prefix of every master key: a tenant, a colon and a project follow.
    pub fn masters(&self) -> String {
        format!("{}:master:", self.prefixes.session_prefix)
    }

    /// The prefix and the suffix of the key of every project's sessions; between them a tenant, a
    /// colon and a project.
    pub fn projects(&self) -> (String, &'static str) {
        (format!("{}:project:", self.prefixes.session_prefix), ":sessions")
    }

    /// HASH: a lease.
    pub fn lease(&self, tenant: &str, name: &str) -> String {
        self.tenure(tenant, &format!("lease:{name}"))
    }

    /// SET: the names of all leases.
    pub fn leases(&self, tenant: &str) -> String {
        self.tenure(tenant, "leases")
    }

    /// STRING: the version of the routing table. Also the channel that tells of a new one.
    pub fn routes(&self, tenant: &str) -> String {
        self.tenure(tenant, "routes")
    }

    /// STRING: the last token.
    pub fn fence(&self, tenant: &str) -> String {
        self.tenure(tenant, "fence")
    }

    /// HASH: what agents know of a claim, or with `session:` before its id that a session has ended. Without an id,
    /// what all of them start with.
    pub fn claim(&self, tenant: &str, id: &str) -> String {
        self.tenure(tenant, &format!("claim:{id}"))
    }

    /// STRING: the claim of a project's master. Outlives the master key, to tell how it ended.
    pub fn master_claim(&self, tenant: &str, project: &str) -> String {
        self.tenure(tenant, &format!("master:{project}"))
    }

    /// ZSET of equal scores: who waits for an exclusive resource, in order.
    pub fn queue(&self, Resource { tenant, kind, name }: &Resource) -> String {
        format!("{}{kind}:{name}", self.queues(tenant))
    }

    /// The prefix of all of them: a kind, a colon and a name follow.
    pub fn queues(&self, tenant: &str) -> String {
        self.tenure(tenant, "queue:")
    }

    /// ZSET of the same members, by when their time is up.
    pub fn queue_ends(&self, Resource { tenant, kind, name }: &Resource) -> String {
        format!("{}{kind}:{name}", self.queues_ends(tenant))
    }

    /// The prefix of all of those: a kind, a colon and a name follow. With `queue_turns:` in its place the scripts
    /// keep when the resource was last left open to programs that poll.
    pub fn queues_ends(&self, tenant: &str) -> String {
        self.tenure(tenant, "queue_ends:")
    }

    /// ZSET of equal scores: who waits for a lease, by session.
    pub fn queue_sessions(&self, tenant: &str, name: &str) -> String {
        self.tenure(tenant, &format!("queue_sessions:{name}"))
    }

    /// The prefix of the ZSET of changes of every resource, by when they happened, us: a kind, a colon and a name follow.
    pub fn histories(&self, tenant: &str) -> String {
        self.tenure(tenant, "history:")
    }

    /// ZSET: keys of sets that cannot expire, sessions of projects and names of leases, by when to look for dead
    /// members of them, ms.
    pub fn sets(&self) -> String {
        self.tenure(DEFAULT_TENANT, "sets")
    }

    /// HASH: the epoch of the store, of all tenants. With a colon and the epoch's id after it, STRING: the count of
    /// writes in that epoch.
    pub fn epoch(&self) -> String {
        self.tenure(DEFAULT_TENANT, "epoch")
    }

    /// STRING: the agent that looks after semaphores of other programs.
    pub fn caretaker(&self) -> String {
        self.tenure(DEFAULT_TENANT, &format!("caretaker:{}", self.prefixes.semaphore_namespace))
    }

    pub(super) fn tenure(&self, tenant: &str, rest: &str) -> String {
        format!("{}{}:{rest}", tenant_prefix(tenant), self.prefixes.tenure_prefix)
    }

    /// The key that says who holds a resource.
    pub fn main(&self, resource: &Resource) -> String {
        let Resource { tenant, kind, name } = resource;
        match kind {
            Kind::Master => self.master(tenant, name),
            Kind::Leader => self.leader(tenant, name),
            Kind::Lease => self.lease(tenant, name),
            Kind::Semaphore => self.semaphore(tenant, SemaphoreKey::Main, name),
        }
    }

    /// The channel with messages to a project.
    pub fn project_channel(&self, tenant: &str, project: &str) -> String {
        format!("{}{tenant}:{project}", self.project_channels())
    }

    /// The prefix of every project's channel: a tenant, a colon and a project follow.
    pub fn project_channels(&self) -> String {
        format!("{}:events:project:", self.prefixes.session_prefix)
    }

    /// The channel with messages to a session.
    pub fn session_channel(&self, session: &str) -> String {
        format!("{}:events:session:{session}", self.prefixes.session_prefix)
    }

    /// The channel that tells an agent what its waiters are granted, and what its holders have lost.
    pub fn agent_channel(&self, agent: &str) -> String {
        format!("{}:agent:{agent}", self.prefixes.tenure_prefix)
    }

    /// The channel that tells of a routing table's new version.
    pub fn routes_channel(&self, tenant: &str) -> String {
        self.routes(tenant)
    }

    /// The prefixes for `CLIENT TRACKING ON BCAST PREFIX …` that cover what programs without Tenure do to
    /// semaphores. None starts with another, which Redis would refuse.
    pub fn shared_prefixes(&self) -> [String; 3] {
        let of = |key| self.semaphore(DEFAULT_TENANT, key, "");
        [of(SemaphoreKey::Main), of(SemaphoreKey::Waiting), OTHER_TENANTS.to_owned()]
    }

    /// The pattern of every semaphore's holders and waiters for `SCAN … MATCH`, of all tenants.
    pub fn permits_pattern(&self) -> String {
        format!("*{}:semaphore_*", self.prefixes.semaphore_namespace)
    }

    /// The pattern of every semaphore's waiters and limit, and of a little more, for `SCAN … MATCH`, of all
    /// tenants.
    pub fn survey_pattern(&self) -> String {
        format!("*{}:semaphore_[mw]a[ix]*", self.prefixes.semaphore_namespace)
    }

    /// The subject of a key; `None` if nobody waits for it.
    pub fn about(&self, key: &[u8]) -> Option<About> {
        let key = std::str::from_utf8(key).ok()?;
        match key.strip_prefix(OTHER_TENANTS) {
            Some(rest) => {
                let (tenant, rest) = rest.split_once(':')?;
                let is_other = !tenant.is_empty() && tenant != DEFAULT_TENANT;
                is_other.then(|| self.about_tenants(tenant, rest)).flatten()
            }
            None => self.about_projects(key).or_else(|| self.about_tenants(DEFAULT_TENANT, key)),
        }
    }

    fn about_tenants(&self, tenant: &str, key: &str) -> Option<About> {
        let Prefixes { leader_prefix, semaphore_namespace, tenure_prefix, .. } = &self.prefixes;
        let of = |kind, name: &str| {
            let named = !name.is_empty();
            named.then(|| Resource { tenant: tenant.into(), kind, name: name.into() })
        };
        if let Some(role) = key.strip_prefix(leader_prefix.as_str()) {
            return of(Kind::Leader, role).map(About::Resource);
        }
        let part = |namespace: &str, part: &str| {
            Some(key.strip_prefix(namespace)?.strip_prefix(':')?.strip_prefix(part)?.to_owned())
        };
        if let Some(name) = part(tenure_prefix, "lease:") {
            return of(Kind::Lease, &name).map(About::Resource);
        }
        if let Some(name) = part(semaphore_namespace, "semaphore_main:") {
            return of(Kind::Semaphore, &name).map(About::Permits);
        }
        if let Some(name) = part(semaphore_namespace, "semaphore_waiting:") {
            return of(Kind::Semaphore, &name).map(About::Queue);
        }
        if let Some(name) = part(semaphore_namespace, "semaphore_max:") {
            return of(Kind::Semaphore, &name).map(About::Limit);
        }
        let member = part(semaphore_namespace, "acquisition_notification:")?;
        Some(About::Notification { id: claim_of_member(&member)? })
    }

    fn about_projects(&self, key: &str) -> Option<About> {
        let rest = key.strip_prefix(self.prefixes.session_prefix.as_str())?.strip_prefix(':')?;
        let project = match rest.strip_prefix("master:") {
            Some(project) => project,
            None => rest.strip_prefix("project:")?.strip_suffix(":sessions")?,
        };
        let (tenant, project) = split_project(project)?;
        Some(About::Resource(Resource { tenant, kind: Kind::Master, name: project }))
    }

    /// The resource that a key says somebody holds, waits for, or is announced for.
    pub fn occupied(&self, key: &str) -> Option<Resource> {
        if let Some(About::Resource(of) | About::Permits(of) | About::Queue(of)) =
            self.about(key.as_bytes())
        {
            return Some(of);
        }
        let tenant = key.strip_prefix(OTHER_TENANTS).and_then(|rest| rest.split_once(':'));
        let tenant = tenant.map_or(DEFAULT_TENANT, |(tenant, _)| tenant);
        let (kind, name) = key.strip_prefix(&self.queues_ends(tenant))?.split_once(':')?;
        Some(Resource { tenant: tenant.into(), kind: kind.parse().ok()?, name: name.into() })
    }

    /// The subject of a message on a channel; `None` if the channel is not one of these.
    pub fn channel(&self, channel: &[u8]) -> Option<Channel> {
        let channel = std::str::from_utf8(channel).ok()?;
        if let Some(agent) = channel.strip_prefix(&self.agent_channel("")) {
            return Some(match agent.strip_prefix(AGENTS_OF) {
                Some(principal) => Channel::Agents { principal: principal.into() },
                None => Channel::Agent,
            });
        }
        if channel == self.routes_channel(DEFAULT_TENANT) {
            return Some(Channel::Routes { tenant: DEFAULT_TENANT.into() });
        }
        if let Some(rest) = channel.strip_prefix(OTHER_TENANTS)
            && let Some((tenant, _)) = rest.split_once(':')
            && !tenant.is_empty()
            && channel == self.routes_channel(tenant)
        {
            return Some(Channel::Routes { tenant: tenant.into() });
        }
        let events = channel.strip_prefix(self.prefixes.session_prefix.as_str())?;
        let events = events.strip_prefix(":events:")?;
        if let Some(session) = events.strip_prefix("session:") {
            return Some(Channel::SessionEvents { session: session.to_owned() });
        }
        let (tenant, project) = split_project(events.strip_prefix("project:")?)?;
        Some(Channel::ProjectEvents { tenant, project })
    }
}

fn tenant_prefix(tenant: &str) -> String {
    match tenant {
        DEFAULT_TENANT => String::new(),
        other => format!("{OTHER_TENANTS}{other}:"),
    }
}

/// Tenant and project; neither has a colon.
fn split_project(text: &str) -> Option<(Arc<str>, Arc<str>)> {
    let (tenant, project) = text.split_once(':')?;
    let is_one = !tenant.is_empty() && !project.is_empty() && !project.contains(':');
    is_one.then(|| (tenant.into(), project.into()))
}

#[cfg(test)]
#[path = "layout_tests.rs"]
mod tests;
