//! A small blocking HTTP/1.1 client on a Unix socket: one connection, one call at a time.
//!
//! Small so that a thousand of them fit in a test and so that a benchmark measures the server.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use serde_json::Value;
use uuid::Uuid;

use super::{Answer, Client, DEADLINE, EventLog};

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
    ///
    /// # Errors
    ///
    /// Those of the socket, and `InvalidData` for what is not HTTP.
    pub fn try_call(&mut self, method: &str, path: &str, body: &[u8]) -> io::Result<Answer> {
        let request = request_bytes(method, path, body);
        self.exchange(&request)
    }

    /// Sends ready-made bytes and reads one answer.
    ///
    /// # Errors
    ///
    /// Those of the socket, and `InvalidData` for what is not HTTP.
    pub fn exchange(&mut self, request: &[u8]) -> io::Result<Answer> {
        let reused = self.stream.is_some();
        if !reused {
            self.connect_anew()?;
        }
        let mut result = self.exchange_connected(request);
        if reused && self.unread.is_empty() && result.as_ref().is_err_and(is_closed) {
            // The server closed the connection between two calls, or was started again.
            self.connect_anew()?;
            result = self.exchange_connected(request);
        }
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
        let (status, headers) = read_head(stream, &mut self.unread)?;
        let mut answer = Answer { status, headers, body: Vec::new() };
        if answer.header("transfer-encoding") == Some("chunked") {
            while let Some(chunk) = read_chunk(stream, &mut self.unread)? {
                answer.body.extend_from_slice(&chunk);
            }
        } else if let Some(length) = answer.header("content-length") {
            let length: usize = length.parse().map_err(invalid)?;
            while self.unread.len() < length {
                fill(stream, &mut self.unread)?;
            }
            answer.body = self.unread.drain(..length).collect();
        }
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
pub(super) fn request_bytes(method: &str, path: &str, body: &[u8]) -> Vec<u8> {
    let mut request = format!(
        "{method} {path} HTTP/1.1\r\nhost: agent\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    request.extend_from_slice(body);
    request
}

fn connect(socket: &Path) -> io::Result<UnixStream> {
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

fn read_head(
    stream: &mut UnixStream,
    unread: &mut Vec<u8>,
) -> io::Result<(u16, Vec<(String, String)>)> {
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
            return Ok((status, headers));
        }
        fill(stream, unread)?;
    }
}

/// The next chunk of a chunked body; `None` at its end.
fn read_chunk(stream: &mut UnixStream, unread: &mut Vec<u8>) -> io::Result<Option<Vec<u8>>> {
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

/// Why a stream could not be opened.
#[derive(Debug)]
pub enum StreamError {
    /// The agent refused.
    Refused(Answer),
    /// The socket failed.
    Io(io::Error),
}

/// An open event stream, read by a thread into its [`EventLog`]. Dropping it closes the stream.
pub struct Events {
    log: Arc<EventLog>,
    stream: UnixStream,
    reader: Option<JoinHandle<()>>,
}

impl Events {
    /// Opens the stream of a session; it must open.
    ///
    /// # Panics
    ///
    /// When it does not.
    #[track_caller]
    pub fn open(socket: &Path, session: Uuid) -> Events {
        Events::try_open(socket, &format!("/v1/events?session={session}"), None)
            .unwrap_or_else(|error| panic!("the stream of {session} did not open: {error:?}"))
    }

    /// Opens a stream, after the event that was seen last.
    ///
    /// # Errors
    ///
    /// What the agent, or the socket, said instead.
    pub fn try_open(
        socket: &Path,
        path: &str,
        last_event_id: Option<u64>,
    ) -> Result<Events, StreamError> {
        let mut stream = connect(socket).map_err(StreamError::Io)?;
        let last =
            last_event_id.map(|id| format!("last-event-id: {id}\r\n")).unwrap_or_default();
        let request = format!("GET {path} HTTP/1.1\r\nhost: agent\r\n{last}\r\n");
        stream.write_all(request.as_bytes()).map_err(StreamError::Io)?;
        let mut unread = Vec::new();
        let (status, headers) = read_head(&mut stream, &mut unread).map_err(StreamError::Io)?;
        let mut answer = Answer { status, headers, body: Vec::new() };
        if status != 200 {
            let length = answer.header("content-length").and_then(|n| n.parse().ok()).unwrap_or(0);
            while unread.len() < length {
                fill(&mut stream, &mut unread).map_err(StreamError::Io)?;
            }
            answer.body = unread;
            return Err(StreamError::Refused(answer));
        }
        let content_type = answer.header("content-type").unwrap_or_default();
        assert!(content_type.starts_with("text/event-stream"), "{content_type}");

        // The stream may be silent for ever; `drop` shuts it down.
        stream.set_read_timeout(None).map_err(StreamError::Io)?;
        let log = Arc::new(EventLog::default());
        let reader = std::thread::spawn({
            let log = Arc::clone(&log);
            let mut stream = stream.try_clone().map_err(StreamError::Io)?;
            move || {
                while let Ok(Some(chunk)) = read_chunk(&mut stream, &mut unread) {
                    log.feed(&chunk);
                }
                log.finish();
            }
        });
        Ok(Events { log, stream, reader: Some(reader) })
    }

    /// The socket under the stream.
    pub fn socket(&self) -> &UnixStream {
        &self.stream
    }

    /// What came, and what is still to come.
    pub fn log(&self) -> &Arc<EventLog> {
        &self.log
    }
}

impl std::ops::Deref for Events {
    type Target = EventLog;

    fn deref(&self) -> &EventLog {
        &self.log
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        // Fails only when the agent closed it first.
        let _ = self.stream.shutdown(Shutdown::Both);
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}
