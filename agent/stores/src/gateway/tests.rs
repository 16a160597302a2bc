//! What travels comes back as it was.

mod skew;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::StatusCode;
use tenure_core::model::{
    Answer, Beat, BeatAnswer, Claim, ClaimAnswer, ClaimId, DenialRule, Ending, Failure, GoneReason,
    HistoryEntry, Holder, Owner, Page, Request, Resource, Revocation, SessionId, SessionRecord,
    StandingEntry, Subject, Terms, UpstreamStanding,
};
use tenure_wire::{Attributes, Happened, Kind, Role, Route, Routes};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use uuid::Uuid;

use super::address::Address;
use super::http::{Answered, CallError, Http};
use super::scope::Mark;
use super::wire::{
    COMMENT, News, Operation, PROTOCOL, StoreInfo, StoreState, Welcome, answer_body, request_body,
};
use super::{GatewayAccess, understand};
use crate::remote::{Connector, Dialed, Endpoint, Peer, Purpose, hints};

const TTL: Duration = Duration::from_millis(15_250);

fn resource(kind: Kind) -> Resource {
    Resource { tenant: "t".into(), kind, name: "n\n\"ö".into() }
}

fn owner() -> Owner {
    Owner { session: SessionId(Uuid::from_u128(1)), host: "h".into(), name: "p".into() }
}

fn claim(kind: Kind, terms: Terms) -> Request {
    let (id, resource) = (ClaimId(Uuid::from_u128(2)), resource(kind));
    Request::Claim(Claim { id, resource, owner: owner(), ttl: TTL, terms, enqueue: true })
}

fn requests() -> Vec<Request> {
    let (tenant, project) = ("t".into(), "p".into());
    let id = ClaimId(Uuid::from_u128(3));
    let attributes = Attributes::default();
    let subject = Subject::Claim { claim: id, resource: resource(Kind::Lease) };
    let page = Page { after: Some("x".into()), limit: 7 };
    vec![
        claim(Kind::Leader, Terms::Leader),
        claim(Kind::Master, Terms::Master { priority: -1 }),
        claim(Kind::Semaphore, Terms::Semaphore { limit: 3, keeps: true, only_own: false }),
        claim(Kind::Lease, Terms::Lease { grace: TTL, attributes, take_over: None }),
        Request::Renew(vec![
            Beat { subject, ttl: TTL },
            Beat {
                subject: Subject::Session {
                    session: SessionId(Uuid::from_u128(4)),
                    master: resource(Kind::Master),
                },
                ttl: TTL,
            },
        ]),
        Request::Release { claim: id, resource: resource(Kind::Leader) },
        Request::Announce(SessionRecord {
            owner: owner(),
            tenant: "t".into(),
            project: "p".into(),
            surface: "s".into(),
            ttl: TTL,
            registered_at: None,
        }),
        Request::EndSession { session: owner().session, tenant, project },
        Request::Inspect(resource(Kind::Semaphore)),
        Request::Holders(resource(Kind::Semaphore)),
        Request::Routes { tenant: "t".into(), name: Some("n".into()), page },
        Request::Routes { tenant: "t".into(), name: None, page: Page::whole() },
        Request::Revoke {
            resource: resource(Kind::Leader),
            token: Some(u64::MAX),
            revocation: None,
        },
    ]
}

/// What came later than the others.
fn later() -> (Vec<Request>, Vec<(Operation, Answer)>) {
    let resources = vec![resource(Kind::Lease)];
    let answer = Answer::Resources { resources, next: Some("r1".into()) };
    let page = Page { after: Some("r2".into()), limit: 7 };
    (vec![Request::Resources { page }], vec![(Operation::Resources, answer)])
}

fn revocation() -> Arc<Revocation> {
    let (by, reason) = ("root on h".to_owned(), Some("\"upgrade\"".to_owned()));
    Arc::new(Revocation { by, reason, for_ms: 7 })
}

