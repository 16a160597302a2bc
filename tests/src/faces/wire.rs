//! Connections to the faces, each kept for many calls.

use std::io;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use prost::Message;
use tenure_proto::prism::admin::v1::ReleaseLeaseResponse;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::Channel;

use super::call::{Sent, Server};

/// The time in which something is answered at all.
const PATIENCE: Duration = Duration::from_secs(30);

/// An answer.
#[derive(Debug, Clone)]
pub(super) enum Reply {
    Http {
        status: u16,
        body: Vec<u8>,
    },
    Grpc {
        code: tonic::Code,
        message: String,
    },
    Process {
        code: Option<i32>,
        output: Vec<u8>,
    },
    /// None came.
    None(String),
}

/// The address of an HTTP server.
#[derive(Debug, Clone)]
pub(super) enum Place {
    Socket(PathBuf),
    Port(u16),
}

trait Stream: AsyncRead + AsyncWrite + Send + Sync + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin> Stream for T {}

/// A connection to a server of HTTP, which is opened again when it was closed.
pub(super) struct Line {
    place: Place,
    /// Headers of every call, each with the end of its line.
    headers: String,
    stream: Option<Box<dyn Stream>>,
    unread: Vec<u8>,
}

impl Line {
    pub(super) fn new(place: Place, headers: String) -> Line {
        Line { place, headers, stream: None, unread: Vec::new() }
    }

    /// One call. Sent once more if the server had closed the connection before.
    pub(super) async fn exchange(&mut self, sent: &[u8]) -> io::Result<(u16, Vec<u8>)> {
        let is_kept = self.stream.is_some();
        let mut answer = self.exchange_once(sent).await;
        if is_kept && answer.is_err() && self.unread.is_empty() {
            self.stream = None;
            answer = self.exchange_once(sent).await;
        }
        if answer.is_err() {
            self.stream = None;
        }
        answer
    }

    async fn exchange_once(&mut self, sent: &[u8]) -> io::Result<(u16, Vec<u8>)> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => {
                self.unread.clear();
                match &self.place {
                    Place::Socket(path) => Box::new(UnixStream::connect(path).await?),
                    Place::Port(port) => {
                        let stream = TcpStream::connect(("127.0.0.1", *port)).await?;
                        stream.set_nodelay(true)?;
                        Box::new(stream) as Box<dyn Stream>
                    }
                }
            }
        };
        // A server that refuses by the head alone may close before it has all: its answer counts.
        let written = stream.write_all(sent).await;
        let head = loop {
            if let Some(head) = Head::of(&self.unread)? {
                break head;
            }
            if fill(&mut stream, &mut self.unread).await? == 0 {
                written?;
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        };
        self.unread.drain(..head.bytes);
        let body = self.body(&mut stream, &head).await?;
        if !head.closes && written.is_ok() {
            self.stream = Some(stream);
        }
        Ok((head.status, body))
    }

    async fn body(&mut self, stream: &mut Box<dyn Stream>, head: &Head) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        if let Some(length) = head.length {
            while self.unread.len() < length {
                more(stream, &mut self.unread).await?;
            }
            body.extend(self.unread.drain(..length));
            return Ok(body);
        }
        if !head.is_chunked {
            return Ok(body);
        }
        loop {
            match httparse::parse_chunk_size(&self.unread).map_err(|_| invalid("a bad chunk"))? {
                httparse::Status::Partial => more(stream, &mut self.unread).await?,
                httparse::Status::Complete((start, size)) => {
                    let size = size as usize;
                    while self.unread.len() < start + size + 2 {
                        more(stream, &mut self.unread).await?;
                    }
                    body.extend_from_slice(&self.unread[start..start + size]);
                    self.unread.drain(..start + size + 2);
                    if size == 0 {
                        return Ok(body);
                    }
                }
            }
        }
    }

    /// The bytes of a call.
    pub(super) fn bytes(&self, method: &str, target: &str, headers: &str, body: &[u8]) -> Vec<u8> {
        let host = match self.place {
            Place::Socket(_) => "agent".to_owned(),
            Place::Port(port) => format!("127.0.0.1:{port}"),
        };
        let kind = if method == "POST" { "Content-Type: application/json\r\n" } else { "" };
        let (always, length) = (&self.headers, body.len());
        let head = format!(
            "{method} {target} HTTP/1.1\r\nHost: {host}\r\n{always}{headers}{kind}Content-Length: {length}\r\n\r\n"
        );
        [head.as_bytes(), body].concat()
    }
}

struct Head {
    bytes: usize,
    status: u16,
    length: Option<usize>,
    is_chunked: bool,
    closes: bool,
}

