//! A caller: its connections, its keys, and one request after the other.

use std::sync::Mutex;

use serde_json::{Value, json};
use tenure_stores::gateway::wire::Operation as Of;
use tonic::transport::Endpoint;

use super::call::{Call, Sent, Server};
use super::report::{Failure, Report};
use super::request::{Field, Operation, Request};
use super::rules::{self, Expected};
use super::servers::Servers;
use super::verdict::{self, Verdict};
use super::wire::{Line, Place, Reply, Wires};
use super::{Face, Own, calls, lock, names};
use crate::harness::boottime_ns;

/// A face's answer to a call.
pub(super) struct Said<'a> {
    pub request: &'a Request,
    pub call: Call,
    pub reply: Reply,
    pub verdict: Verdict,
    pub expected: Expected,
}

/// A caller.
pub(super) struct Lane {
    wires: Wires,
    own: Own,
}

impl Lane {
    /// Connects one to the servers, with one of their keys.
    pub(super) async fn open(servers: &Servers, number: usize) -> Lane {
        let (key, mark) = servers.key(number);
        let port = servers.gateway_port();
        let socket = servers.socket();
        let authorization = format!("Authorization: Bearer {key}\r\n");
        let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{port}"));
        let channel = endpoint.expect("it is an address").connect_lazy();
        let wires = Wires {
            agent: Line::new(Place::Socket(socket.clone()), String::new()),
            gateway: Line::new(Place::Port(port), authorization),
            grpc: tonic::client::Grpc::new(channel),
            bearer: format!("Bearer {key}"),
            socket,
        };
        let own = Own { agent_session: String::new(), mark };
        let mut lane = Lane { wires, own };
        lane.register().await;
        lane
    }

    /// Sends a request, and waits for its answer.
    pub(super) async fn send(&mut self, sent: &Sent) -> Reply {
        self.wires.send(sent).await
    }

    /// Begins its session at the agent.
    async fn register(&mut self) {
        let body = json!({"name": "lane", "project": "lanes", "keepalive_ms": 3_600_000});
        let body = body.to_string().into_bytes();
        let reply = self.wires.send(&Sent::post(Server::Agent, "/v1/register", body)).await;
        if let Some(session) = field(&reply, "session") {
            self.own.agent_session = session;
        }
    }

    /// Sends a request to all faces, whose verdicts must be the same.
    pub(super) async fn ask_of_all(
        &mut self,
        request: &Request,
        report: &Mutex<Report>,
        shows: bool,
    ) {
        let said = self.ask(request, report, shows).await;
        if let Some(what) = verdict::differing(&said) {
            lock(report).fail(Failure::of(request, &said[0].call, what, String::new()));
        }
    }

    /// Sends a name to all faces, whose verdicts and words must be the same.
    pub(super) async fn ask_of_name(
        &mut self,
        requests: &[Request],
        report: &Mutex<Report>,
        shows: bool,
    ) {
        let mut said = Vec::new();
        for request in requests {
            said.extend(self.ask(request, report, shows).await);
        }
        if let Some((at, what)) = names::differing(&said) {
            let Said { request, call, reply, .. } = &said[at];
            lock(report).fail(Failure::of(request, call, what, verdict::text(reply)));
        }
    }

