//! A Redis of a test's own, and ways to ask it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use redis::{Connection, FromRedisValue, Value};
use tenure_core::model::{
    Answer, Beat, BeatAnswer, Claim, ClaimAnswer, ClaimId, GoneReason, Owner, Request, Resource,
    SessionId, SessionRecord, StandingEntry, Subject, Terms, UpstreamStanding,
};
use tenure_harness::{DEADLINE, RedisServer, until};
use tenure_wire::{Attributes, Kind};
use uuid::Uuid;

use super::super::exchange::{By, Exchange, Grants, Invocation, Step};
use super::super::layout::{Layout, hyphenated};
use crate::remote::greatest_token;

/// The ttl of claims unless a test says otherwise. No test takes as long.
pub(super) const TTL: Duration = Duration::from_secs(3000);

/// A server with nothing in it, gone with the test.
pub(super) struct Store {
    server: RedisServer,
    connection: RefCell<Connection>,
    pub(super) layout: Layout,
    /// The greatest token seen, as an agent remembers it.
    pub(super) floor: Cell<u64>,
    grants: Rc<RefCell<Grants>>,
}

impl Store {
    #[track_caller]
    pub(super) fn new() -> Store {
        let server = RedisServer::start();
        Store {
            connection: RefCell::new(connect(&server)),
            server,
            layout: Layout::default(),
            floor: Cell::new(0),
            grants: Rc::default(),
        }
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.server.socket().to_owned()
    }

    /// Another connection, for what is pushed.
    pub(super) fn connect(&self) -> Connection {
        connect(&self.server)
    }

    /// Runs a command as a person would type it.
    #[track_caller]
    pub(super) fn run<T: FromRedisValue>(&self, words: &[&str]) -> T {
        let mut command = redis::cmd(words[0]);
        for word in &words[1..] {
            command.arg(word);
        }
        command.query(&mut self.connection.borrow_mut()).unwrap()
    }

    /// Sends a command.
    #[track_caller]
    pub(super) fn say(&self, command: &redis::Cmd) -> Value {
        command.query(&mut *self.connection.borrow_mut()).unwrap()
    }

    /// Calls a script, loading it first if the server does not know it.
    #[track_caller]
    pub(super) fn call(&self, invocation: &Invocation) -> Value {
        self.try_call(invocation).unwrap()
    }

    pub(super) fn try_call(&self, invocation: &Invocation) -> redis::RedisResult<Value> {
        let mut connection = self.connection.borrow_mut();
        let connection = &mut *connection;
        match invocation.command().query(connection) {
            Err(error) if error.code() == Some("NOSCRIPT") => {
                invocation.script.load().exec(connection).unwrap();
                invocation.command().query(connection)
            }
            reply => reply,
        }
    }

    #[track_caller]
    pub(super) fn ask(&self, request: &Request) -> Answer {
        let (agent, grants) = (By::default().agent, Rc::clone(&self.grants));
        let by = By { agent, floor: self.floor.get(), grants };
        let (mut exchange, mut invocation) = Exchange::start(&self.layout, request, by);
        loop {
            let reply = self.call(&invocation);
            match exchange.step(&self.layout, reply).unwrap() {
                Step::Done(answer) => {
                    let seen = greatest_token(&answer).unwrap_or_default();
                    self.floor.set(self.floor.get().max(seen));
                    return answer;
                }
                Step::Next(next, call) => (exchange, invocation) = (next, call),
            }
        }
    }

    #[track_caller]
    pub(super) fn claim(&self, claim: &Claim) -> ClaimAnswer {
        match self.ask(&Request::Claim(claim.clone())) {
            Answer::Claim(answer) => answer,
            other => panic!("{other:?} is not an answer to a claim"),
        }
    }

