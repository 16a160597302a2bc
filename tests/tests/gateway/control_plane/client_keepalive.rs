//! The connections of clients to the gateway: kept while nothing is asked and while much is, whatever pings the client sends;
//! what becomes of calls whose time is over; and how clients come back after the gateway was away.

use std::env;
use std::time::Duration;

use tempfile::NamedTempFile;
use tenure_tests::harness::{
    FakeProxy, Gateway, Library, MAILBOX, Passage, PlaneClients, RedisServer, Runners,
    listed_route, until,
};

/// How long it lasts, and how often with `TENURE_LOAD=full`, each time for as long as a test may wait for anything.
const LASTS_S: u64 = 30;
const LASTS_FULL_S: u64 = 100;
const TIMES_FULL: usize = 6;
/// A library's defaults, and two intervals of pings that people configure.
const PINGS: [Option<u64>; 3] = [None, Some(10), Some(20)];
const PATIENCE: Duration = Duration::from_secs(20);
/// Calls that a principal may make at a time: room for one of each client.
const CALLS_MAX: usize = 24;
/// The time of a call that the store does not answer.
const SHORT: Duration = Duration::from_millis(100);

/// A client: the number of its library's clients, its name, and the way that counts its connections.
struct Client {
    library: usize,
    name: String,
    passage: Passage,
    works: bool,
}

/// Those of every library: with each ping, one that rests and one that works.
fn open(gateway: &Gateway, all: &mut [Box<dyn PlaneClients>]) -> Vec<Client> {
    let mut clients = Vec::new();
    for (library, of) in all.iter_mut().enumerate() {
        for ping_s in PINGS {
            for works in [false, true] {
                let pings = ping_s.map_or("defaults".to_owned(), |s| format!("ping-{s}s"));
                let how = if works { "works" } else { "rests" };
                let name = format!("{:?}-{pings}-{how}", Library::ALL[library]).to_lowercase();
                let passage = Passage::to(gateway.port());
                of.open(&name, &passage.address(), ping_s);
                assert_eq!(of.take(&name, &name), "OK", "{name}");
                clients.push(Client { library, name, passage, works });
            }
        }
    }
    clients
}

#[track_caller]
fn one_connection_each(clients: &[Client]) {
    for Client { name, passage, .. } in clients {
        assert_eq!(passage.passed(), 1, "connections of {name}");
    }
}

#[test]
fn clients_of_three_libraries_keep_one_connection_whatever_they_ping_on_redis() {
    let full = env::var("TENURE_LOAD").is_ok_and(|size| size == "full");
    let (times, lasts_s) = if full { (TIMES_FULL, LASTS_FULL_S) } else { (1, LASTS_S) };
    let mut store = RedisServer::start();
    let file = NamedTempFile::new().unwrap();
    std::fs::write(&file, format!("limits.calls_per_principal = {CALLS_MAX}\n")).unwrap();
    let config = format!("--config={}", file.path().display());
    let mut gateway = Gateway::start_by(&store.url(), &[], &[config]);
    let runners = Runners::new(&gateway, None);
    let proxy = FakeProxy::start("proxy-01", Duration::ZERO);
    let mut all = Library::ALL.map(Library::clients);
    let clients = open(&gateway, &mut all);
    let (works, rests): (Vec<_>, Vec<_>) = clients.iter().partition(|client| client.works);
    for client in &works {
        all[client.library].work(&client.name, &proxy.address());
    }
    for _ in 0..times {
        // The end of a lease is the end of the time: nothing else happens to the clients that rest.
        runners.take_for(0, MAILBOX, "active", lasts_s, 0);
        until("the time to be over", || listed_route(&gateway).is_null());
        one_connection_each(&clients);
        for client in &works {
            let worked = all[client.library].worked(&client.name);
            assert!(worked.failed.is_empty(), "{}: {worked:?}", client.name);
        }
    }
    for client in &works {
        let worked = all[client.library].worked(&client.name);
        println!("{}: {} calls, told {} times", client.name, worked.calls, worked.told);
        // Ten a second are told together.
        assert!(worked.calls > 1 && worked.told > worked.calls / 2, "{}: {worked:?}", client.name);
        all[client.library].rest(&client.name);
    }
    for client in &rests {
        assert_eq!(all[client.library].beat(&client.name, PATIENCE), "OK", "{}", client.name);
    }
    one_connection_each(&clients);

    // Calls of the first time that still counted would leave no room for those of the second.
    for _ in 0..2 {
        store.pause();
        for client in &clients {
            let said = all[client.library].beat(&client.name, SHORT);
            let code = said.split(':').next().unwrap_or_default().replace('_', "").to_lowercase();
            assert_eq!(code, "deadlineexceeded", "{}: {said}", client.name);
        }
        store.resume();
        for client in &clients {
            let beat = || all[client.library].beat(&client.name, PATIENCE) == "OK";
            until("a beat after the store has come back", beat);
        }
    }
    one_connection_each(&clients);
    assert!(!gateway.log().contains("panicked"), "{}", gateway.log());

    assert!(gateway.stop().success(), "no call is left that the end waits for");
    gateway.start_again();
    for client in &clients {
        let another = format!("{}-again", client.name);
        until("a client to come back", || all[client.library].take(&client.name, &another) == "OK");
        let passed = client.passage.passed();
        println!("{}: {passed} connections, the last after the restart", client.name);
        assert!(passed > 1, "{}", client.name);
    }
}
