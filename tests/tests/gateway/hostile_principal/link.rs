//! One HTTP/1.1 connection to a gateway, kept alive, with a key.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Longest wait for an answer. What takes longer counts as no answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// A caller's connection; opened with the first call, and anew after an error.
pub(crate) struct Link {
    port: u16,
    key: String,
    stream: Option<TcpStream>,
}

impl Link {
    pub(crate) fn new(port: u16, key: &str) -> Link {
        Link { port, key: key.to_owned(), stream: None }
    }

    /// Sends a JSON body by POST; the status and the body of the answer.
    pub(crate) fn post(&mut self, path: &str, body: &str) -> io::Result<(u16, String)> {
        let answer = self.try_post(path, body);
        if answer.is_err() {
            self.stream = None;
        }
        answer
    }

    fn try_post(&mut self, path: &str, body: &str) -> io::Result<(u16, String)> {
        let head = self.head("POST", path, body.len());
        let stream = self.connected()?;
        stream.write_all(format!("{head}{body}").as_bytes())?;
        read_answer(stream)
    }

    /// The head of a request of this caller.
    pub(crate) fn head(&self, method: &str, path: &str, length: usize) -> String {
        let Link { port, key, .. } = self;
        format!(
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {key}\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        )
    }

    /// Its connection, for what is no call.
    pub(crate) fn connected(&mut self) -> io::Result<&mut TcpStream> {
        let stream = match self.stream.take() {
            Some(stream) => stream,
            None => {
                let stream = TcpStream::connect(("127.0.0.1", self.port))?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(ANSWER_WITHIN))?;
                stream.set_write_timeout(Some(ANSWER_WITHIN))?;
                stream
            }
        };
        Ok(self.stream.insert(stream))
    }
}

fn read_answer(stream: &mut TcpStream) -> io::Result<(u16, String)> {
    let mut read = Vec::new();
    loop {
        if let Some(answer) = whole(&read)? {
            return Ok(answer);
        }
        let mut buffer = [0; 16 << 10];
        match stream.read(&mut buffer)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => read.extend_from_slice(&buffer[..count]),
        }
    }
}

/// The answer, once all of it was read.
fn whole(read: &[u8]) -> io::Result<Option<(u16, String)>> {
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut head = httparse::Response::new(&mut headers);
    let parsed = head.parse(read).map_err(io::Error::other)?;
    let httparse::Status::Complete(at) = parsed else { return Ok(None) };
    let length = head.headers.iter().find(|it| it.name.eq_ignore_ascii_case("content-length"));
    let length = length.and_then(|it| std::str::from_utf8(it.value).ok()?.parse().ok());
    let body = read.get(at..at + length.unwrap_or(0));
    let text = body.map(|body| String::from_utf8_lossy(body).into_owned());
    Ok(text.map(|text| (head.code.unwrap_or(0), text)))
}
