//! Names of keys and channels.

use uuid::Uuid;

use super::*;

fn resource(tenant: &str, kind: Kind, name: &str) -> Resource {
    Resource { tenant: tenant.into(), kind, name: name.into() }
}

#[track_caller]
fn check(key: &str, expected: Option<About>) {
    assert_eq!(Layout::default().about(key.as_bytes()), expected, "{key}");
}

#[test]
fn keys_of_the_default_tenant_are_those_that_programs_use_today() {
    let layout = Layout::default();
    let tenant = DEFAULT_TENANT;
    assert_eq!(layout.leader(tenant, "cleanup"), "leader:cleanup");
    assert_eq!(layout.semaphore(tenant, SemaphoreKey::Main, "gpu"), "adv-sem:semaphore_main:gpu");
    assert_eq!(layout.semaphore(tenant, SemaphoreKey::Ttl, "gpu"), "adv-sem:semaphore_ttl:gpu");
    assert_eq!(layout.semaphore(tenant, SemaphoreKey::Max, "gpu"), "adv-sem:semaphore_max:gpu");
    assert_eq!(
        layout.semaphore(tenant, SemaphoreKey::Waiting, "gpu"),
        "adv-sem:semaphore_waiting:gpu"
    );
    assert_eq!(
        layout.semaphore(tenant, SemaphoreKey::WaitingHeartbeat, "gpu"),
        "adv-sem:semaphore_waiting_heartbeat:gpu"
    );
    assert_eq!(layout.notification(tenant, "0a"), "adv-sem:acquisition_notification:0a");
    assert_eq!(layout.session("s"), "prism:session:s");
    assert_eq!(layout.master(tenant, "p"), "prism:master:default:p");
    assert_eq!(layout.sessions(tenant, "p"), "prism:project:default:p:sessions");
    assert_eq!(layout.project_channel(tenant, "p"), "prism:events:project:default:p");
    assert_eq!(layout.session_channel("s"), "prism:events:session:s");
    assert_eq!(layout.lease(tenant, "l"), "tenure:lease:l");
    assert_eq!(layout.leases(tenant), "tenure:leases");
    assert_eq!(layout.routes(tenant), "tenure:routes");
    assert_eq!(layout.sets(), "tenure:sets");
    assert_eq!(layout.fence(tenant), "tenure:fence");
    assert_eq!(layout.claim(tenant, "c"), "tenure:claim:c");
    assert_eq!(layout.master_claim(tenant, "p"), "tenure:master:p");
    let role = resource(tenant, Kind::Leader, "x");
    assert_eq!(layout.queue(&role), "tenure:queue:leader:x");
    assert_eq!(layout.queue_ends(&role), "tenure:queue_ends:leader:x");
    assert_eq!(layout.queue_sessions(tenant, "l"), "tenure:queue_sessions:l");
    assert_eq!(layout.agent_channel("0a"), "tenure:agent:0a");
    let id = hyphenated(Uuid::from_u128(0x12));
    let agents = layout.agent_channel(&agents_of(principal_of(&id)));
    assert_eq!(agents, "tenure:agent:of:000000000012");
    let principal = "000000000012".into();
    assert_eq!(layout.channel(agents.as_bytes()), Some(Channel::Agents { principal }));
    assert_eq!(layout.channel(b"tenure:agent:0a"), Some(Channel::Agent));
}

#[test]
fn keys_of_other_tenants_carry_the_tenant_once() {
    let layout = Layout::default();
    assert_eq!(layout.leader("acme", "x"), "tenant:acme:leader:x");
    assert_eq!(
        layout.semaphore("acme", SemaphoreKey::Max, "gpu"),
        "tenant:acme:adv-sem:semaphore_max:gpu"
    );
    assert_eq!(layout.fence("acme"), "tenant:acme:tenure:fence");
    assert_eq!(layout.routes_channel("acme"), "tenant:acme:tenure:routes");
    assert_eq!(layout.master("acme", "p"), "prism:master:acme:p");
    assert_eq!(layout.master_claim("acme", "p"), "tenant:acme:tenure:master:p");
}

