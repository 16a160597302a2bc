//! A gateway that is reached by an HTTP proxy alone.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::json;
use tenure::wire::UpstreamState;
use tenure_tests::harness::{
    Agent, Authority, Client, Gateway, Program, binary, run_to_end, until,
};

/// A name that only the proxy knows.
const NAME: &str = "gateway.internal";
/// `me:hunter2`.
const LOGIN: &str = "proxy-authorization: Basic bWU6aHVudGVyMg==";

/// Connects clients that show the login to places that it knows, and no others.
struct HttpProxy {
    port: u16,
    /// Both ends of each tunnel.
    tunnels: Arc<Mutex<Vec<TcpStream>>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl HttpProxy {
    fn start(places: HashMap<String, u16>) -> HttpProxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback interface");
        let port = listener.local_addr().expect("it is bound").port();
        let proxy = HttpProxy { port, tunnels: Arc::default(), asked: Arc::default() };
        let (tunnels, asked) = (Arc::clone(&proxy.tunnels), Arc::clone(&proxy.asked));
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let (places, tunnels, asked) =
                    (places.clone(), Arc::clone(&tunnels), Arc::clone(&asked));
                // A client may leave when it likes.
                thread::spawn(move || serve(client, &places, &tunnels, &asked));
            }
        });
        proxy
    }

    fn url(&self, login: &str) -> String {
        format!("http://{login}127.0.0.1:{}", self.port)
    }

    /// Cuts every tunnel.
    fn cut(&self) {
        for end in self.tunnels.lock().expect("no thread panics with it").drain(..) {
            let _ = end.shutdown(Shutdown::Both);
        }
    }

    fn count(&self) -> usize {
        self.asked.lock().expect("no thread panics with it").len()
    }
}

fn serve(
    mut client: TcpStream,
    places: &HashMap<String, u16>,
    tunnels: &Mutex<Vec<TcpStream>>,
    asked: &Mutex<Vec<String>>,
) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let place = head.split(' ').nth(1).unwrap_or_default().to_owned();
    let is_known = head.lines().any(|line| line.eq_ignore_ascii_case(LOGIN));
    asked.lock().expect("no thread panics with it").push(head);
    let refusal = match (is_known, places.get(&place)) {
        (false, _) => "407 Proxy Authentication Required",
        (true, None) => "403 Forbidden",
        (true, Some(port)) => {
            let gateway = TcpStream::connect(("127.0.0.1", *port))?;
            client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?;
            let ends = [client.try_clone()?, gateway.try_clone()?];
            tunnels.lock().expect("no thread panics with it").extend(ends);
            let (mut to, mut from) = (gateway.try_clone()?, client.try_clone()?);
            thread::spawn(move || {
                let _ = io::copy(&mut from, &mut to);
                to.shutdown(Shutdown::Both)
            });
            io::copy(&mut &gateway, &mut client)?;
            return client.shutdown(Shutdown::Both);
        }
    };
    write!(client, "HTTP/1.1 {refusal}\r\nContent-Length: 0\r\n\r\n")
}

struct Room {
    authority: Authority,
    gateway: Gateway,
    proxy: HttpProxy,
}

impl Room {
    fn new() -> Room {
        let authority = Authority::new();
        authority.issue("gateway", &format!("DNS:{NAME}"));
        let path =
            |extension| authority.path(&format!("gateway.{extension}")).display().to_string();
        let args =
            [format!("--tls-cert-file={}", path("pem")), format!("--tls-key-file={}", path("key"))];
        let gateway = Gateway::start_by("embedded:", &[], &args);
        let places = HashMap::from([(format!("{NAME}:{}", gateway.port()), gateway.port())]);
        Room { authority, gateway, proxy: HttpProxy::start(places) }
    }

    fn agent(&self, login: &str, no_proxy: &str) -> Agent {
        let ca = self.authority.path("ca.pem").display().to_string();
        Agent::setup()
            .upstream(&format!("https://{NAME}:{}", self.gateway.port()))
            .config(&format!("[gateway]\ntls_ca_file = {ca:?}\n"))
            .variable("HTTPS_PROXY", &self.proxy.url(login))
            .variable("NO_PROXY", no_proxy)
            .start()
    }
}

#[track_caller]
fn says(agent: &Agent, words: &str) {
    until(&format!("the agent to say {words:?}"), || {
        let upstream = agent.http().status().upstream;
        upstream.state != UpstreamState::Up
            && upstream.last_error.is_some_and(|error| error.contains(words))
    });
    let log = agent.log();
    assert!(!log.contains("hunter2") && !log.contains("bWU6"), "{log}");
}

#[test]
fn an_agent_holds_through_a_proxy_that_cuts_and_comes_back() {
    let room = Room::new();
    let agent = room.agent("me:hunter2@", "");
    until("the gateway to be reached", || {
        agent.http().status().upstream.state == UpstreamState::Up
    });
    let mut http = agent.http();
    let session = http.register(&json!({"keepalive_ms": 600_000})).session;
    let held = http.acquire(session, "leader", "role", &json!({"ttl_ms": 600_000}));
    let doctor = http.get("/v1/doctor");
    let told = String::from_utf8_lossy(&doctor.body).into_owned();
    assert!(
        told.contains(&format!("through the proxy (HTTPS_PROXY) at 127.0.0.1:{}", room.proxy.port)),
        "{told}"
    );
    let before = room.proxy.count();
    room.proxy.cut();
    until("the agent to connect again", || {
        room.proxy.count() > before && agent.http().status().upstream.state == UpstreamState::Up
    });
    assert_eq!(agent.http().standing("leader", "role").holders[0].token, held.token);
    let asked = room.proxy.asked.lock().expect("no thread panics with it").join("\n");
    assert!(asked.starts_with(&format!("CONNECT {NAME}:{} HTTP/1.1\r\n", room.gateway.port())));
    assert!(!agent.log().contains("hunter2"));
}

#[test]
fn what_the_proxy_refuses_is_said_with_the_way_out() {
    let room = Room::new();
    let place = format!("the proxy (HTTPS_PROXY) at 127.0.0.1:{}", room.proxy.port);
    let agent = room.agent("", "");
    says(&agent, &format!("{place} does not let this agent in: 407 Proxy Authentication Required"));
    says(&agent, "write the login into its variable, as http://USER:PASSWORD@HOST:PORT");
    let other = HttpProxy::start(HashMap::new());
    let room = Room { proxy: other, ..room };
    says(
        &room.agent("me:hunter2@", ""),
        "refuses the connection: 403 Forbidden for gateway.internal:",
    );
    // Without it nobody knows the name.
    says(&room.agent("me:hunter2@", ".internal"), "cannot be found; check its name in upstream");
}

#[test]
fn another_sort_of_proxy_is_refused_and_its_password_is_not_told() {
    for (variable, value) in [
        ("HTTPS_PROXY", "socks5://me:hunter2@proxy:1080"),
        ("all_proxy", "https://me:hunter2@proxy"),
    ] {
        let mut command = Command::new(binary("tenured"));
        command.args(["--upstream", "https://gateway.example", "check-config"]);
        for name in ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "NO_PROXY", "no_proxy"]
        {
            command.env_remove(name);
        }
        let command = command.env(variable, value).stdin(Stdio::null());
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let (code, out, err) = run_to_end(&mut Program::start(command));
        let told = format!("{out}{err}");
        assert_eq!(code, 78, "{told}");
        assert!(told.contains(variable) && told.contains("must name a proxy as http://"), "{told}");
        assert!(!told.contains("hunter2"), "{told}");
    }
}
