//! Keys with random bounds and rights, four principals, random operations over each store, and a model of what each may do:
//! the gateway refuses what the model refuses, by the same bound or right, and nothing else.
//!
//! `TENURE_KEYS_ROUNDS` and `TENURE_KEYS_OPERATIONS` ask for more of it, `TENURE_KEYS_SEED` for another beginning.

mod model;

use serde_json::{Value, json};
use tenure_tests::harness::{Gateway, Key, Postgres, RedisServer, Stranger, until};

use model::{Bounds, Hold, KINDS, Outcome, Place, RIGHTS, World};

const PRINCIPALS: [&str; 4] = ["alpha", "beta", "gamma", "delta"];
/// The name of others, for a key that does not show them.
const HIDDEN: &str = "another principal";
const FORGED: &str = "forged";
/// The number of a claim that is never made.
const NOBODYS: usize = 0xf000_0000;

/// A source of numbers: splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ (x >> 31)) % most as u64) as usize
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    fn is(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().expect("a number"))
}

fn bounds(random: &mut Random) -> Bounds {
    let kinds = KINDS.into_iter().filter(|_| random.is(80)).collect();
    let rights = RIGHTS.into_iter().filter(|_| random.is(40)).collect();
    Bounds {
        tenants: random.one(&["*", "*", "a*"]),
        projects: random.one(&["*", "*", "web*"]),
        names: random.one(&["*", "*", "ci/*"]),
        kinds,
        priority_max: random.one(&[None, None, Some(0), Some(5)]),
        rights,
    }
}

fn key(principal: &str, bounds: &Bounds) -> Key {
    let priority = bounds.priority_max.map(|max| max.to_string());
    let mut arguments =
        vec!["--tenant", bounds.tenants, "--project", bounds.projects, "--name", bounds.names];
    bounds.kinds.iter().for_each(|kind| arguments.extend(["--kind", kind]));
    bounds.rights.iter().for_each(|right| arguments.extend(["--right", right]));
    priority.iter().for_each(|max| arguments.extend(["--priority-max", max]));
    Key::within(principal, &arguments)
}

/// One round: keys with other bounds, tenants that nobody has used, and the calls.
struct Round<'a> {
    callers: Vec<Stranger<'a>>,
    bounds: Vec<Bounds>,
    world: World,
    random: Random,
    number: u64,
    ids: usize,
}

