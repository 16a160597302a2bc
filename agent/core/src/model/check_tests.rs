use std::sync::Arc;

use tenure_wire::rules::{CURSOR_MAX, PERMITS_MAX, TOKEN_MAX};
use tenure_wire::{Attributes, Happened};
use uuid::Uuid;

use super::*;
use crate::model::{ClaimId, Program, SessionId};

const TTL: Duration = Duration::from_secs(15);

fn resource(kind: Kind) -> Resource {
    Resource { tenant: "acme".into(), kind, name: "web".into() }
}

fn owner() -> Owner {
    Owner { session: SessionId(Uuid::nil()), host: "host-1".into(), name: "worker".into() }
}

fn claim(kind: Kind) -> Claim {
    let terms = match kind {
        Kind::Leader => Terms::Leader,
        Kind::Master => Terms::Master { priority: i32::MIN },
        Kind::Semaphore => Terms::Semaphore { limit: PERMITS_MAX, keeps: false, only_own: false },
        Kind::Lease => {
            let take_over = TakeOver { from: ClaimId(Uuid::nil()), unbeaten: TTL };
            let attributes = Attributes { status: Some("active".into()), ..Attributes::default() };
            Terms::Lease { grace: Duration::ZERO, attributes, take_over: Some(take_over.into()) }
        }
    };
    let (id, resource) = (ClaimId(Uuid::nil()), resource(kind));
    Claim { id, resource, owner: owner(), ttl: TTL, terms, enqueue: true }
}

fn record() -> SessionRecord {
    let (tenant, project) = ("acme".into(), "web".into());
    SessionRecord {
        owner: owner(),
        tenant,
        project,
        surface: "cli".into(),
        ttl: TTL,
        registered_at: None,
    }
}

fn change() -> HistoryEntry {
    HistoryEntry {
        resource: resource(Kind::Leader),
        claim: ClaimId(Uuid::nil()),
        owner: owner(),
        token: 1,
        what: Happened::Lost,
        holder: Holder {
            pid: Some(1),
            uid: Some(u32::MAX),
            program: Program { user: Some("root".into()), command: Some("\u{1b}[2J".into()) },
        },
        end: Ending { by: Some(long(TEXT_BYTES_MAX)), ..Ending::default() },
        held: PAST_MAX,
        ago: PAST_MAX,
    }
}

fn revocation() -> Revocation {
    Revocation { by: "b".repeat(REVOKED_BY_MAX), reason: None, for_ms: 86_400_000 }
}

fn revoke(revocation: Revocation) -> Request {
    let revocation = Some(Arc::new(revocation));
    Request::Revoke { resource: resource(Kind::Lease), token: Some(TOKEN_MAX), revocation }
}

fn long(bytes: usize) -> Arc<str> {
    "x".repeat(bytes).into()
}

/// Values that no name has.
const BAD_NAMES: [&str; 6] = ["", "a\0b", "a\u{1b}[2J", "a\r\nb", "a\u{202e}b", " a"];

#[track_caller]
fn passes(request: &Request) {
    assert_eq!(request.check(), Ok(()), "{request:?}");
}

#[track_caller]
fn fails(request: &Request, field: &str) {
    let invalid = request.check().unwrap_err();
    assert_eq!(invalid.field(), field, "{invalid}");
    let said = invalid.to_string();
    assert!(said.len() < 600 && !said.contains(char::is_control), "{said}");
}

/// Sets one text of a sound request.
type Change<T> = fn(&mut T, Arc<str>);

/// Each name that a change of a sound request sets.
fn names<T: Clone>(sound: &T, ask: fn(T) -> Request, changes: &[(&str, Change<T>, bool)]) {
    passes(&ask(sound.clone()));
    for (field, change, is_part) in changes {
        let with = |name: &str| {
            let mut changed = sound.clone();
            change(&mut changed, name.into());
            ask(changed)
        };
        passes(&with(&long(NAME_MAX)));
        let (too_long, huge) = (long(NAME_MAX + 1), long(240_000));
        for bad in BAD_NAMES.iter().copied().chain([&*too_long, &*huge]) {
            fails(&with(bad), field);
        }
        match is_part {
            true => fails(&with("a:b"), field),
            false => passes(&with("a:b")),
        }
    }
}

