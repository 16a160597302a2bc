//! A backend that offers the session plane and nothing else. See `tests/python/seed_backend.py`.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Stdio;

use serde_json::{Value, json};
use tempfile::TempDir;
use tenure::wire::UpstreamState;

use super::gateway::write_secret;
use super::python;
use super::{Agent, Client, Program, free_port, until};

/// The key that it lets in.
const KEY: &str = "key-of-the-backend";

/// A running backend. Dropping it kills it.
pub struct SeedBackend {
    program: Program,
    port: u16,
    ttl_s: u64,
    dir: TempDir,
}

impl SeedBackend {
    /// Starts one whose sessions expire so many seconds after their last heartbeat, and waits until it answers.
    #[track_caller]
    pub fn start(ttl_s: u64) -> SeedBackend {
        let port = free_port();
        let dir = TempDir::with_prefix("seed-backend-").expect("a temporary directory");
        write_secret(&dir.path().join("key"), KEY);
        let backend = SeedBackend { program: spawn(port, ttl_s), port, ttl_s, dir };
        until("the backend to answer", || backend.try_status().is_ok());
        backend
    }

    /// An agent of that host on it.
    #[track_caller]
    pub fn agent(&self, host: &str, config: &str) -> Agent {
        let secret = self.dir.path().join("key");
        let secret = secret.display();
        let config =
            format!("host_name = \"{host}\"\nupstream_secret_file = \"{secret}\"\n{config}");
        let url = format!("http://127.0.0.1:{}", self.port);
        let agent = Agent::setup().upstream(&url).config(&config).start();
        until("the agent to be connected", || {
            agent.http().status().upstream.state == UpstreamState::Up
        });
        agent
    }

    /// Says what goes wrong from now on.
    #[track_caller]
    pub fn set(&self, faults: &Value) {
        self.call("POST /test", &faults.to_string()).expect("the backend answers");
    }

    /// The status of its project `p`.
    #[track_caller]
    pub fn status(&self) -> Value {
        self.try_status().expect("the backend answers")
    }

    /// Registers another program in project `p`; its session.
    #[track_caller]
    pub fn register(&self, surface: &str) -> String {
        let body = json!({"tenant_id": "default", "project_id": "p", "agent_identity": "Donna",
            "agent_surface": surface, "machine_id": "m-1"});
        let answer = self.call("POST /api/v1/controller/register", &body.to_string());
        let answer = answer.expect("the backend answers");
        answer["session_id"].as_str().expect("it has an id").to_owned()
    }

    /// SIGKILL, and waits until it is gone.
    #[track_caller]
    pub fn kill(&mut self) {
        self.program.kill();
    }

    /// Starts it again in the same place, without its memory.
    #[track_caller]
    pub fn start_again(&mut self) {
        self.program = spawn(self.port, self.ttl_s);
        until("the backend to answer", || self.try_status().is_ok());
    }

    fn try_status(&self) -> std::io::Result<Value> {
        self.call("GET /api/v1/controller/status?project_id=p", "")
    }

    fn call(&self, head: &str, body: &str) -> std::io::Result<Value> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        let length = body.len();
        write!(
            stream,
            "{head} HTTP/1.1\r\nHost: test\r\nConnection: close\r\nAuthorization: Bearer {KEY}\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        Ok(serde_json::from_str(body)?)
    }
}

#[track_caller]
fn spawn(port: u16, ttl_s: u64) -> Program {
    let arguments = [&*port.to_string(), &*ttl_s.to_string(), KEY];
    Program::start(python::command("seed_backend.py", &arguments).stdin(Stdio::null()))
}
