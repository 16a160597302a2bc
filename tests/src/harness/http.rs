//! A small blocking HTTP/1.1 client on a Unix socket: one connection, one call at a time.
//!
//! Small so that a thousand of them fit in a test and so that a benchmark measures the server.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{Answer, Client, DEADLINE};

/// Most headers of an answer.
const HEADERS_MAX: usize = 32;

/// One connection to an HTTP server on a Unix socket; connects again when the server closed it.
pub struct Http {
    socket: PathBuf,
    stream: Option<UnixStream>,
    /// Bytes read from `stream` that are not consumed yet.
    unread: Vec<u8>,
}

impl Http {
    /// A client of that socket. Connects with the first call.
    pub fn new(socket: &Path) -> Http {
        Http { socket: socket.to_owned(), stream: None, unread: Vec::with_capacity(4096) }
    }

    /// One call with any body.
    pub fn try_call(&mut self, method: &str, path: &str, body: &[u8]) -> io::Result<Answer> {
        let request = request_bytes(method, path, body);
        self.exchange(&request)
    }

    /// Sends ready-made bytes and reads one answer.
    pub fn exchange(&mut self, request: &[u8]) -> io::Result<Answer> {
        let reused = self.stream.is_some();
        let result = self.exchange_once(request);
        if reused && self.unread.is_empty() && result.as_ref().is_err_and(is_closed) {
            // The server closed the connection between two calls, or was started again.
            return self.exchange_once(request);
        }
        result
    }

    /// The same, but never sends anything twice: what was sent may have been done.
    pub fn try_once(&mut self, method: &str, path: &str, body: &[u8]) -> io::Result<Answer> {
        self.exchange_once(&request_bytes(method, path, body))
    }

    fn exchange_once(&mut self, request: &[u8]) -> io::Result<Answer> {
        if self.stream.is_none() {
            self.connect_anew()?;
        }
        let result = self.exchange_connected(request);
        let close = result.as_ref().map_or(true, |a| a.header("connection") == Some("close"));
        if close {
            self.stream = None;
        }
        result
    }

    fn connect_anew(&mut self) -> io::Result<()> {
        self.unread.clear();
        self.stream = Some(connect(&self.socket)?);
        Ok(())
    }

    fn exchange_connected(&mut self, request: &[u8]) -> io::Result<Answer> {
        let stream = self.stream.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        stream.write_all(request)?;
        let mut answer = read_head(stream, &mut self.unread)?;
        read_body(stream, &mut self.unread, &mut answer)?;
        Ok(answer)
    }
}

impl Client for Http {
    #[track_caller]
    fn call(&mut self, method: &str, path: &str, body: Option<&Value>) -> Answer {
        let body = body.map(Value::to_string).unwrap_or_default();
        self.try_call(method, path, body.as_bytes())
            .unwrap_or_else(|error| panic!("{method} {path} of {}: {error}", self.socket.display()))
    }
}

/// The bytes of a request.
fn request_bytes(method: &str, path: &str, body: &[u8]) -> Vec<u8> {
    let mut request = format!(
        "{method} {path} HTTP/1.1\r\nhost: agent\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    request.extend_from_slice(body);
    request
}

pub(super) fn connect(socket: &Path) -> io::Result<UnixStream> {
    let stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(DEADLINE))?;
    stream.set_write_timeout(Some(DEADLINE))?;
    Ok(stream)
}

fn is_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

fn fill(stream: &mut UnixStream, unread: &mut Vec<u8>) -> io::Result<()> {
    let mut buffer = [0; 4096];
    let read = stream.read(&mut buffer)?;
    if read == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    unread.extend_from_slice(&buffer[..read]);
    Ok(())
}

pub(super) fn read_head(stream: &mut UnixStream, unread: &mut Vec<u8>) -> io::Result<Answer> {
    loop {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut head = httparse::Response::new(&mut headers);
        if let httparse::Status::Complete(length) = head.parse(unread).map_err(invalid)? {
            let status = head.code.ok_or_else(|| invalid("an answer without status"))?;
            let headers = head
                .headers
                .iter()
                .map(|h| {
                    let value = String::from_utf8_lossy(h.value).into_owned();
                    (h.name.to_ascii_lowercase(), value)
                })
                .collect();
            unread.drain(..length);
            return Ok(Answer { status, headers, body: Vec::new() });
        }
        fill(stream, unread)?;
    }
}

pub(super) fn read_body(
    stream: &mut UnixStream,
    unread: &mut Vec<u8>,
    answer: &mut Answer,
) -> io::Result<()> {
    if answer.header("transfer-encoding") == Some("chunked") {
        while let Some(chunk) = read_chunk(stream, unread)? {
            answer.body.extend_from_slice(&chunk);
        }
    } else if let Some(length) = answer.header("content-length") {
        let length: usize = length.parse().map_err(invalid)?;
        while unread.len() < length {
            fill(stream, unread)?;
        }
        answer.body = unread.drain(..length).collect();
    }
    Ok(())
}

/// The next chunk of a chunked body; `None` at its end.
pub(super) fn read_chunk(
    stream: &mut UnixStream,
    unread: &mut Vec<u8>,
) -> io::Result<Option<Vec<u8>>> {
    loop {
        if let httparse::Status::Complete((start, size)) =
            httparse::parse_chunk_size(unread).map_err(|_| invalid("a broken chunk"))?
        {
            let size = usize::try_from(size).map_err(invalid)?;
            let end = start + size;
            while unread.len() < end + 2 {
                fill(stream, unread)?;
            }
            let chunk = unread[start..end].to_vec();
            unread.drain(..end + 2);
            return Ok((size > 0).then_some(chunk));
        }
        fill(stream, unread)?;
    }
}
