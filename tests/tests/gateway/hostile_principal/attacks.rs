//! What one principal with a good key can do to a gateway: each attack goes on, as fast as it is answered, until it is told to stop.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use std::{env, thread};

use serde_json::{Value, json};
use tenure_stores::gateway::scope::Mark;
use uuid::Uuid;

use super::link::Link;
use super::processes::{self, ChildTest, yield_to_others};

/// Longest name that is let in, bytes.
const NAME_MAX: usize = 200;
/// A rest after each turn: a host of two cores runs the attacker, the gateway, its store and all others.
const REST: Duration = Duration::from_millis(2);
/// Connections with a body that never ends, and with a stream that is never read.
const HELD_OPEN: usize = 100;
/// As long as its key lets it be, so that what it has ends soon after its key.
const TTL: Duration = Duration::from_secs(20);

pub(crate) const PRINCIPAL: &str = "evil";
pub(crate) const TENANT: &str = "evil";

type Attack = fn(&mut Attacker) -> io::Result<()>;

const ATTACKS: [(&str, Attack); 8] = [
    ("claims of the longest names", claims),
    ("waiters behind one resource", waiters),
    ("sessions of one project", sessions),
    ("listings", listings),
    ("history of others", history),
    ("takes away what others hold", revocations),
    ("bodies without an end", bodies),
    ("streams that are not read", streams),
];

/// The variables with the ports of the gateways and the key.
const PORTS: &str = "TENURE_HOSTILE_PORTS";
const KEY: &str = "TENURE_HOSTILE_KEY";
/// Before the number of calls.
const CALLS: &str = "calls that were answered: ";

/// All attacks at once, until it is told to end.
pub(crate) struct Attacks(ChildTest);

impl Attacks {
    pub(crate) fn begin(ports: &[u16], key: &str) -> Attacks {
        let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
        let with = [(PORTS, ports.join(",")), (KEY, key.to_owned())];
        Attacks(ChildTest::begin("attacks::until_the_end_of_its_input", &with))
    }

    /// Calls that were answered, whichever way.
    pub(crate) fn end(self) -> u64 {
        let said = self.0.end();
        let calls = said.lines().find_map(|line| line.strip_prefix(CALLS)?.parse().ok());
        calls.unwrap_or_else(|| panic!("the attacks: {said}"))
    }
}

#[test]
#[ignore = "the process of the other tests' attacks"]
fn until_the_end_of_its_input() {
    let ports = env::var(PORTS).expect("a test starts it");
    let key = env::var(KEY).expect("a test starts it");
    let ports: Vec<u16> = ports.split(',').map(|port| port.parse().expect("a port")).collect();
    let (stop, calls) = (AtomicBool::new(false), Arc::default());
    thread::scope(|scope| {
        for (&(name, attack), port) in ATTACKS.iter().zip(ports.iter().cycle()) {
            let mut attacker = Attacker::new(*port, &key, &calls);
            let stop = &stop;
            let run = move || {
                // However busy the machine is, each attack is made once.
                let _ = attack(&mut attacker);
                yield_to_others();
                while !stop.load(Relaxed) {
                    // Refused, cut off, or without an answer: it tries again.
                    let _ = attack(&mut attacker);
                    thread::sleep(REST);
                }
            };
            let thread = thread::Builder::new().name(name.to_owned());
            thread.spawn_scoped(scope, run).expect("a thread can be started");
        }
        processes::until_told_to_end();
        stop.store(true, Relaxed);
    });
    println!("\n{CALLS}{}", calls.load(Relaxed));
}

struct Attacker {
    port: u16,
    key: String,
    link: Link,
    /// Connections that are kept without being used.
    idle: Vec<Link>,
    session: Uuid,
    count: u64,
    calls: Arc<AtomicU64>,
}

impl Attacker {
    fn new(port: u16, key: &str, calls: &Arc<AtomicU64>) -> Attacker {
        Attacker {
            port,
            key: key.to_owned(),
            link: Link::new(port, key),
            idle: Vec::new(),
            session: id(),
            count: 0,
            calls: Arc::clone(calls),
        }
    }

    fn post(&mut self, path: &str, body: &Value) -> io::Result<(u16, String)> {
        let answer = self.link.post(path, &body.to_string());
        self.calls.fetch_add(1, Relaxed);
        answer
    }

    /// A name that nothing else has, as long as names may be.
    fn name(&mut self) -> String {
        self.count += 1;
        format!("{:0>width$}", self.count, width = NAME_MAX)
    }

    fn owner(&self, session: Uuid) -> Value {
        json!({"session": session, "host": "h".repeat(NAME_MAX), "name": "n".repeat(NAME_MAX)})
    }

