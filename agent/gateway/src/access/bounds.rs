//! The bounds of a key, and what is outside of them.

use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

use tenure_bounds::{Ask, Bounds, Outside};
use tenure_core::model::{
    Beat, Claim, Members, Request, Resource, SessionRecord, Subject, Terms, Within, is_own_tenant,
};
use tenure_stores::settings::value::show;
use tenure_wire::{Kind, Routes};

use super::rights::Rights;

/// What a key lets its principal have. The default lets it have everything of its own, and has no rights.
#[derive(Debug, Clone, Default)]
pub struct KeyBounds {
    /// It is for an exchange, and for nothing else.
    pub is_once: bool,
    pub scope: Bounds,
    /// Most claims that wait.
    pub waiters_max: Option<usize>,
    /// Most calls at a time, and as many with beats.
    pub calls_max: Option<usize>,
    pub streams_max: Option<usize>,
    pub proxies_max: Option<usize>,
    /// Most bytes of records in the store.
    pub bytes_max: Option<usize>,
    /// Longest ttl of a session or a claim.
    pub ttl_max: Option<Duration>,
    /// Calls in a second; as many beats come on top.
    pub requests_per_second: Option<u32>,
    /// Rows that it reads in a second, in the long run.
    pub rows_per_second: Option<NonZeroU32>,
    /// Deeds that concern other principals.
    pub rights: Rights,
}

/// Something outside of the bounds of a key: the thing with its value, and the bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denied {
    /// The bound, as the file of keys calls it.
    pub bound: &'static str,
    /// True if it is within them once its principal has less.
    pub is_quota: bool,
    what: String,
    rule: String,
}

/// How the names of settings begin that give bounds.
const SETTINGS: &str = "limits.";

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Denied { bound, is_quota, what, rule } = self;
        if *is_quota && bound.starts_with(SETTINGS) {
            return write!(
                f,
                "{what} is more than the gateway allows, which is {bound} = {rule}; release some, or ask the \
                 gateway's administrator to raise it, or to give this key a bound of its own"
            );
        }
        if *is_quota {
            return write!(
                f,
                "{what} is more than the bounds of this key allow, which are {bound} = {rule}; release some, or \
                 ask the gateway's administrator to raise {bound}"
            );
        }
        write!(
            f,
            "{what} is outside of the bounds of this key, which are {bound} = {rule}; stay within them, or \
             ask the gateway's administrator to widen {bound}"
        )
    }
}

impl Denied {
    /// More than there may be.
    pub(super) fn quota(bound: &'static str, what: String, max: usize) -> Denied {
        Denied { bound, is_quota: true, what, rule: max.to_string() }
    }
}

impl KeyBounds {
    /// Judges a request other than beats, which are judged one by one.
    ///
    /// # Errors
    ///
    /// With the first bound that it is outside of.
    pub fn judge(&self, request: &Request) -> Result<(), Denied> {
        match request {
            Request::Claim(claim) => self.judge_claim(claim),
            Request::Announce(SessionRecord { tenant, project, ttl, .. }) => {
                self.judge_project(tenant, project)?;
                self.judge_ttl(*ttl)
            }
            Request::EndSession { tenant, project, .. } => self.judge_project(tenant, project),
            Request::Release { resource, .. }
            | Request::Inspect(resource)
            | Request::Holders(resource)
            | Request::History(resource)
            | Request::Revoke { resource, .. } => self.judge_resource(resource),
            Request::Members { within: Within::Project { tenant, project }, .. } => {
                self.judge_project(tenant, project)
            }
            // Its own session; the answer says in which project that is.
            Request::Members { within: Within::Session(_), .. } => Ok(()),
            Request::Routes { tenant, name, .. } => {
                self.judge_ask(&Ask { name: name.as_deref(), ..of_kind(tenant, Kind::Lease) })
            }
            // Whoever asks is shown what is within them.
            Request::Resources { .. } => Ok(()),
            Request::Record(entries) => {
                entries.iter().try_for_each(|entry| self.judge_resource(&entry.resource))
            }
            Request::Renew(beats) => beats.iter().try_for_each(|beat| self.judge_beat(beat)),
        }
    }

