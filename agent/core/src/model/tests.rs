//! Each value that passes between an agent and its store comes out of JSON as it went in.

use std::sync::Arc;
use std::time::Duration;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tenure_wire::{Attributes, Kind, Role, Route, Routes};
use uuid::Uuid;

use super::*;
use crate::time::Boottime;

fn text() -> impl Strategy<Value = Arc<str>> {
    vec(any::<char>(), 0..6).prop_map(|text| Arc::from(text.into_iter().collect::<String>()))
}

fn string() -> impl Strategy<Value = String> {
    text().prop_map(|text| text.to_string())
}

fn duration() -> impl Strategy<Value = Duration> {
    (any::<u64>(), 0..1_000_000_000u32).prop_map(|(secs, nanos)| Duration::new(secs, nanos))
}

fn claim_id() -> impl Strategy<Value = ClaimId> {
    any::<u128>().prop_map(|id| ClaimId(Uuid::from_u128(id)))
}

fn session_id() -> impl Strategy<Value = SessionId> {
    any::<u128>().prop_map(|id| SessionId(Uuid::from_u128(id)))
}

fn resource() -> impl Strategy<Value = Resource> {
    let kind = prop::sample::select(Kind::ALL.to_vec());
    (text(), kind, text()).prop_map(|(tenant, kind, name)| Resource { tenant, kind, name })
}

fn owner() -> impl Strategy<Value = Owner> {
    (session_id(), text(), text()).prop_map(|(session, host, name)| Owner { session, host, name })
}

fn take_over() -> impl Strategy<Value = Box<TakeOver>> {
    (claim_id(), duration()).prop_map(|(from, unbeaten)| Box::new(TakeOver { from, unbeaten }))
}

fn terms() -> impl Strategy<Value = Terms> {
    let words = || option::of(string());
    let attributes = (words(), words(), option::of(any::<u16>()), words()).prop_map(
        |(address, proxy_id, partition, status)| Attributes {
            address,
            proxy_id,
            partition,
            status,
        },
    );
    prop_oneof![
        Just(Terms::Leader),
        any::<i32>().prop_map(|priority| Terms::Master { priority }),
        any::<(u32, bool, bool)>().prop_map(|(limit, keeps, only_own)| Terms::Semaphore {
            limit,
            keeps,
            only_own
        }),
        (duration(), attributes, option::of(take_over())).prop_map(
            |(grace, attributes, take_over)| Terms::Lease { grace, attributes, take_over }
        ),
    ]
}

fn claim() -> impl Strategy<Value = Claim> {
    (claim_id(), resource(), owner(), duration(), terms(), any::<bool>()).prop_map(
        |(id, resource, owner, ttl, terms, enqueue)| Claim {
            id,
            resource,
            owner,
            ttl,
            terms,
            enqueue,
        },
    )
}

fn beat() -> impl Strategy<Value = Beat> {
    let subject = prop_oneof![
        (claim_id(), resource()).prop_map(|(claim, resource)| Subject::Claim { claim, resource }),
        (session_id(), resource())
            .prop_map(|(session, master)| Subject::Session { session, master }),
    ];
    (subject, duration()).prop_map(|(subject, ttl)| Beat { subject, ttl })
}

fn request() -> impl Strategy<Value = Request> {
    let record = (owner(), text(), text(), text(), duration()).prop_map(
        |(owner, tenant, project, surface, ttl)| SessionRecord {
            owner,
            tenant,
            project,
            surface,
            ttl,
            registered_at: None,
        },
    );
    let page =
        || (option::of(text()), any::<usize>()).prop_map(|(after, limit)| Page { after, limit });
    prop_oneof![
        claim().prop_map(Request::Claim),
        vec(beat(), 0..4).prop_map(Request::Renew),
        (claim_id(), resource()).prop_map(|(claim, resource)| Request::Release { claim, resource }),
        record.prop_map(Request::Announce),
        (session_id(), text(), text()).prop_map(|(session, tenant, project)| {
            Request::EndSession { session, tenant, project }
        }),
        resource().prop_map(Request::Inspect),
        resource().prop_map(Request::Holders),
        (session_id(), any::<bool>()).prop_map(|(session, listed)| Request::Members {
            within: Within::Session(session),
            listed,
            page: None,
        }),
        (text(), text(), option::of(page())).prop_map(|(tenant, project, page)| {
            Request::Members { within: Within::Project { tenant, project }, listed: true, page }
        }),
        (text(), option::of(text()), page()).prop_map(|(tenant, name, page)| Request::Routes {
            tenant,
            name,
            page
        }),
        page().prop_map(|page| Request::Resources { page }),
        (resource(), any::<Option<u64>>()).prop_map(|(resource, token)| Request::Revoke {
            resource,
            token,
            revocation: None
        }),
    ]
}

fn gone() -> impl Strategy<Value = GoneReason> {
    prop::sample::select(vec![
        GoneReason::Released,
        GoneReason::Expired,
        GoneReason::Preempted,
        GoneReason::Revoked,
        GoneReason::Unknown,
        GoneReason::Conflict,
    ])
}

fn entry() -> impl Strategy<Value = StandingEntry> {
    (claim_id(), owner(), any::<u64>(), duration(), option::of(duration())).prop_map(
        |(claim, owner, token, since, unbeaten)| StandingEntry {
            claim,
            owner,
            token,
            since,
            unbeaten,
        },
    )
}