#[test]
fn each_name_of_what_is_made_is_visible() {
    names(
        &claim(Kind::Leader),
        Request::Claim,
        &[
            ("tenant", |it, name| it.resource.tenant = name, true),
            ("name", |it, name| it.resource.name = name, false),
            ("owner.host", |it, name| it.owner.host = name, false),
            ("owner.name", |it, name| it.owner.name = name, false),
        ],
    );
    let of_project: &[(&str, Change<Claim>, bool)] =
        &[("name", |it, name| it.resource.name = name, true)];
    names(&claim(Kind::Master), Request::Claim, of_project);
    names(
        &record(),
        Request::Announce,
        &[
            ("tenant", |it, name| it.tenant = name, true),
            ("project", |it, name| it.project = name, true),
            ("surface", |it, name| it.surface = name, false),
            ("owner.host", |it, name| it.owner.host = name, false),
            ("owner.name", |it, name| it.owner.name = name, false),
        ],
    );
    names(
        &change(),
        |it| Request::Record(vec![change(), it]),
        &[
            ("changes[1].tenant", |it, name| it.resource.tenant = name, true),
            ("changes[1].name", |it, name| it.resource.name = name, false),
            ("changes[1].owner.host", |it, name| it.owner.host = name, false),
            ("changes[1].owner.name", |it, name| it.owner.name = name, false),
        ],
    );
    names(
        &resource(Kind::Semaphore),
        |resource| Request::Revoke { resource, token: None, revocation: None },
        &[
            ("tenant", |it, name| it.tenant = name, true),
            ("name", |it, name| it.name = name, false),
        ],
    );
    names(
        &revocation(),
        revoke,
        &[("revocation.reason", |it, text| it.reason = Some((*text).to_owned()), false)],
    );
}

#[test]
fn names_of_what_is_there_may_be_those_of_other_programs() {
    let kinds = [Kind::Leader, Kind::Semaphore, Kind::Master];
    let requests: [fn(Resource) -> Request; 6] = [
        Request::Inspect,
        Request::Holders,
        Request::History,
        |resource| Request::Release { claim: ClaimId(Uuid::nil()), resource },
        |resource| {
            let subject = Subject::Claim { claim: ClaimId(Uuid::nil()), resource };
            Request::Renew(vec![Beat { subject, ttl: TTL }])
        },
        |master| {
            let subject = Subject::Session { session: SessionId(Uuid::nil()), master };
            Request::Renew(vec![Beat { subject, ttl: TTL }])
        },
    ];
    for (kind, request) in kinds.into_iter().flat_map(|kind| requests.map(|it| (kind, it))) {
        let with = |name: &str| request(Resource { name: name.into(), ..resource(kind) });
        let of_tenant =
            |tenant: &str| request(Resource { tenant: tenant.into(), ..resource(kind) });
        for odd in [" a", "a\u{202e}b", "a\r\nb", &long(NAME_MAX)] {
            passes(&with(odd));
            passes(&of_tenant(odd));
        }
        for bad in ["", "a\0b", &long(NAME_MAX + 1)] {
            assert!(with(bad).check().is_err() && of_tenant(bad).check().is_err(), "{bad:?}");
        }
        assert_eq!(with("a:b").check().is_ok(), kind != Kind::Master);
        assert!(of_tenant("a:b").check().is_err());
    }
    let whole = Page::whole;
    let routes = |name: &str| Request::Routes {
        tenant: "acme".into(),
        name: Some(name.into()),
        page: whole(),
    };
    passes(&routes("a\r\nb"));
    fails(&routes("a\0b"), "name");
    let end = |project: &str| Request::EndSession {
        session: SessionId(Uuid::nil()),
        tenant: "acme".into(),
        project: project.into(),
    };
    passes(&end("a\tb"));
    fails(&end("a:b"), "project");
    let within = |project: &str| Within::Project { tenant: "acme".into(), project: project.into() };
    let members =
        |project: &str| Request::Members { within: within(project), listed: true, page: None };
    passes(&members("a\tb"));
    fails(&members("a:b"), "project");
}