    /// Claims, and is granted.
    #[track_caller]
    pub(super) fn hold(&self, claim: &Claim) -> u64 {
        match self.claim(claim) {
            ClaimAnswer::Held { token, .. } => token,
            other => panic!("{:?} of {} is {other:?}", claim.id, claim.resource),
        }
    }

    /// Claims, and is refused.
    #[track_caller]
    pub(super) fn contended(&self, claim: &Claim) -> (StandingEntry, Duration) {
        match self.claim(claim) {
            ClaimAnswer::Contended { holder: Some(holder), free_in: Some(free_in), .. } => {
                (holder, free_in)
            }
            other => panic!("{:?} of {} is {other:?}", claim.id, claim.resource),
        }
    }

    #[track_caller]
    pub(super) fn gone(&self, claim: &Claim) -> GoneReason {
        match self.claim(claim) {
            ClaimAnswer::Gone(reason) => reason,
            other => panic!("{:?} of {} is {other:?}", claim.id, claim.resource),
        }
    }

    #[track_caller]
    pub(super) fn renew_all(&self, beats: Vec<Beat>) -> Vec<BeatAnswer> {
        match self.ask(&Request::Renew(beats)) {
            Answer::Renew(answers) => answers,
            other => panic!("{other:?} is not an answer to a renewal"),
        }
    }

    #[track_caller]
    pub(super) fn renew(&self, claim: &Claim) -> BeatAnswer {
        self.renew_all(vec![beat(claim)]).remove(0)
    }

    #[track_caller]
    pub(super) fn release(&self, claim: &Claim) -> bool {
        let request = Request::Release { claim: claim.id, resource: claim.resource.clone() };
        match self.ask(&request) {
            Answer::Released(was_there) => was_there,
            other => panic!("{other:?} is not an answer to a release"),
        }
    }

    #[track_caller]
    pub(super) fn inspect(&self, resource: &Resource) -> UpstreamStanding {
        match self.ask(&Request::Inspect(resource.clone())) {
            Answer::Standing(standing) => standing,
            other => panic!("{other:?} is not a standing"),
        }
    }

    #[track_caller]
    pub(super) fn revoke(&self, resource: &Resource, token: Option<u64>) -> u64 {
        match self.ask(&Request::Revoke { resource: resource.clone(), token, revocation: None }) {
            Answer::Revoked(count) => count,
            other => panic!("{other:?} is not an answer to a revocation"),
        }
    }

    /// The number of writes of the server so far, for others to see.
    fn changes(&self) -> u64 {
        let info: String = self.run(&["INFO", "persistence"]);
        let line = info.lines().find_map(|line| line.strip_prefix("rdb_changes_since_last_save:"));
        line.unwrap().trim().parse().unwrap()
    }

    /// Every key with its value and expiry.
    fn everything(&self) -> BTreeMap<Vec<u8>, (Vec<u8>, i64)> {
        let keys: Vec<Vec<u8>> = self.run(&["KEYS", "*"]);
        let mut connection = self.connection.borrow_mut();
        keys.into_iter()
            .map(|key| {
                let value = redis::cmd("DUMP").arg(&key).query(&mut *connection).unwrap();
                let at = redis::cmd("PEXPIRETIME").arg(&key).query(&mut *connection).unwrap();
                (key, (value, at))
            })
            .collect()
    }

    /// Does something that must not write.
    #[track_caller]
    pub(super) fn without_writing<T>(&self, what: impl FnOnce() -> T) -> T {
        let before = (self.changes(), self.everything());
        let done = what();
        assert_eq!((self.changes(), self.everything()), before, "something was written");
        done
    }