    /// Judges a beat. That of a session renews the master of its project, too.
    ///
    /// # Errors
    ///
    /// With the first bound that it is outside of.
    pub fn judge_beat(&self, Beat { subject, ttl }: &Beat) -> Result<(), Denied> {
        match subject {
            Subject::Claim { resource, .. } => self.judge_resource(resource)?,
            // A session that may not be master has a project all the same.
            Subject::Session { master, .. } => self.judge_project(&master.tenant, &master.name)?,
        }
        self.judge_ttl(*ttl)
    }

    /// True if its principal may be told of a resource.
    pub fn shows(&self, Resource { tenant, kind, name }: &Resource) -> bool {
        !is_own_tenant(tenant) && self.scope.outside(&Ask::resource(tenant, *kind, name)).is_none()
    }

    /// Judges what was told of a project that its caller did not name.
    ///
    /// # Errors
    ///
    /// With the first bound that it is outside of.
    pub fn judge_members(&self, members: &Members) -> Result<(), Denied> {
        self.judge_project(&members.tenant, &members.project)
    }

    /// Takes out of a routing table what its principal may not be told of.
    pub fn narrow(&self, routes: &mut Routes) {
        if let Some(names) = &self.scope.names {
            routes.routes.retain(|route| names.is_match(&route.name));
            routes.total = None;
        }
    }

    /// Refuses a master of another principal to a key that bounds priorities: its priority may be above the bound, and
    /// the store does not tell it.
    ///
    /// # Errors
    ///
    /// With the bound.
    pub fn judge_revocation(&self, resource: &Resource) -> Result<(), Denied> {
        match self.scope.priority_max.filter(|_| resource.kind == Kind::Master) {
            None => Ok(()),
            Some(max) => {
                let what = format!("master {:?} of another principal", resource.name);
                let (bound, rule) = ("priority_max", max.to_string());
                Err(Denied { bound, is_quota: false, what, rule })
            }
        }
    }

    fn judge_claim(&self, Claim { resource, ttl, terms, .. }: &Claim) -> Result<(), Denied> {
        let Resource { tenant, kind, name } = resource;
        let priority = match terms {
            Terms::Master { priority } => Some(*priority),
            Terms::Leader | Terms::Semaphore { .. } | Terms::Lease { .. } => None,
        };
        self.judge_ask(&Ask { priority, ..Ask::resource(tenant, *kind, name) })?;
        if let Terms::Lease { grace, .. } = terms {
            self.judge_time("grace", *grace)?;
        }
        self.judge_ttl(*ttl)
    }

    fn judge_resource(&self, Resource { tenant, kind, name }: &Resource) -> Result<(), Denied> {
        self.judge_ask(&Ask::resource(tenant, *kind, name))
    }

    fn judge_project(&self, tenant: &str, project: &str) -> Result<(), Denied> {
        self.judge_ask(&of_project(tenant, project))
    }

    fn judge_ttl(&self, ttl: Duration) -> Result<(), Denied> {
        self.judge_time("ttl", ttl)
    }

    fn judge_time(&self, what: &str, time: Duration) -> Result<(), Denied> {
        match self.ttl_max {
            Some(max) if time > max => {
                let what = format!("a {what} of {}", show(time));
                Err(Denied { bound: "ttl_max", is_quota: false, what, rule: show(max) })
            }
            _ => Ok(()),
        }
    }

    fn judge_ask(&self, ask: &Ask<'_>) -> Result<(), Denied> {
        if is_own_tenant(ask.tenant) {
            let what = format!("tenant {:?}, which Tenure keeps for itself,", ask.tenant);
            let rule = "all others".to_owned();
            return Err(Denied { bound: "tenants", is_quota: false, what, rule });
        }
        let Some(outside) = self.scope.outside(ask) else { return Ok(()) };
        let Ask { tenant, project, kind, name, priority } = *ask;
        let kind = kind.map_or("session", Kind::as_str);
        let named = project.or(name).unwrap_or_default();
        let (bound, what, rule) = match outside {
            Outside::Tenant(globs) => ("tenants", format!("tenant {tenant:?}"), globs.to_string()),
            Outside::Project(globs) => {
                ("projects", format!("project {named:?}"), globs.to_string())
            }
            Outside::Kind(kinds) => {
                let kinds: Vec<_> =
                    kinds.iter().map(|kind| format!("{:?}", kind.as_str())).collect();
                ("kinds", format!("{kind} {named:?}"), kinds.join(", "))
            }
            Outside::Name(globs) => ("names", format!("{kind} {named:?}"), globs.to_string()),
            Outside::Priority(max) => {
                let what = format!("priority {}", priority.unwrap_or_default());
                ("priority_max", what, max.to_string())
            }
        };
        Err(Denied { bound, is_quota: false, what, rule })
    }
}