#[test]
fn an_agent_of_before_reads_a_revocation_without_its_words() {
    let plain = || BeatAnswer::Gone(GoneReason::Revoked);
    let answer = Answer::Renew(vec![plain(), BeatAnswer::Revoked(revocation())]);
    let body = answer_body(answer.clone()).unwrap();
    assert_eq!(Operation::Renew.read_answer(&body).unwrap(), answer);
    let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
    let without = serde_json::to_vec(&serde_json::json!({"beats": body["beats"]})).unwrap();
    let read = Operation::Renew.read_answer(&without).unwrap();
    assert_eq!(read, Answer::Renew(vec![plain(), plain()]));
    let request = Request::Revoke {
        resource: resource(Kind::Leader),
        token: None,
        revocation: Some(revocation()),
    };
    let body = request_body(request.clone()).unwrap();
    assert_eq!(Operation::Revoke.read_request(&body).unwrap(), request);
    let mut body: serde_json::Value = serde_json::from_slice(&body).unwrap();
    body.as_object_mut().unwrap().remove("revocation");
    let read = Operation::Revoke.read_request(&serde_json::to_vec(&body).unwrap()).unwrap();
    assert!(matches!(read, Request::Revoke { revocation: None, .. }));
}

/// The messages that came after those.
fn of_history() -> (Vec<Request>, Vec<(Operation, Answer)>) {
    let change = HistoryEntry {
        resource: resource(Kind::Leader),
        claim: ClaimId(Uuid::from_u128(5)),
        owner: owner(),
        token: 9,
        what: Happened::Lost,
        holder: Holder { pid: Some(7), uid: Some(1), ..Holder::default() },
        end: Ending { reason: Some("expired".into()), ..Ending::default() },
        held: TTL,
        ago: TTL,
    };
    let changes = vec![change];
    let requests = vec![Request::Record(changes.clone()), Request::History(resource(Kind::Leader))];
    let answers =
        vec![(Operation::Record, Answer::Recorded), (Operation::History, Answer::History(changes))];
    (requests, answers)
}

#[test]
fn requests_come_back_as_they_were() {
    for request in requests().into_iter().chain(later().0).chain(of_history().0) {
        let operation = Operation::of(&request);
        let body = request_body(request.clone()).unwrap();
        assert_eq!(operation.read_request(&body).unwrap(), request);
    }
}

fn answers() -> Vec<(Operation, Answer)> {
    let claim = ClaimId(Uuid::from_u128(5));
    let entry = StandingEntry { claim, owner: owner(), token: 9, since: TTL, unbeaten: None };
    let holder = Some(entry.clone());
    let standing = UpstreamStanding {
        limit: Some(2),
        holders: vec![entry.clone()],
        holding: 1,
        waiters: vec![entry],
        waiting: 1,
        sessions: vec!["p".into()],
        members: 1,
        runs_out: Some(TTL),
        lease: None,
    };
    let route = Route {
        name: "n".into(),
        host: "h".into(),
        holder: "p".into(),
        address: "a".into(),
        proxy_id: "x".into(),
        partition: 255,
        status: "s".into(),
        token: 1,
        version: 2,
    };
    let routes =
        Routes { version: 3, routes: vec![route], total: Some(1), cursor: Some("c".into()) };
    let (limit, limit_was) = (Some(2), None);
    vec![
        (Operation::Claim, Answer::Claim(ClaimAnswer::Held { token: 1, limit, limit_was })),
        (Operation::Claim, Answer::Claim(ClaimAnswer::Waiting { position: 1, limit, limit_was })),
        (
            Operation::Claim,
            Answer::Claim(ClaimAnswer::Contended { holder, free_in: Some(TTL), limit, limit_was }),
        ),
        (Operation::Claim, Answer::Claim(ClaimAnswer::Gone(GoneReason::Preempted))),
        (Operation::Claim, Answer::Claim(ClaimAnswer::Quarantined { free_in: TTL })),
        (
            Operation::Renew,
            Answer::Renew(vec![
                BeatAnswer::Held { token: u64::MAX, limit },
                BeatAnswer::Waiting { position: 2, limit },
                BeatAnswer::Gone(GoneReason::Unknown),
                BeatAnswer::Session { role: Role::Master },
            ]),
        ),
        (Operation::Release, Answer::Released(true)),
        (Operation::Announce, Answer::Announced),
        (Operation::End, Answer::Ended(false)),
        (Operation::Inspect, Answer::Standing(standing)),
        (Operation::Routes, Answer::Routes(routes)),
        (Operation::Revoke, Answer::Revoked(3)),
    ]
}

