//! A connection to the agent that sends faster than it reads.

use std::io;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::target::{RETRY, pause};

/// Requests that are sent before the first answer is read: few enough to fit into the socket.
const AT_ONCE: usize = 32;

pub(super) struct Connection {
    pub(super) stream: UnixStream,
    pub(super) unread: Vec<u8>,
}

pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
}

impl Answer {
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    pub(super) fn field(&self, name: &str) -> anyhow::Result<String> {
        let field = self.json()[name].as_str().map(str::to_owned);
        field.with_context(|| format!("{} without {name}: {}", self.status, self.text()))
    }

    /// The status, and the limit of a refusal.
    pub(super) fn sort(&self) -> String {
        match self.status {
            429 => {
                let detail = self.json()["detail"].as_str().unwrap_or_default().to_owned();
                // The limit's name, without the numbers.
                let named = detail.split_whitespace().find(|word| word.contains('_'));
                format!("429 {}", named.unwrap_or_default())
            }
            status => status.to_string(),
        }
    }
}

impl Connection {
    pub(super) async fn register(&mut self, with: &Value) -> anyhow::Result<String> {
        let answer = self.exchange(&post("/v1/register", with)).await?;
        ensure!(answer.status == 201, "{}", answer.sort());
        answer.field("session")
    }

    pub(super) async fn exchange(&mut self, request: &[u8]) -> anyhow::Result<Answer> {
        self.stream.write_all(request).await?;
        self.answer().await
    }

    pub(super) async fn exchange_all(
        &mut self,
        requests: &[Vec<u8>],
    ) -> anyhow::Result<Vec<Answer>> {
        let mut answers = Vec::with_capacity(requests.len());
        for requests in requests.chunks(AT_ONCE) {
            self.stream.write_all(&requests.concat()).await?;
            for _ in requests {
                answers.push(self.answer().await?);
            }
        }
        Ok(answers)
    }

    pub(super) async fn more(&mut self) -> io::Result<()> {
        let mut scrap = [0; 64 * 1024];
        match self.stream.read(&mut scrap).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            read => {
                self.unread.extend_from_slice(&scrap[..read]);
                Ok(())
            }
        }
    }

    pub(super) async fn answer(&mut self) -> anyhow::Result<Answer> {
        loop {
            let mut headers = [httparse::EMPTY_HEADER; 32];
            let mut head = httparse::Response::new(&mut headers);
            if let httparse::Status::Complete(start) = head.parse(&self.unread)? {
                let status = head.code.unwrap_or(0);
                let length =
                    head.headers.iter().find(|h| h.name.eq_ignore_ascii_case("content-length"));
                let length = length.and_then(|h| std::str::from_utf8(h.value).ok()?.parse().ok());
                let end = start + length.unwrap_or(0);
                while self.unread.len() < end {
                    self.more().await?;
                }
                let body = self.unread[start..end].to_vec();
                self.unread.drain(..end);
                return Ok(Answer { status, body });
            }
            self.more().await?;
        }
    }

    /// Ends when the other side has closed the connection, or has shut its half of it.
    pub(super) async fn closed(&self) -> io::Result<()> {
        loop {
            let ready = self.stream.ready(tokio::io::Interest::READABLE).await?;
            if ready.is_read_closed() {
                return Ok(());
            }
            // Readable all the time: looked at again and again, but not often.
            pause(Duration::from_millis(250)).await;
        }
    }

    /// The status of the last answer that came, if one did.
    pub(super) async fn status(&mut self) -> Option<u16> {
        let mut last = None;
        while let Ok(Ok(answer)) = tokio::time::timeout(RETRY, self.answer()).await {
            last = Some(answer.status);
        }
        last
    }
}

pub(super) fn get(path: &str, times: usize) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n").repeat(times).into_bytes()
}

pub(super) fn post(path: &str, body: &Value) -> Vec<u8> {
    let body = body.to_string();
    let length = body.len();
    format!("POST {path} HTTP/1.1\r\nhost: a\r\ncontent-length: {length}\r\n\r\n{body}")
        .into_bytes()
}