#[test]
fn pages_have_a_cursor_of_a_store_and_a_limit() {
    let page =
        |after: &str, limit| Request::Resources { page: Page { after: Some(after.into()), limit } };
    passes(&page(&long(CURSOR_MAX), 1));
    passes(&Request::Resources { page: Page::whole() });
    fails(&page(&long(CURSOR_MAX + 1), 1), "page.after");
    fails(&page("a\0", 1), "page.after");
    fails(&page("a", 0), "page.limit");
}

/// Each number or time that a change of a sound request sets.
#[track_caller]
fn ranges<T: Clone, V: Copy>(
    field: &str,
    (sound, ask): (&T, fn(T) -> Request),
    change: fn(&mut T, V),
    (good, bad): (&[V], &[V]),
) {
    let with = |value: V| {
        let mut changed = sound.clone();
        change(&mut changed, value);
        ask(changed)
    };
    good.iter().for_each(|value| passes(&with(*value)));
    bad.iter().for_each(|value| fails(&with(*value), field));
}

#[test]
fn numbers_and_times_are_in_range() {
    let (ms, over) = (Duration::from_millis(1), TIME_MAX + Duration::from_millis(1));
    let ttls = (&[ms, TIME_MAX][..], &[Duration::ZERO, over, Duration::MAX][..]);
    for kind in Kind::ALL {
        ranges("ttl", (&claim(kind), Request::Claim), |it, ttl| it.ttl = ttl, ttls);
    }
    ranges("ttl", (&record(), Request::Announce), |it, ttl| it.ttl = ttl, ttls);
    let subject = Subject::Claim { claim: ClaimId(Uuid::nil()), resource: resource(Kind::Lease) };
    let beat = Beat { subject, ttl: TTL };
    let beats = (&beat, (|beat| Request::Renew(vec![beat])) as fn(Beat) -> Request);
    ranges("beats[0].ttl", beats, |it, ttl| it.ttl = ttl, ttls);
    passes(&Request::Renew(vec![beat.clone(); BEATS_MAX]));
    fails(&Request::Renew(vec![beat; BEATS_MAX + 1]), "beats");

    let lease = claim(Kind::Lease);
    let times = (&[Duration::ZERO, TIME_MAX][..], &[over][..]);
    let grace = |it: &mut Claim, time| {
        if let Terms::Lease { grace, .. } = &mut it.terms {
            *grace = time;
        }
    };
    ranges("grace", (&lease, Request::Claim), grace, times);
    let unbeaten = |it: &mut Claim, time| {
        if let Terms::Lease { take_over: Some(take_over), .. } = &mut it.terms {
            take_over.unbeaten = time;
        }
    };
    ranges("take_over.unbeaten", (&lease, Request::Claim), unbeaten, times);
    let partition = |it: &mut Claim, partition| {
        if let Terms::Lease { attributes, .. } = &mut it.terms {
            attributes.partition = Some(partition);
        }
    };
    let partitions = (&[0_u16, 255][..], &[256][..]);
    ranges("attributes.partition", (&lease, Request::Claim), partition, partitions);
    let limit =
        |it: &mut Claim, limit| it.terms = Terms::Semaphore { limit, keeps: true, only_own: false };
    let limits = (&[1, PERMITS_MAX][..], &[0, PERMITS_MAX + 1, u32::MAX][..]);
    ranges("limit", (&claim(Kind::Semaphore), Request::Claim), limit, limits);
    fails(&Request::Claim(Claim { terms: Terms::Leader, ..claim(Kind::Semaphore) }), "terms");

    let of_change =
        (&change(), (|change| Request::Record(vec![change])) as fn(HistoryEntry) -> Request);
    let tokens = (&[1, TOKEN_MAX][..], &[0, TOKEN_MAX + 1, u64::MAX][..]);
    ranges("changes[0].token", of_change, |it, token| it.token = token, tokens);
    let pids = (&[1, 4_194_304][..], &[0, u32::MAX][..]);
    ranges("changes[0].holder.pid", of_change, |it, pid| it.holder.pid = Some(pid), pids);
    let past = (&[Duration::ZERO, PAST_MAX][..], &[PAST_MAX + ms, Duration::MAX][..]);
    ranges("changes[0].held", of_change, |it, held| it.held = held, past);
    ranges("changes[0].ago", of_change, |it, ago| it.ago = ago, past);
    passes(&Request::Record(vec![change(); RECORD_MAX]));
    fails(&Request::Record(vec![change(); RECORD_MAX + 1]), "changes");
    ranges(
        "revocation.for_ms",
        (&revocation(), revoke),
        |it, ms| it.for_ms = ms,
        (&[0], &[86_400_001, u64::MAX]),
    );
    let with_token =
        |token| Request::Revoke { resource: resource(Kind::Lease), token, revocation: None };
    ranges("token", (&Some(1), with_token), |it, token| *it = Some(token), tokens);
}