#[test]
fn answers_come_back_as_they_were() {
    for (operation, answer) in answers().into_iter().chain(later().1).chain(of_history().1) {
        let body = answer_body(answer.clone()).unwrap();
        assert_eq!(operation.read_answer(&body).unwrap(), answer);
    }
}

fn all_news() -> Vec<News> {
    let (tenant, project) = ("t".into(), "p".into());
    let payload = serde_json::json!({"text": "two\nlines"});
    let claim = ClaimId(Uuid::from_u128(6));
    vec![
        News::Resource(resource(Kind::Master)),
        News::Granted { claim, grant: None },
        News::Lost { claim },
        News::Message { tenant, project, session: Some(owner().session), payload },
        News::FeedLost,
        News::Reset,
    ]
}

#[test]
fn news_are_one_line_each() {
    for news in all_news() {
        let line = news.line().unwrap();
        let text = line.strip_suffix(b"\n\n").unwrap();
        assert!(!text.contains(&b'\n'));
        assert_eq!(News::read(text), Some(news));
    }
    assert_eq!(News::read(COMMENT.strip_suffix(b"\n\n").unwrap()), None);
    assert_eq!(News::read(b"data: {\"of_a_later_version\":{}}"), None);
}

#[test]
fn what_a_later_version_adds_is_ignored_and_what_it_needs_not_say_has_a_default() {
    let body = br#"{"resource":{"tenant":"t","kind":"leader","name":"n","zone":1},"deep":true}"#;
    let expected = Resource { tenant: "t".into(), kind: Kind::Leader, name: "n".into() };
    assert_eq!(Operation::Inspect.read_request(body).unwrap(), Request::Inspect(expected));
    for operation in Operation::ALL {
        operation.read_request(b"{}").unwrap_err();
        operation.read_request(b"").unwrap_err();
    }
}

/// Reads a request, up to these bytes.
async fn read_upto(stream: &mut TcpStream, end: &[u8]) {
    let mut request = Vec::new();
    while !request.ends_with(end) {
        assert_ne!(stream.read_buf(&mut request).await.unwrap(), 0);
    }
}

#[tokio::test]
async fn nobody_asks_anything_behind_the_stream() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = Endpoint::Tcp("127.0.0.1".to_owned(), listener.local_addr().unwrap().port());
    let (connect_timeout, timeout) = (Duration::from_secs(20), Duration::from_secs(20));
    let access = GatewayAccess {
        endpoints: vec![endpoint],
        tls: None,
        proxies: Arc::default(),
        key: None,
        own_key: None,
        connect_timeout,
        timeout,
    };
    let gateway = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_upto(&mut stream, b"}").await;
        let store = StoreInfo { kind: "toy".to_owned(), guarantee: String::new(), id: None };
        let (version, mark) = ("1".to_owned(), Mark::of("p"));
        let welcome =
            Welcome { protocol: PROTOCOL, version, store, state: StoreState::default(), mark };
        let body = serde_json::to_string(&welcome).unwrap();
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
        stream.write_all((head + &body).as_bytes()).await.unwrap();
        read_upto(&mut stream, b"\r\n\r\n").await;
        let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        stream.write_all(head).await.unwrap();
        stream
    };
    let address = Address::new(access);
    let (sink, _hints) = hints();
    let (dialed, _stream) = tokio::join!(address.connect(Purpose::Feed, Some(sink.of(1))), gateway);
    let Dialed { connection, server, .. } = dialed.unwrap();
    assert!(connection.http.is_none());
    address.check(&connection, &server).await.unwrap();
}