    /// Every key, in order.
    pub(super) fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = self.run(&["KEYS", "*"]);
        keys.sort();
        keys
    }

    #[track_caller]
    pub(super) fn hash(&self, key: &str) -> BTreeMap<String, String> {
        self.run(&["HGETALL", key])
    }

    /// Asserts that a key expires `ttl` from now, give or take what a test takes.
    #[track_caller]
    pub(super) fn check_expiry(&self, key: &str, ttl: Duration) {
        let left: i64 = self.run(&["PTTL", key]);
        let ttl_ms = i64::try_from(ttl.as_millis()).unwrap();
        let slack_ms = i64::try_from(DEADLINE.as_millis()).unwrap();
        assert!((ttl_ms - slack_ms..=ttl_ms).contains(&left), "{key}: {left} of {ttl_ms} ms");
    }

    /// The server's time, s.
    pub(super) fn now(&self) -> f64 {
        let (seconds, micros): (u64, u64) = self.run(&["TIME"]);
        seconds as f64 + micros as f64 / 1e6
    }

    /// As if the time of an exclusive claim had passed: what holds is gone, and the record knows.
    #[track_caller]
    pub(super) fn expire(&self, claim: &Claim) {
        let main = self.layout.main(&claim.resource);
        // The record first: it must not say that there is time left when the key is gone.
        self.run::<()>(&["PEXPIRE", &self.record(claim), "60001"]);
        self.run::<()>(&["PEXPIRE", &main, "1"]);
        self.until_gone(&main);
    }

    #[track_caller]
    pub(super) fn until_gone(&self, key: &str) {
        until(&format!("{key} to expire"), || !self.run::<bool>(&["EXISTS", key]));
    }

    /// The key of a claim's record.
    pub(super) fn record(&self, claim: &Claim) -> String {
        self.layout.claim(&claim.resource.tenant, &hyphenated(claim.id.0))
    }
}

fn connect(server: &RedisServer) -> Connection {
    let url = format!("unix://{}?protocol=resp3", server.socket().display());
    redis::Client::open(url).unwrap().get_connection().unwrap()
}

/// `leader/x`, or `acme:leader/x` for another tenant, as resources are shown.
#[track_caller]
pub(super) fn resource(text: &str) -> Resource {
    let (scope, name) = text.split_once('/').unwrap();
    let (tenant, kind) = scope.split_once(':').unwrap_or(("default", scope));
    Resource { tenant: tenant.into(), kind: kind.parse::<Kind>().unwrap(), name: name.into() }
}

pub(super) fn session(number: u128) -> SessionId {
    SessionId(Uuid::from_u128(number))
}

pub(super) fn owner(number: u128) -> Owner {
    Owner {
        session: session(number),
        host: format!("host-{number}").into(),
        name: format!("name-{number}").into(),
    }
}

/// A claim of a session, with its kind's plainest terms; one that waits only for a permit.
#[track_caller]
pub(super) fn claim(id: u128, by: u128, of: &str) -> Claim {
    let resource = resource(of);
    let terms = match resource.kind {
        Kind::Leader => Terms::Leader,
        Kind::Master => Terms::Master { priority: 0 },
        Kind::Semaphore => Terms::Semaphore { limit: 1, keeps: false, only_own: false },
        Kind::Lease => Terms::Lease {
            grace: Duration::ZERO,
            attributes: Attributes::default(),
            take_over: None,
        },
    };
    let enqueue = resource.kind == Kind::Semaphore;
    Claim {
        id: ClaimId(Uuid::from_u128(id << 64 | 0xc1a1)),
        resource,
        owner: owner(by),
        ttl: TTL,
        terms,
        enqueue,
    }
}

pub(super) fn announcement(by: u128, project: &str) -> SessionRecord {
    SessionRecord {
        owner: owner(by),
        tenant: Arc::from("default"),
        project: project.into(),
        surface: Arc::from("cli"),
        ttl: TTL,
        registered_at: None,
    }
}

pub(super) fn beat(claim: &Claim) -> Beat {
    let resource = claim.resource.clone();
    Beat { subject: Subject::Claim { claim: claim.id, resource }, ttl: claim.ttl }
}

pub(super) fn held(token: u64) -> BeatAnswer {
    BeatAnswer::Held { token, limit: None }
}