    fn claim(&mut self, kind: &str, name: &str, terms: Value, enqueue: bool) -> io::Result<()> {
        let resource = json!({"tenant": TENANT, "kind": kind, "name": name});
        let body = json!({"id": id(), "resource": resource, "owner": self.owner(self.session),
            "ttl": ttl(), "terms": terms, "enqueue": enqueue});
        self.post("/v1/upstream/claim", &body).map(drop)
    }
}

fn id() -> Uuid {
    Mark::of(PRINCIPAL).scoped(Uuid::new_v4())
}

fn ttl() -> Value {
    json!({"secs": TTL.as_secs(), "nanos": 0})
}

fn claims(it: &mut Attacker) -> io::Result<()> {
    let name = it.name();
    let attributes = json!({"address": "a".repeat(NAME_MAX), "proxy_id": "p".repeat(NAME_MAX)});
    let grace = json!({"secs": 0, "nanos": 0});
    it.claim("lease", &name, json!({"Lease": {"grace": grace, "attributes": attributes}}), false)
}

fn waiters(it: &mut Attacker) -> io::Result<()> {
    let terms = json!({"Semaphore": {"limit": 1}});
    it.claim("semaphore", "queue", terms, true)
}

fn sessions(it: &mut Attacker) -> io::Result<()> {
    let owner = it.owner(id());
    let surface = it.name();
    let body = json!({"owner": owner, "tenant": TENANT, "project": "crowd", "surface": surface, "ttl": ttl()});
    it.post("/v1/upstream/announce", &body).map(drop)
}

fn listings(it: &mut Attacker) -> io::Result<()> {
    let queue = json!({"tenant": TENANT, "kind": "semaphore", "name": "queue"});
    it.post("/v1/upstream/inspect", &json!({"resource": queue, "all_holders": true}))?;
    let page = json!({"after": null, "limit": 1_000_000});
    it.post("/v1/upstream/resources", &json!({"page": page}))?;
    it.post("/v1/upstream/routes", &json!({"tenant": TENANT, "name": null, "page": page}))?;
    let within = json!({"Project": {"tenant": TENANT, "project": "crowd"}});
    it.post("/v1/upstream/members", &json!({"within": within, "listed": true})).map(drop)
}

fn history(it: &mut Attacker) -> io::Result<()> {
    let zero = json!({"secs": 0, "nanos": 0});
    let resource = json!({"tenant": TENANT, "kind": "leader", "name": "payroll"});
    let changes: Vec<_> = (0..128)
        .map(|token| {
            json!({"resource": resource, "claim": id(), "owner": it.owner(it.session), "token": token + 1,
                "what": "granted", "held": zero, "ago": zero})
        })
        .collect();
    it.post("/v1/upstream/record", &json!({"changes": changes})).map(drop)
}

fn revocations(it: &mut Attacker) -> io::Result<()> {
    for tenant in ["good", TENANT] {
        let resource = json!({"tenant": tenant, "kind": "leader", "name": "kept by honest-0"});
        let words = json!({"by": "root", "for_ms": 3_600_000});
        it.post("/v1/upstream/revoke", &json!({"resource": resource, "revocation": words}))?;
    }
    Ok(())
}

fn bodies(it: &mut Attacker) -> io::Result<()> {
    held_open(it, |link| {
        let head = link.head("POST", "/v1/upstream/claim", 1 << 20);
        let stream = link.connected()?;
        stream.write_all(head.as_bytes())?;
        stream.write_all(&[b' '; 512 << 10])
    })
}

fn streams(it: &mut Attacker) -> io::Result<()> {
    held_open(it, |link| {
        let head = link.head("GET", "/v1/upstream/changes", 0);
        link.connected()?.write_all(head.as_bytes())
    })
}

/// Keeps so many connections with something that goes on; those that were ended are made anew.
fn held_open(it: &mut Attacker, begin: impl Fn(&mut Link) -> io::Result<()>) -> io::Result<()> {
    it.idle.retain_mut(|link| link.connected().is_ok_and(is_open));
    while it.idle.len() < HELD_OPEN {
        let mut link = Link::new(it.port, &it.key);
        begin(&mut link)?;
        it.calls.fetch_add(1, Relaxed);
        it.idle.push(link);
        thread::sleep(REST);
    }
    thread::sleep(REST * 50);
    Ok(())
}

/// True unless the other side has ended it. Takes no more than a byte.
fn is_open(stream: &mut std::net::TcpStream) -> bool {
    let quick = stream.set_nonblocking(true);
    let read = stream.read(&mut [0]);
    let again = stream.set_nonblocking(false);
    let is_silent = read.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
    quick.is_ok() && again.is_ok() && (is_silent || read.is_ok_and(|count| count > 0))
}