#[test]
fn a_status_says_whether_a_call_took_effect() {
    let renew = Request::Renew(vec![Beat {
        subject: Subject::Claim {
            claim: ClaimId(Uuid::from_u128(3)),
            resource: resource(Kind::Lease),
        },
        ttl: TTL,
    }]);
    let end = claim(Kind::Leader, Terms::Leader);
    let answered = |status: u16, body: &'static str| Answered {
        status: StatusCode::from_u16(status).unwrap(),
        retry_after: Some(Duration::from_secs(7)),
        body: Bytes::from_static(body.as_bytes()),
    };
    for request in [&renew, &end] {
        let operation = Operation::of(request);
        let problem = r#"{"type":"","title":"","status":429,"code":"quota_exceeded","detail":"no","retry_after_ms":90}"#;
        let quota = |ms| DenialRule::Quota(Duration::from_millis(ms));
        for (status, body, rule) in [
            (403, "no", DenialRule::Forbidden),
            (422, "no", DenialRule::Invalid),
            (429, problem, quota(90)),
            // One that is between the two knows the header alone.
            (429, "no", quota(7000)),
        ] {
            let meant = understand(operation, request, &answered(status, body));
            let Err(Failure::Denied(denial)) = meant else { panic!("{status}: {meant:?}") };
            assert!(denial.rule == rule && denial.detail.contains("no"), "{denial:?}");
        }
        for status in [400, 401, 404, 405, 413] {
            let meant = understand(operation, request, &answered(status, "no"));
            assert!(matches!(meant, Err(Failure::Unavailable(_))), "{status}: {meant:?}");
        }
        for status in [200, 204, 301, 500, 502, 503, 504] {
            let meant = understand(operation, request, &answered(status, "no"));
            assert!(matches!(meant, Err(Failure::Unknown(_))), "{status}: {meant:?}");
        }
    }
    for (token, is_taken) in
        [("0", false), ("1763450000000000", true), ("18446744073709551615", false)]
    {
        let body = format!(r#"{{"beats":[{{"Held":{{"token":{token},"limit":null}}}}]}}"#);
        let answered = Answered { body: body.into(), ..answered(200, "") };
        let meant = understand(Operation::Renew, &renew, &answered);
        assert_eq!(meant.is_ok(), is_taken, "{token}: {meant:?}");
        assert!(is_taken || matches!(meant, Err(Failure::Unknown(_))), "{token}: {meant:?}");
    }
    let gone = understand(Operation::Renew, &renew, &answered(410, ""));
    assert_eq!(gone.unwrap(), Answer::Renew(vec![BeatAnswer::Gone(GoneReason::Unknown)]));
}

#[tokio::test]
async fn a_call_is_not_sent_or_perhaps_done() {
    let endpoint = Endpoint::Tcp("h".to_owned(), 1);
    let peer = Peer { what: "gateway", place: "h".to_owned() };
    let speak = async |reads: bool| {
        let (near, mut far) = tokio::io::duplex(1024);
        let (http, pump) = Http::over(Box::new(near), &endpoint, None, &peer, "a").await.unwrap();
        let pump = tokio::spawn(pump);
        if !reads {
            drop(far);
            pump.await.unwrap();
            let Err(error) = http.turn().await else { panic!("it has ended") };
            return error;
        }
        let call = async { http.turn().await.unwrap().post("/x", b"body".to_vec()).await };
        let hang_up = async {
            let mut request = Vec::new();
            while !request.ends_with(b"body") {
                far.read_buf(&mut request).await.unwrap();
            }
            drop(far);
        };
        let (answered, ()) = tokio::join!(call, hang_up);
        answered.unwrap_err()
    };
    assert!(matches!(speak(false).await, CallError::NotSent(_)));
    assert!(matches!(speak(true).await, CallError::Lost(_)));
}