    /// Sends a request to all faces, and notes what they say.
    async fn ask<'a>(
        &mut self,
        request: &'a Request,
        report: &Mutex<Report>,
        shows: bool,
    ) -> Vec<Said<'a>> {
        let mut said = Vec::new();
        if shows {
            println!("{request}");
        }
        for call in calls(request, &self.own) {
            let began = boottime_ns();
            let reply = self.wires.send(&call.sent).await;
            let took_ns = boottime_ns() - began;
            let verdict = verdict::of(call.face, &reply);
            let expected = rules::expected(call.face, request, &call.carried);
            if shows {
                println!("{}: {verdict:?}, {expected:?} was expected", call.face);
                println!("  {}\n  {}", sent_text(&call.sent), verdict::text(&reply));
            }
            let fault = verdict::fault(call.face, &reply, &verdict, expected);
            lock(report).note(call.face, &verdict, took_ns, request.seed);
            if let Some(what) = fault {
                let answer = verdict::text(&reply);
                lock(report).fail(Failure::of(request, &call, what, answer));
            }
            self.tidy(request, &call, &reply).await;
            said.push(Said { request, call, reply, verdict, expected });
        }
        said
    }

    /// Gives back what was granted, so that what is there at a time has a bound; and goes on with another session if the
    /// agent has ended this one.
    async fn tidy(&mut self, request: &Request, call: &Call, reply: &Reply) {
        let Reply::Http { status, body } = reply else {
            if let (Reply::Grpc { code: tonic::Code::Ok, .. }, Sent::Grpc { path, message, tenant }) =
                (reply, &call.sent)
                && path.ends_with("AcquireLease")
                && !request.stays
            {
                // The fields of a release are the first two of its acquisition; the others are passed over.
                let (path, message) =
                    ("/prism.admin.v1.ControlPlane/ReleaseLease", message.clone());
                let release = Sent::Grpc { path, message, tenant: tenant.clone() };
                self.wires.send(&release).await;
            }
            return;
        };
        let is_own_session = request.get(Field::Id).is_none();
        if call.face == Face::Agent && matches!(status, 404 | 410) && is_own_session {
            self.register().await;
            return;
        }
        if !(200..300).contains(status) || request.stays {
            return;
        }
        let answer: Value = serde_json::from_slice(body).unwrap_or_default();
        if let Some(sent) = self.return_of(request, call, &answer) {
            self.wires.send(&sent).await;
        }
    }

    fn return_of(&self, request: &Request, call: &Call, answer: &Value) -> Option<Sent> {
        let Sent::Http { body, .. } = &call.sent else { return None };
        let asked = || serde_json::from_slice::<Value>(body).ok();
        let post = |to, path, body: Value| Sent::post(to, path, body.to_string().into_bytes());
        Some(match (call.face, request.operation) {
            (Face::Agent, Operation::Register) => {
                let body = json!({"session": answer["session"]});
                post(Server::Agent, "/v1/release", body)
            }
            (Face::Agent, Operation::Take) => {
                let body = json!({"session": self.own.agent_session, "hold": answer["hold"]});
                post(Server::Agent, "/v1/release", body)
            }
            (Face::Upstream, Operation::Register) => {
                let asked = asked()?;
                let (tenant, project) = (&asked["tenant"], &asked["project"]);
                let body = json!({"session": asked["owner"]["session"], "tenant": tenant, "project": project});
                post(Server::Gateway, Of::End.path(), body)
            }
            (Face::Upstream, Operation::Take) => {
                let asked = asked()?;
                let body = json!({"claim": asked["id"], "resource": asked["resource"]});
                post(Server::Gateway, Of::Release.path(), body)
            }
            (Face::Sessions, Operation::Register) => {
                let session = answer["session_id"].as_str()?;
                Sent::Http {
                    to: Server::Gateway,
                    method: "POST",
                    target: "/api/v1/controller/release".to_owned(),
                    headers: format!("X-Prism-Session-Id: {session}\r\n"),
                    body: b"{}".to_vec(),
                }
            }
            _ => return None,
        })
    }
}

fn field(reply: &Reply, name: &str) -> Option<String> {
    let Reply::Http { body, .. } = reply else { return None };
    let answer: Value = serde_json::from_slice(body).ok()?;
    answer[name].as_str().map(str::to_owned)
}

/// A request in the words of its face, shortened.
pub(super) fn sent_text(sent: &Sent) -> String {
    let text = match sent {
        Sent::Http { method, target, headers, body, .. } => {
            format!("{method} {target} {headers} {}", body.escape_ascii())
        }
        Sent::Grpc { path, message, tenant } => {
            format!("{path} {tenant:?} {}", message.escape_ascii())
        }
        Sent::Process { program, arguments } => format!("{program} {arguments:?}"),
    };
    text.chars().take(600).flat_map(char::escape_debug).collect()
}
