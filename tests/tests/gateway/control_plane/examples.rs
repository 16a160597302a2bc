//! The runner and the proxy of the documentation: queries reach whoever holds the mailbox, while it moves.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, thread};

use nix::sys::signal::Signal;
use serde_json::Value;
use tenure_tests::harness::{DEADLINE, Gateway, Program, Python, free_port, until};

/// Queries, and how many with `TENURE_LOAD=full`.
const QUERIES: usize = 1_000;
const QUERIES_FULL: usize = 10_000;
/// How often a mailbox goes to another runner meanwhile, at least.
const MOVES: usize = 12;
const MAILBOXES: usize = 3;
const CLIENTS: usize = 4;
/// So many of a thousand queries are answered.
const ANSWERED: usize = 999;

fn mailbox(number: usize) -> String {
    format!("mail-{number}@proxy-01")
}

fn address() -> String {
    format!("127.0.0.1:{}", free_port())
}

/// Asks a proxy: the status, and the answer.
fn query(proxy: &str, mailbox: &str) -> (u16, Value) {
    let mut stream = TcpStream::connect(proxy).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    write!(stream, "GET /{mailbox} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.expect("a status"), serde_json::from_str(body).unwrap())
}

/// A runner that may be ended and started again.
struct Runner {
    arguments: [String; 4],
    program: Program,
}

impl Runner {
    fn start(gateway: &Gateway, mailbox: String, id: String) -> Runner {
        let control_plane = format!("127.0.0.1:{}", gateway.port());
        let arguments = [control_plane, id, mailbox, address()];
        let program = example("runner.py", &arguments);
        Runner { arguments, program }
    }

    /// Ends it, and starts it again.
    fn moves(&mut self, signal: Signal) {
        self.program.signal(signal);
        self.program.wait();
        self.program = example("runner.py", &self.arguments);
    }
}

fn example(name: &str, arguments: &[String]) -> Program {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut command = Python::example(&format!("control-plane/{name}"), &arguments);
    Program::start(command.stdout(Stdio::null()))
}

#[test]
fn queries_reach_the_runner_that_holds_the_mailbox_while_it_moves() {
    let full = env::var("TENURE_LOAD").is_ok_and(|size| size == "full");
    let queries = if full { QUERIES_FULL } else { QUERIES };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("gateway.toml");
    std::fs::write(&file, "[mailbox]\ngrace_period = \"1s\"\nheartbeat_interval = \"1s\"\n")
        .unwrap();
    let gateway = Gateway::start_by("embedded:", &[], &[format!("--config={}", file.display())]);
    let control_plane = format!("127.0.0.1:{}", gateway.port());
    let at: [String; 2] = [address(), address()];
    let _proxies = [0, 1].map(|number| {
        let id = format!("proxy-0{}", number + 1);
        example("proxy.py", &[control_plane.clone(), id, address(), at[number].clone()])
    });
    let mut runners: Vec<Runner> = (0..2 * MAILBOXES)
        .map(|number| Runner::start(&gateway, mailbox(number / 2), format!("runner-{number}")))
        .collect();
    for proxy in &at {
        for number in 0..MAILBOXES {
            until("a runner to answer", || {
                TcpStream::connect(proxy).is_ok() && query(proxy, &mailbox(number)).0 == 200
            });
        }
    }

    let (asked, answered, moved) = <(AtomicUsize, AtomicUsize, AtomicUsize)>::default();
    let is_over =
        || moved.load(Ordering::Relaxed) >= MOVES && asked.load(Ordering::Relaxed) >= queries;
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (at, asked, answered, is_over) = (&at, &asked, &answered, &is_over);
            scope.spawn(move || {
                let mut tokens = HashMap::new();
                for round in client.. {
                    if is_over() {
                        break;
                    }
                    asked.fetch_add(1, Ordering::Relaxed);
                    let mailbox = mailbox(round % MAILBOXES);
                    let (status, answer) = query(&at[round % 2], &mailbox);
                    if status == 200 {
                        answered.fetch_add(1, Ordering::Relaxed);
                        // Whoever held it before answers no more.
                        let token = answer["token"].as_u64().unwrap();
                        let before = tokens.insert(mailbox, token).unwrap_or(0);
                        assert!(token >= before, "{answer} after {before}");
                    } else {
                        eprintln!("{status}: {answer}");
                        assert!(answer["error"].as_str().unwrap().contains(&mailbox), "{answer}");
                    }
                }
            });
        }
        for round in 0.. {
            if is_over() {
                break;
            }
            let mailbox = mailbox(round % MAILBOXES);
            let (_, before) = query(&at[0], &mailbox);
            let holds = |it: &&mut Runner| before["runner"] == it.arguments[1].as_str();
            let signal = if round % 4 == 3 { Signal::SIGKILL } else { Signal::SIGTERM };
            runners.iter_mut().find(holds).expect("a runner answers").moves(signal);
            until("it to be held again", || {
                let (status, now) = query(&at[0], &mailbox);
                status == 200 && now["token"].as_u64() > before["token"].as_u64()
            });
            moved.fetch_add(1, Ordering::Relaxed);
        }
    });
    let (asked, answered) = (asked.load(Ordering::Relaxed), answered.load(Ordering::Relaxed));
    eprintln!(
        "{answered} of {asked} queries answered during {} moves",
        moved.load(Ordering::Relaxed)
    );
    assert!(answered * 1000 >= asked * ANSWERED, "{answered} of {asked}");
}