#[test]
fn texts_of_others_are_bounded_in_length_alone() {
    let texts: [(&str, Change<HistoryEntry>); 5] = [
        ("holder.program.user", |it, text| it.holder.program.user = Some(text)),
        ("holder.program.command", |it, text| it.holder.program.command = Some(text)),
        ("end.reason", |it, text| it.end.reason = Some(text)),
        ("end.detail", |it, text| it.end.detail = Some(text)),
        ("end.by", |it, text| it.end.by = Some(text)),
    ];
    for (field, set) in texts {
        let with = |text: &str| {
            let mut changed = change();
            set(&mut changed, text.into());
            Request::Record(vec![changed])
        };
        for odd in ["", " a", "\u{1b}[2J", "a\r\nb", "\u{202e}", &long(TEXT_BYTES_MAX)] {
            passes(&with(odd));
        }
        for bad in ["a\0b", &long(TEXT_BYTES_MAX + 1)] {
            fails(&with(bad), &format!("changes[0].{field}"));
        }
    }
    let by = |by: &str| revoke(Revocation { by: by.to_owned(), ..revocation() });
    for bad in ["", "a\nb", "\u{1b}", &long(REVOKED_BY_MAX + 1)] {
        fails(&by(bad), "revocation.by");
    }
}

#[test]
fn an_agent_tells_of_itself_in_json() {
    let facts = crate::model::AgentFacts::default();
    let record = facts.record(SessionId(Uuid::nil()), "host-1".into());
    passes(&Request::Announce(record.clone()));
    let owner = Owner { name: long(FACTS_BYTES_MAX + 1), ..record.owner.clone() };
    fails(&Request::Announce(SessionRecord { owner, ..record }), "owner.name");
}

#[test]
fn an_answer_has_tokens_that_a_store_counts_to() {
    let held = |token| Answer::Claim(ClaimAnswer::Held { token, limit: None, limit_was: None });
    let beats = |token| Answer::Renew(vec![BeatAnswer::Held { token, limit: None }]);
    let listed = |token| {
        let mut standing = crate::model::UpstreamStanding::default();
        let (claim, since) = (ClaimId(Uuid::nil()), TTL);
        let entry = StandingEntry { claim, owner: owner(), token, since, unbeaten: None };
        standing.waiters.push(StandingEntry { token: 0, ..entry.clone() });
        standing.holders.push(entry);
        Answer::Standing(standing)
    };
    let told = |token| Answer::History(vec![HistoryEntry { token, ..change() }]);
    // What others hold may be of a program without tokens.
    let answers: [(&dyn Fn(u64) -> Answer, bool); 4] =
        [(&held, false), (&beats, false), (&listed, true), (&told, true)];
    for (answer, may_be_none) in answers {
        let tokens = [(0, may_be_none), (1, true), (TOKEN_MAX, true), (u64::MAX, false)];
        for (token, is_good) in tokens {
            assert_eq!(answer(token).check().is_ok(), is_good, "{:?}", answer(token));
        }
    }
}