fn claim_answer() -> impl Strategy<Value = ClaimAnswer> {
    let limits = any::<(Option<u32>, Option<u32>)>;
    prop_oneof![
        (any::<u64>(), limits()).prop_map(|(token, (limit, limit_was))| ClaimAnswer::Held {
            token,
            limit,
            limit_was
        }),
        (any::<u64>(), limits()).prop_map(|(position, (limit, limit_was))| ClaimAnswer::Waiting {
            position,
            limit,
            limit_was
        }),
        (option::of(entry()), option::of(duration()), limits()).prop_map(
            |(holder, free_in, (limit, limit_was))| ClaimAnswer::Contended {
                holder,
                free_in,
                limit,
                limit_was
            }
        ),
        gone().prop_map(ClaimAnswer::Gone),
        duration().prop_map(|free_in| ClaimAnswer::Quarantined { free_in }),
    ]
}

fn beat_answer() -> impl Strategy<Value = BeatAnswer> {
    prop_oneof![
        any::<(u64, Option<u32>)>().prop_map(|(token, limit)| BeatAnswer::Held { token, limit }),
        any::<(u64, Option<u32>)>()
            .prop_map(|(position, limit)| BeatAnswer::Waiting { position, limit }),
        gone().prop_map(BeatAnswer::Gone),
        prop::sample::select(vec![Role::Master, Role::Peer])
            .prop_map(|role| BeatAnswer::Session { role }),
        text().prop_map(|cause| BeatAnswer::Failed(cause.to_string())),
    ]
}

fn standing() -> impl Strategy<Value = UpstreamStanding> {
    let lists = (vec(entry(), 0..3), vec(entry(), 0..3), vec(text(), 0..3));
    let counts = any::<(Option<u32>, u64, u64, u64)>();
    let lease = option::of((duration(), duration(), duration()));
    (lists, counts, option::of(duration()), lease).prop_map(|(lists, counts, runs_out, lease)| {
        let (holders, waiters, sessions) = lists;
        let (limit, holding, waiting, members) = counts;
        let lease = lease.map(|(ttl, grace, unbeaten)| LeaseTimes { ttl, grace, unbeaten });
        UpstreamStanding {
            limit,
            holders,
            holding,
            waiters,
            waiting,
            sessions,
            members,
            runs_out,
            lease,
        }
    })
}

fn routes() -> impl Strategy<Value = Routes> {
    let route = (string(), string(), any::<(u16, u64, u64)>()).prop_map(
        |(name, word, (partition, token, version))| Route {
            name,
            host: word.clone(),
            holder: word.clone(),
            address: word.clone(),
            proxy_id: word.clone(),
            partition,
            status: word,
            token,
            version,
        },
    );
    (any::<u64>(), vec(route, 0..3), any::<Option<u64>>(), option::of(string()))
        .prop_map(|(version, routes, total, cursor)| Routes { version, routes, total, cursor })
}

fn answer() -> impl Strategy<Value = Answer> {
    prop_oneof![
        claim_answer().prop_map(Answer::Claim),
        vec(beat_answer(), 0..4).prop_map(Answer::Renew),
        any::<bool>().prop_map(Answer::Released),
        Just(Answer::Announced),
        any::<bool>().prop_map(Answer::Ended),
        standing().prop_map(Answer::Standing),
        routes().prop_map(Answer::Routes),
        (vec(resource(), 0..3), option::of(text()))
            .prop_map(|(resources, next)| Answer::Resources { resources, next }),
        any::<u64>().prop_map(Answer::Revoked),
    ]
}

fn grant_hint() -> impl Strategy<Value = GrantHint> {
    (any::<u64>(), option::of(any::<u32>()), any::<u64>()).prop_map(|(token, limit, ns)| {
        GrantHint { token, limit, confirm_by: Boottime::from_nanos(ns) }
    })
}

fn change() -> impl Strategy<Value = Change> {
    let about = || (claim_id(), resource());
    prop_oneof![
        resource().prop_map(Change::Resource),
        (about(), option::of(grant_hint()))
            .prop_map(|((claim, resource), grant)| { Change::Granted { claim, resource, grant } }),
        about().prop_map(|(claim, resource)| Change::Lost { claim, resource }),
        (text(), text(), option::of(session_id()), any::<u64>()).prop_map(
            |(tenant, project, session, number)| {
                let payload = json!({"type": &*project, "token": number, "by": [null, number]});
                Change::Message { tenant, project, session, payload }
            }
        ),
    ]
}

fn report() -> impl Strategy<Value = Report> {
    let failure = prop_oneof![
        string().prop_map(Failure::Unavailable),
        string().prop_map(Failure::Unknown),
        (string(), any::<u32>()).prop_map(|(detail, ms)| {
            let rule = DenialRule::Quota(Duration::from_millis(u64::from(ms)));
            Failure::Denied(Denial { rule, detail })
        }),
    ];
    let result = prop_oneof![4 => answer().prop_map(Ok), 1 => failure.prop_map(Err)];
    prop_oneof![
        4 => (any::<u64>(), any::<u64>(), result).prop_map(|(call, sent_at, result)| {
            let sent_at = Boottime::from_nanos(sent_at);
            Report::Answer { call: CallId(call), sent_at, result }
        }),
        2 => change().prop_map(Report::Change),
        1 => (claim_id(), gone()).prop_map(|(claim, reason)| Report::Lost { claim, reason, revocation: None }),
        1 => Just(Report::FeedLost),
    ]
}

fn comes_back<T: Serialize + DeserializeOwned + PartialEq>(value: &T) -> bool {
    let text = serde_json::to_string(value);
    text.is_ok_and(|text| serde_json::from_str::<T>(&text).is_ok_and(|read| read == *value))
}

proptest! {
    #[test]
    fn requests_and_reports_come_back_from_json(
        request in request(),
        report in report(),
    ) {
        prop_assert!(comes_back(&request), "{:?}", request);
        prop_assert!(comes_back(&report), "{:?}", report);
    }
}