fn of_kind(tenant: &str, kind: Kind) -> Ask<'_> {
    Ask { tenant, kind: Some(kind), ..Ask::default() }
}

fn of_project<'a>(tenant: &'a str, project: &'a str) -> Ask<'a> {
    Ask { tenant, project: Some(project), ..Ask::default() }
}

#[cfg(test)]
mod tests {
    use tenure_bounds::Globs;
    use tenure_core::model::{ClaimId, GATEWAYS_TENANT, Owner, Page, SessionId};
    use uuid::Uuid;

    use super::*;

    const TTL: Duration = Duration::from_secs(30);

    fn bounds() -> KeyBounds {
        let globs = |text: &str| Some(Globs::new([text]).unwrap());
        KeyBounds {
            scope: Bounds {
                tenants: globs("acme"),
                projects: globs("web-*"),
                kinds: vec![Kind::Master, Kind::Leader, Kind::Lease],
                names: globs("ci/*"),
                priority_max: Some(0),
                ..Bounds::default()
            },
            ttl_max: Some(TTL),
            ..KeyBounds::default()
        }
    }

    fn resource(tenant: &str, kind: Kind, name: &str) -> Resource {
        Resource { tenant: tenant.into(), kind, name: name.into() }
    }

    fn owner() -> Owner {
        Owner { session: SessionId(Uuid::nil()), host: "h".into(), name: "n".into() }
    }

    fn claim(resource: Resource, ttl: Duration, terms: Terms) -> Request {
        let id = ClaimId(Uuid::nil());
        Request::Claim(Claim { id, resource, owner: owner(), ttl, terms, enqueue: false })
    }

    fn announce(project: &str, ttl: Duration) -> Request {
        let (tenant, project) = ("acme".into(), project.into());
        let surface = "s".into();
        Request::Announce(SessionRecord {
            owner: owner(),
            tenant,
            project,
            surface,
            ttl,
            registered_at: None,
        })
    }

    fn beat(resource: Resource, ttl: Duration) -> Beat {
        Beat { subject: Subject::Claim { claim: ClaimId(Uuid::nil()), resource }, ttl }
    }

    fn session_beat(tenant: &str, project: &str) -> Beat {
        let master = resource(tenant, Kind::Master, project);
        Beat { subject: Subject::Session { session: SessionId(Uuid::nil()), master }, ttl: TTL }
    }

