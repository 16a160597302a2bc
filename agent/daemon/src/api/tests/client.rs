//! A client that sends exactly what it is told to.

use std::path::Path;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::within;

pub(super) struct Client {
    pub(super) stream: UnixStream,
    buffer: Vec<u8>,
}

#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub(super) status: u16,
    head: String,
    pub(super) body: String,
}

impl Answer {
    /// A header's value.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then_some(value.trim())
        })
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    /// Asserts that this is a problem.
    #[track_caller]
    pub(super) fn problem(&self, status: u16, code: &str) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        let json = self.json();
        assert_eq!(json["code"], code, "{self:?}");
        assert_eq!(json["status"], status, "{self:?}");
        json
    }
}

impl Client {
    pub(super) async fn connect(path: &Path) -> Client {
        let stream = within("a connection", UnixStream::connect(path)).await.unwrap();
        Client { stream, buffer: Vec::new() }
    }

    /// Sends, whatever becomes of it: the server may have closed already.
    pub(super) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.stream.write_all(bytes.as_ref()).await;
    }

    pub(super) async fn get(&mut self, path: &str) -> Answer {
        self.send(format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n")).await;
        self.answer().await.expect("an answer")
    }

    pub(super) async fn post(&mut self, path: &str, body: &str) -> Answer {
        self.send(post(path, body)).await;
        self.answer().await.expect("an answer")
    }

    async fn more(&mut self) -> bool {
        let mut chunk = [0; 16 * 1024];
        match within("bytes or the end", self.stream.read(&mut chunk)).await {
            Ok(0) | Err(_) => false,
            Ok(read) => {
                self.buffer.extend_from_slice(&chunk[..read]);
                true
            }
        }
    }

    /// Reads until the text is there, and takes all up to its end; `None` at the end.
    pub(super) async fn until(&mut self, text: &str) -> Option<String> {
        loop {
            let found =
                self.buffer.windows(text.len()).position(|window| window == text.as_bytes());
            if let Some(at) = found {
                let taken: Vec<u8> = self.buffer.drain(..at + text.len()).collect();
                return Some(String::from_utf8(taken).unwrap());
            }
            if !self.more().await {
                return None;
            }
        }
    }

    /// The head of an answer; its body stays.
    pub(super) async fn head(&mut self) -> Option<Answer> {
        let head = self.until("\r\n\r\n").await?;
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Some(Answer { status, head, body: String::new() })
    }

    /// The next answer with a known length; `None` when the server has closed.
    pub(super) async fn answer(&mut self) -> Option<Answer> {
        let mut answer = self.head().await?;
        let length = answer.header("content-length").map_or(0, |value| value.parse().unwrap());
        while self.buffer.len() < length {
            assert!(self.more().await, "the body of {answer:?} is cut short");
        }
        answer.body = String::from_utf8(self.buffer.drain(..length).collect()).unwrap();
        Some(answer)
    }

    /// Everything until the server closes.
    pub(super) async fn rest(&mut self) -> String {
        while self.more().await {}
        String::from_utf8(std::mem::take(&mut self.buffer)).unwrap()
    }
}

pub(super) fn post(path: &str, body: &str) -> String {
    // The request of `curl -d`.
    format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-www-form-urlencoded\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
}