impl Round<'_> {
    fn place(&mut self) -> Place {
        let kind = self.random.one(&KINDS);
        let names = if kind == "master" { ["web-1", "api"] } else { ["ci/a", "prod"] };
        let tenant = format!("{}{}", self.random.one(&["a", "b"]), self.number);
        Place { tenant, kind, name: self.random.one(&names) }
    }

    /// Asks, and fails unless it is refused by one of these bounds and rights, if there are any; the answer.
    fn ask(&self, who: usize, head: &str, body: &Value, refused_by: &[&str]) -> Option<Value> {
        let (status, answer) = self.callers[who].call(head, &body.to_string());
        let field = answer["field"].as_str().unwrap_or_default();
        let said = (status, field);
        let agrees = match refused_by {
            [] => status == 200,
            some => status == 403 && some.contains(&field),
        };
        assert!(
            agrees,
            "{} {head} {body}: {said:?} {answer}, and the model says {refused_by:?}; its key: {:?}; {:?}",
            PRINCIPALS[who], self.bounds[who], self.world
        );
        refused_by.is_empty().then_some(answer)
    }

    fn operation(&self, operation: &str) -> String {
        format!("POST /v1/upstream/{operation}")
    }

    fn step(&mut self) {
        let who = self.random.below(PRINCIPALS.len());
        match self.random.below(20) {
            0..=7 => self.claim(who),
            8..=9 => self.release(who),
            10..=12 => self.revoke(who),
            13..=14 => self.inspect(who),
            15 => self.history(who),
            16 => self.forge(who),
            17 => self.take_over(who),
            18 => self.plain(who),
            _ => self.contend(who),
        }
    }

    fn body_of_claim(&mut self, who: usize, place: &Place, number: i64) -> (usize, Value) {
        self.ids += 1;
        let id = self.ids;
        let mut body = self.callers[who].claim(id, &place.json(), number, false);
        body["owner"]["session"] = json!(self.callers[who].id(id));
        body["owner"]["name"] = json!(PRINCIPALS[who]);
        body["ttl"] = json!({"secs": 3600, "nanos": 0});
        if place.kind == "lease" {
            body["terms"]["Lease"]["grace"] = json!({"secs": 0, "nanos": 0});
        }
        (id, body)
    }

    fn claim(&mut self, who: usize) {
        let place = self.place();
        let number = match place.kind {
            "master" => self.random.one(&[0, 3, 9]),
            _ => self.random.one(&[1, 2, 3]),
        };
        let (id, body) = self.body_of_claim(who, &place, number);
        let refused_by = [
            self.bounds[who].outside(&place, Some(number)),
            self.world.limit(&self.bounds[who], who, &place, number),
        ]
        .concat();
        let head = self.operation("claim");
        let Some(answer) = self.ask(who, &head, &body, &refused_by) else { return };
        let outcome = self.world.claim(&place, number);
        let token = answer["Held"]["token"].as_u64();
        assert_eq!(token.is_some(), outcome == Outcome::Held, "{body}: {answer}; {:?}", self.world);
        if let Some(token) = token {
            self.world.hold(&place, Hold { who, id, token, priority: number });
        }
    }

    /// A claim of what is held, whose answer names the holder.
    fn contend(&mut self, who: usize) {
        let place = Place { kind: "leader", ..self.place() };
        let place = Place { name: "ci/a", ..place };
        let Some(holder) = self.world.holders(&place).first().cloned() else { return };
        let (_, body) = self.body_of_claim(who, &place, 0);
        let head = self.operation("claim");
        let refused_by = self.bounds[who].outside(&place, None);
        if let Some(answer) = self.ask(who, &head, &body, &refused_by) {
            self.owner(who, holder.who, &answer["Contended"]["holder"]["owner"]["name"]);
        }
    }

    /// A lease of another principal does not make way, whoever asks.
    fn take_over(&mut self, who: usize) {
        let place = Place { kind: "lease", ..self.place() };
        let place = Place { name: "ci/a", ..place };
        let Some(holder) = self.world.holders(&place).first().cloned() else { return };
        if holder.who == who {
            return;
        }
        let (_, mut body) = self.body_of_claim(who, &place, 0);
        let from = self.callers[holder.who].id(holder.id);
        body["terms"]["Lease"]["take_over"] =
            json!({"from": from, "unbeaten": {"secs": 0, "nanos": 0}});
        let (status, answer) = self.callers[who].ask("claim", &body);
        assert_eq!(status, 404, "{body}: {answer}");
    }

    fn release(&mut self, who: usize) {
        let place = self.place();
        let own = self.world.holders(&place).iter().find(|hold| hold.who == who).cloned();
        let Some(hold) = own else { return };
        let head = self.operation("release");
        let body = self.callers[who].release(hold.id, &place.json());
        let refused_by = self.bounds[who].outside(&place, None);
        if let Some(answer) = self.ask(who, &head, &body, &refused_by) {
            assert_eq!(answer["found"], true, "{body}");
            self.world.end(&place, |it| it.token == hold.token);
        }
    }

    fn revoke(&mut self, who: usize) {
        let place = self.place();
        let held = self.world.holders(&place).to_vec();
        let all = held.is_empty() || self.random.is(50);
        let token = (!all).then(|| held[self.random.below(held.len())].token);
        let taken: Vec<Hold> =
            held.into_iter().filter(|it| token.is_none_or(|token| it.token == token)).collect();
        let bounds = &self.bounds[who];
        let refused_by =
            [bounds.outside(&place, None), bounds.revoke(who, &place, &taken)].concat();
        let words = json!({"by": "root on db1", "reason": "r"});
        let body = json!({"resource": place.json(), "token": token, "revocation": words});
        let head = self.operation("revoke");
        if let Some(answer) = self.ask(who, &head, &body, &refused_by) {
            assert_eq!(answer["revoked"], taken.len(), "{body}: {answer}; {:?}", self.world);
            self.world.end(&place, |it| taken.iter().any(|taken| taken.token == it.token));
        }
    }

    fn inspect(&mut self, who: usize) {
        let place = self.place();
        let head = self.operation("inspect");
        let refused_by = self.bounds[who].outside(&place, None);
        let body = json!({"resource": place.json(), "all_holders": self.random.is(50)});
        let Some(standing) = self.ask(who, &head, &body, &refused_by) else { return };
        let held = self.world.holders(&place);
        let listed = standing["holders"].as_array().expect("holders are a list");
        assert_eq!(listed.len(), held.len(), "{standing}; {:?}", self.world);
        for entry in listed {
            let hold = held.iter().find(|it| entry["token"] == it.token);
            let hold = hold.unwrap_or_else(|| panic!("{entry} is held by nobody: {held:?}"));
            self.owner(who, hold.who, &entry["owner"]["name"]);
            let shows = self.bounds[who].owners(who, hold.who);
            assert_eq!(self.callers[hold.who].owns(&entry["claim"]), shows, "{entry}");
            assert_eq!(self.callers[hold.who].owns(&entry["owner"]["session"]), shows, "{entry}");
        }
    }

    /// Fails unless a name is shown or hidden as it should be.
    fn owner(&self, who: usize, of: usize, name: &Value) {
        let shows = self.bounds[who].owners(who, of);
        let expected = if shows { PRINCIPALS[of] } else { HIDDEN };
        assert_eq!(name, expected, "shown to {}, key {:?}", PRINCIPALS[who], self.bounds[who]);
    }

    fn history(&mut self, who: usize) {
        let place = self.place();
        let bounds = &self.bounds[who];
        let refused_by = [bounds.outside(&place, None), bounds.plain("history")].concat();
        let (head, body) = (self.operation("history"), json!({"resource": place.json()}));
        if let Some(answer) = self.ask(who, &head, &body, &refused_by) {
            assert!(!answer.to_string().contains(FORGED), "{answer}");
        }
    }

    /// Tells the history of what the caller does not hold: it is left out, and no one is refused.
    fn forge(&mut self, who: usize) {
        let place = self.place();
        let token = self.world.holders(&place).first().map_or(1, |hold| hold.token);
        let caller = &self.callers[who];
        let entry = json!({"resource": place.json(), "claim": caller.id(NOBODYS), "token": token, "what": "granted",
            "owner": {"session": caller.id(0), "host": "db1", "name": FORGED}});
        let head = self.operation("record");
        self.ask(who, &head, &json!({"changes": [entry]}), &[]);
    }

    /// Calls that take a right and nothing else.
    fn plain(&mut self, who: usize) {
        let project = json!({"project": {"tenant": "tenure.agents", "project": "agents"}});
        let agents = json!({"within": project, "listed": true});
        // An examination takes a while.
        let most = if self.random.is(10) { 3 } else { 2 };
        let (head, body, right) = match self.random.below(most) {
            0 => ("POST /v1/upstream/members", agents, "agents"),
            1 => ("GET /metrics", Value::Null, "metrics"),
            _ => ("POST /v1/upstream/examine", json!({}), "examine"),
        };
        self.ask(who, head, &body, &self.bounds[who].plain(right));
    }
}