    #[test]
    fn every_request_is_judged_by_all_that_it_names() {
        let bounds = bounds();
        let good = resource("acme", Kind::Leader, "ci/a");
        let other_tenant = resource("other", Kind::Leader, "ci/a");
        let other_name = resource("acme", Kind::Lease, "prod/a");
        let semaphore = resource("acme", Kind::Semaphore, "ci/a");
        let (master, other_master) =
            (resource("acme", Kind::Master, "web-1"), resource("acme", Kind::Master, "api"));
        let session = SessionId(Uuid::nil());
        let end = |tenant: &str, project: &str| Request::EndSession {
            session,
            tenant: tenant.into(),
            project: project.into(),
        };
        let routes = |tenant: &str, name: Option<&str>| Request::Routes {
            tenant: tenant.into(),
            name: name.map(Into::into),
            page: Page::whole(),
        };
        let id = ClaimId(Uuid::nil());
        let release =
            |resource: &Resource| Request::Release { claim: id, resource: resource.clone() };
        let revoke = |resource: &Resource| Request::Revoke {
            resource: resource.clone(),
            token: None,
            revocation: None,
        };
        let too_long = TTL + Duration::from_millis(1);
        let high = Terms::Master { priority: 1 };
        for (request, bound) in [
            (claim(good.clone(), TTL, Terms::Leader), None),
            (claim(good.clone(), too_long, Terms::Leader), Some("ttl_max")),
            (claim(other_tenant.clone(), TTL, Terms::Leader), Some("tenants")),
            (
                claim(semaphore, TTL, Terms::Semaphore { limit: 1, keeps: false, only_own: false }),
                Some("kinds"),
            ),
            (claim(master.clone(), TTL, Terms::Master { priority: 0 }), None),
            (claim(master, TTL, high.clone()), Some("priority_max")),
            (claim(other_master.clone(), TTL, high), Some("projects")),
            (announce("web-1", TTL), None),
            (announce("web-1", too_long), Some("ttl_max")),
            (announce("api", TTL), Some("projects")),
            (end("acme", "web-1"), None),
            (end("other", "web-1"), Some("tenants")),
            (release(&good), None),
            (release(&other_name), Some("names")),
            (revoke(&other_name), Some("names")),
            (Request::Inspect(good.clone()), None),
            (Request::Inspect(other_master), Some("projects")),
            (Request::Holders(other_tenant.clone()), Some("tenants")),
            (routes("acme", None), None),
            (routes("acme", Some("ci/a")), None),
            (routes("acme", Some("prod")), Some("names")),
            (routes("other", None), Some("tenants")),
            (Request::Renew(vec![beat(good.clone(), TTL), session_beat("acme", "web-1")]), None),
            (Request::Renew(vec![beat(good.clone(), too_long)]), Some("ttl_max")),
            (Request::Renew(vec![beat(other_tenant, TTL)]), Some("tenants")),
            (Request::Renew(vec![session_beat("acme", "api")]), Some("projects")),
            (Request::Renew(vec![session_beat("other", "web-1")]), Some("tenants")),
        ] {
            let judged = bounds.judge(&request).err().map(|denied| denied.bound);
            assert_eq!(judged, bound, "{request:?}");
            KeyBounds::default().judge(&request).unwrap();
        }
    }

    #[test]
    fn what_gateways_keep_for_themselves_is_nobodys() {
        let anybody = KeyBounds::default();
        let own = |kind| resource(GATEWAYS_TENANT, kind, "proxies");
        let record = SessionRecord {
            owner: owner(),
            tenant: GATEWAYS_TENANT.into(),
            project: "proxies".into(),
            surface: "acme".into(),
            ttl: TTL,
            registered_at: None,
        };
        let project = Within::Project { tenant: GATEWAYS_TENANT.into(), project: "proxies".into() };
        for request in [
            Request::Announce(record),
            Request::Members { within: project, listed: true, page: None },
            Request::Inspect(own(Kind::Master)),
            claim(own(Kind::Master), TTL, Terms::Master { priority: 0 }),
            Request::Routes { tenant: GATEWAYS_TENANT.into(), name: None, page: Page::whole() },
        ] {
            assert!(anybody.judge(&request).is_err(), "{request:?}");
        }
        assert!(!anybody.shows(&own(Kind::Master)));
        assert!(anybody.judge_beat(&beat(own(Kind::Master), TTL)).is_err());
    }

    #[test]
    fn a_refusal_has_the_thing_the_value_the_rule_and_the_way_out() {
        let wrong = claim(resource("acme", Kind::Leader, "prod"), TTL, Terms::Leader);
        let denied = bounds().judge(&wrong).unwrap_err();
        assert_eq!(
            denied.to_string(),
            "leader \"prod\" is outside of the bounds of this key, which are names = \"ci/*\"; stay within \
             them, or ask the gateway's administrator to widen names"
        );
        let wrong = claim(resource("acme", Kind::Leader, "ci/a"), TTL * 3, Terms::Leader);
        let denied = bounds().judge(&wrong).unwrap_err().to_string();
        assert!(denied.starts_with("a ttl of 90s is outside") && denied.contains("ttl_max = 30s"));
    }
}
