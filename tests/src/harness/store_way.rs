//! Calls of a gateway's store, in the words in which an agent speaks to it.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use tenure::wire::{Attributes, Kind};
use tenure_core::model::{
    Answer, Beat, Claim, ClaimId, Owner, Request, Resource, SessionId, Subject, Terms,
};
use tenure_stores::gateway::scope::Mark;
use tenure_stores::gateway::wire::{self, Hello, Operation, PROTOCOL, Welcome};
use uuid::Uuid;

use super::Hosts;

/// A gateway that has not answered by then is given up; a node gives up earlier.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// Most bytes of a head.
const HEADERS_MAX: usize = 32;

/// The outcome of a call.
pub enum Outcome {
    Answer(Answer),
    /// It took no effect.
    Refused,
    /// It may have taken effect.
    Unknown,
}

/// A gateway, as a program beside it calls it.
pub struct Way {
    hosts: Arc<Hosts>,
    host: usize,
    port: u16,
    open: Option<(TcpStream, Mark)>,
}

impl Way {
    pub fn new(hosts: &Arc<Hosts>, host: usize, port: u16) -> Way {
        Way { hosts: Arc::clone(hosts), host, port, open: None }
    }

    /// The end of all ids of this caller; `None` if the gateway does not answer.
    pub fn mark(&mut self) -> Option<Mark> {
        if self.open.is_none() {
            self.open = self.connect().ok();
        }
        self.open.as_ref().map(|(_, mark)| *mark)
    }

    pub fn call(&mut self, request: &Request) -> Outcome {
        if self.mark().is_none() {
            return Outcome::Refused;
        }
        let Some((mut stream, mark)) = self.open.take() else { return Outcome::Refused };
        let operation = Operation::of(request);
        let body = wire::request_body(request.clone()).expect("it is JSON");
        let Ok((status, body)) = exchange(&mut stream, operation.path(), &body) else {
            return Outcome::Unknown;
        };
        self.open = Some((stream, mark));
        match status {
            200 => Outcome::Answer(operation.read_answer(&body).expect("it is an answer")),
            400..500 => Outcome::Refused,
            _ => Outcome::Unknown,
        }
    }

    fn connect(&self) -> io::Result<(TcpStream, Mark)> {
        self.hosts.move_to(self.host);
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        stream.set_write_timeout(Some(ANSWER_MAX))?;
        let hello =
            Hello { protocol: PROTOCOL, version: "test".to_owned(), host: None, only_looks: false };
        let (status, body) = exchange(&mut stream, wire::HELLO, &serde_json::to_vec(&hello)?)?;
        if status != 200 {
            return Err(io::Error::other("it lets nobody in"));
        }
        let welcome: Welcome = serde_json::from_slice(&body)?;
        Ok((stream, welcome.mark))
    }
}

/// One call; the status and the body.
fn exchange(stream: &mut TcpStream, path: &str, body: &[u8]) -> io::Result<(u16, Vec<u8>)> {
    let mut bytes = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    bytes.extend_from_slice(body);
    stream.write_all(&bytes)?;
    let mut read = Vec::new();
    loop {
        let mut buffer = [0; 4096];
        match stream.read(&mut buffer)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => read.extend_from_slice(&buffer[..count]),
        }
        if let Some(answer) = answer(&read)? {
            return Ok(answer);
        }
    }
}

/// The status and the body, once all of it is there.
fn answer(read: &[u8]) -> io::Result<Option<(u16, Vec<u8>)>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(start) = head.parse(read).map_err(io::Error::other)? else {
        return Ok(None);
    };
    let of_length =
        |header: &&httparse::Header<'_>| header.name.eq_ignore_ascii_case("content-length");
    let length = head.headers.iter().find(of_length).and_then(|it| str::from_utf8(it.value).ok());
    let length: usize = length.and_then(|it| it.parse().ok()).ok_or(io::ErrorKind::InvalidData)?;
    let body = read.get(start..start + length);
    Ok(body.and_then(|body| Some((head.code?, body.to_vec()))))
}

/// A claim that somebody makes, alone or among others.
#[derive(Clone)]
pub struct Wish {
    pub id: Uuid,
    pub resource: Resource,
    pub ttl: Duration,
}

impl Wish {
    /// One of a resource of the default tenant.
    pub fn new(id: Uuid, kind: Kind, name: &str, ttl: Duration) -> Wish {
        Wish { id, resource: Resource { tenant: "default".into(), kind, name: name.into() }, ttl }
    }

    /// Asks for it, and does not wait.
    pub fn claim(&self) -> Request {
        let terms = match self.resource.kind {
            Kind::Lease => Terms::Lease {
                grace: Duration::ZERO,
                attributes: Attributes::default(),
                take_over: None,
            },
            _ => Terms::Leader,
        };
        let owner = Owner { session: SessionId(self.id), host: "here".into(), name: "test".into() };
        let (id, resource) = (ClaimId(self.id), self.resource.clone());
        Request::Claim(Claim { id, resource, owner, ttl: self.ttl, terms, enqueue: false })
    }

    pub fn beat(&self) -> Request {
        let (claim, resource) = (ClaimId(self.id), self.resource.clone());
        Request::Renew(vec![Beat { subject: Subject::Claim { claim, resource }, ttl: self.ttl }])
    }

    pub fn release(&self) -> Request {
        Request::Release { claim: ClaimId(self.id), resource: self.resource.clone() }
    }
}