fn agrees(gateway: &Gateway) {
    let rounds = number("TENURE_KEYS_ROUNDS", 10);
    let operations = number("TENURE_KEYS_OPERATIONS", 200);
    let seed = number("TENURE_KEYS_SEED", 1);
    let mut ids = 0;
    for round in 0..rounds {
        let mut random = Random(seed << 32 | round);
        let bounds: Vec<_> = PRINCIPALS.iter().map(|_| bounds(&mut random)).collect();
        let keys: Vec<_> =
            PRINCIPALS.iter().zip(&bounds).map(|(name, bounds)| key(name, bounds)).collect();
        gateway.set_keys(&Vec::from_iter(&keys));
        until("the keys to be read", || keys.iter().all(|key| gateway.status_for(key) == 200));
        let callers = keys.iter().map(|key| Stranger::new(gateway, key)).collect();
        let world = World::default();
        let mut round = Round { callers, bounds, world, random, number: round, ids };
        (0..operations).for_each(|_| round.step());
        // A claim that has ended is never granted again.
        ids = round.ids;
    }
}

#[test]
fn the_embedded_store_and_the_model_agree() {
    agrees(&Gateway::start_with("embedded:", &[&Key::new("first")]));
}

#[test]
fn a_redis_and_the_model_agree() {
    let server = RedisServer::start();
    agrees(&Gateway::start_with(&server.url(), &[&Key::new("first")]));
}

#[test]
fn a_postgres_and_the_model_agree() {
    let server = Postgres::start().expect("Postgres starts");
    agrees(&Gateway::start_with(&server.url(), &[&Key::new("first")]));
}

#[test]
fn a_cluster_and_the_model_agree() {
    agrees(&Gateway::node(&[&Key::new("first")]));
}