#[test]
fn a_key_says_what_it_is_about() {
    for tenant in ["default", "acme", "Ümläut"] {
        for name in ["x", "a:b", ":", "lease:x", "π/日本", "tenant:t:leader:x"] {
            let layout = Layout::default();
            let about = |kind| Some(About::Resource(resource(tenant, kind, name)));
            check(&layout.leader(tenant, name), about(Kind::Leader));
            check(&layout.lease(tenant, name), about(Kind::Lease));
            let semaphore = resource(tenant, Kind::Semaphore, name);
            check(
                &layout.semaphore(tenant, SemaphoreKey::Main, name),
                Some(About::Permits(semaphore.clone())),
            );
            check(
                &layout.semaphore(tenant, SemaphoreKey::Waiting, name),
                Some(About::Queue(semaphore.clone())),
            );
            check(
                &layout.semaphore(tenant, SemaphoreKey::Max, name),
                Some(About::Limit(semaphore)),
            );
            check(&layout.semaphore(tenant, SemaphoreKey::WaitingHeartbeat, name), None);
        }
        let master = Some(About::Resource(resource(tenant, Kind::Master, "p")));
        check(&Layout::default().master(tenant, "p"), master.clone());
        check(&Layout::default().sessions(tenant, "p"), master);
        let id = ClaimId(Uuid::from_u128(7));
        check(
            &Layout::default().notification(tenant, &member(id)),
            Some(About::Notification { id }),
        );
        check(&Layout::default().claim(tenant, &hyphenated(id.0)), None);
        check(&Layout::default().leases(tenant), None);
        check(&Layout::default().fence(tenant), None);
        check(&Layout::default().routes(tenant), None);
    }
}

#[test]
fn strange_keys_are_about_nothing() {
    for key in [
        "",
        "leader:",
        "tenant:",
        "tenant:t",
        "tenant::leader:x",
        "tenant:default:leader:x",
        "tenant:t:prism:master:t:p",
        "prism:master:t",
        "prism:master:t:",
        "prism:master:t:p:q",
        "prism:project:t:p",
        "prism:session:x",
        "adv-sem:acquisition_notification:not-a-uuid",
        "adv-sem:acquisition_notification:00000000-0000-0000-0000-000000000007",
        "leaderx",
    ] {
        check(key, None);
    }
    assert_eq!(Layout::default().about(b"leader:\xff"), None);
}

#[test]
fn a_channel_says_what_it_is_about() {
    let layout = Layout::default();
    let about = |channel: &str| layout.channel(channel.as_bytes());
    assert_eq!(
        about("prism:events:project:t:p"),
        Some(Channel::ProjectEvents { tenant: "t".into(), project: "p".into() })
    );
    assert_eq!(
        about("prism:events:session:any:thing"),
        Some(Channel::SessionEvents { session: "any:thing".to_owned() })
    );
    assert_eq!(about("tenure:agent:0a"), Some(Channel::Agent));
    assert_eq!(about("tenure:routes"), Some(Channel::Routes { tenant: "default".into() }));
    assert_eq!(about("tenant:t:tenure:routes"), Some(Channel::Routes { tenant: "t".into() }));
    assert_eq!(about("tenant:t:tenure:agent:0a"), None);
    assert_eq!(about("prism:events:project:t"), None);
    assert_eq!(layout.channel(b"\xff"), None);
}

#[test]
fn shared_prefixes_do_not_overlap_and_cover_what_other_programs_do() {
    let layout = Layout::default();
    let prefixes = layout.shared_prefixes();
    for (index, one) in prefixes.iter().enumerate() {
        for other in &prefixes[..index] {
            assert!(!one.starts_with(other.as_str()) && !other.starts_with(one.as_str()));
        }
    }
    let told = |key: &str| prefixes.iter().any(|prefix| key.starts_with(prefix.as_str()));
    for tenant in ["default", "acme"] {
        for key in [SemaphoreKey::Main, SemaphoreKey::Waiting] {
            assert!(told(&layout.semaphore(tenant, key, "x")));
        }
    }
    for key in [
        layout.leader("default", "x"),
        layout.master("acme", "x"),
        layout.lease("default", "x"),
        layout.fence("default"),
        layout.semaphore("default", SemaphoreKey::Max, "x"),
    ] {
        assert!(!told(&key), "{key}");
    }
}

#[test]
fn prefixes_that_could_be_mistaken_are_refused() {
    let with = |change: fn(&mut Prefixes)| {
        let mut prefixes = Prefixes::default();
        change(&mut prefixes);
        Layout::new(prefixes).map(drop)
    };
    assert_eq!(with(|_| {}), Ok(()));
    assert_eq!(with(|it| it.leader_prefix = "titan:leader:".to_owned()), Ok(()));
    assert!(with(|it| it.leader_prefix.clear()).is_err());
    assert!(with(|it| it.leader_prefix = "tenant:leader:".to_owned()).is_err());
    assert!(with(|it| it.leader_prefix = "tenure:".to_owned()).is_err());
    assert!(with(|it| it.session_prefix = "tenant".to_owned()).is_err());
    assert!(with(|it| it.session_prefix = "tenure".to_owned()).is_err());
    assert_eq!(
        with(|it| it.leader_prefix = "prism:".to_owned()).unwrap_err().to_string(),
        "redis.session_prefix gives keys that start with 'prism:session:', which cannot be told from \
         'prism:' of leader_prefix; choose prefixes none of which starts with another"
    );
}