impl Head {
    fn of(unread: &[u8]) -> io::Result<Option<Head>> {
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut answer = httparse::Response::new(&mut headers);
        let httparse::Status::Complete(bytes) =
            answer.parse(unread).map_err(|error| invalid(&error.to_string()))?
        else {
            return Ok(None);
        };
        let header = |name: &str| {
            let found = answer.headers.iter().find(|it| it.name.eq_ignore_ascii_case(name));
            found.map(|it| String::from_utf8_lossy(it.value).to_ascii_lowercase())
        };
        Ok(Some(Head {
            bytes,
            status: answer.code.unwrap_or_default(),
            length: header("content-length").and_then(|length| length.parse().ok()),
            is_chunked: header("transfer-encoding").is_some_and(|it| it == "chunked"),
            closes: header("connection").is_some_and(|it| it == "close"),
        }))
    }
}

async fn fill(stream: &mut Box<dyn Stream>, unread: &mut Vec<u8>) -> io::Result<usize> {
    stream.read_buf(unread).await
}

async fn more(stream: &mut Box<dyn Stream>, unread: &mut Vec<u8>) -> io::Result<()> {
    match fill(stream, unread).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

/// All connections of one caller.
pub(super) struct Wires {
    pub agent: Line,
    pub gateway: Line,
    pub grpc: tonic::client::Grpc<Channel>,
    /// Authorization of calls of gRPC.
    pub bearer: String,
    pub socket: PathBuf,
}

impl Wires {
    /// Sends a request, and waits for its answer.
    pub(super) async fn send(&mut self, sent: &Sent) -> Reply {
        let answer = async {
            match sent {
                Sent::Http { to, method, target, headers, body } => {
                    let line = match to {
                        Server::Agent => &mut self.agent,
                        Server::Gateway => &mut self.gateway,
                    };
                    let bytes = line.bytes(method, target, headers, body);
                    match line.exchange(&bytes).await {
                        Ok((status, body)) => Reply::Http { status, body },
                        Err(error) => Reply::None(error.to_string()),
                    }
                }
                Sent::Grpc { path, message, tenant } => {
                    self.unary(path, message, tenant.as_deref()).await
                }
                Sent::Process { program, arguments } => self.process(program, arguments).await,
            }
        };
        let late = |_| Reply::None(format!("no answer in {} s", PATIENCE.as_secs()));
        tokio::time::timeout(PATIENCE, answer).await.unwrap_or_else(late)
    }

    async fn unary(&mut self, path: &'static str, message: &[u8], tenant: Option<&str>) -> Reply {
        let mut request = tonic::Request::new(message.to_vec());
        let metadata = request.metadata_mut();
        let bearer = self.bearer.parse().ok();
        bearer.map(|bearer| metadata.insert("authorization", bearer));
        if let Some(tenant) = tenant.and_then(|tenant| tenant.parse().ok()) {
            metadata.insert("x-tenure-tenant", tenant);
        }
        if let Err(error) = self.grpc.ready().await {
            return Reply::None(error.to_string());
        }
        let path = path.parse().expect("it is one");
        match self.grpc.unary(request, path, Bytes).await {
            // All answers have their words for people in the same place.
            Ok(answer) => match ReleaseLeaseResponse::decode(&answer.into_inner()[..]) {
                Ok(answer) => Reply::Grpc { code: tonic::Code::Ok, message: answer.message },
                Err(error) => Reply::None(error.to_string()),
            },
            // One of the library's own: the connection is gone, or the answer is none.
            Err(status) if std::error::Error::source(&status).is_some() => {
                Reply::None(format!("{status:?}"))
            }
            Err(status) => {
                Reply::Grpc { code: status.code(), message: status.message().to_owned() }
            }
        }
    }

    async fn process(&self, program: &str, arguments: &[std::ffi::OsString]) -> Reply {
        let mut command = tokio::process::Command::new(crate::harness::binary(program));
        command.args(arguments).env("TENURE_SOCKET", &self.socket).stdin(Stdio::null());
        match command.kill_on_drop(true).output().await {
            Ok(output) => Reply::Process {
                code: output.status.code(),
                output: [output.stdout, output.stderr].concat(),
            },
            Err(error) => Reply::None(error.to_string()),
        }
    }
}

/// Messages as they stand.
#[derive(Debug, Clone, Copy)]
struct Bytes;

impl Codec for Bytes {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Bytes;
    type Decoder = Bytes;

    fn encoder(&mut self) -> Bytes {
        *self
    }

    fn decoder(&mut self) -> Bytes {
        *self
    }
}

impl Encoder for Bytes {
    type Item = Vec<u8>;
    type Error = tonic::Status;

    fn encode(&mut self, item: Vec<u8>, to: &mut EncodeBuf<'_>) -> Result<(), tonic::Status> {
        prost::bytes::BufMut::put_slice(to, &item);
        Ok(())
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::default()
    }
}

impl Decoder for Bytes {
    type Item = Vec<u8>;
    type Error = tonic::Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, tonic::Status> {
        let bytes = prost::bytes::Buf::remaining(from);
        Ok(Some(prost::bytes::Buf::copy_to_bytes(from, bytes).to_vec()))
    }
}
