//! The agent asks itself whether it answers.

use std::io;
use std::time::Duration;

use tenure_wire::{Code, Problem};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::limits::HEAD_MAX;

const REQUEST: &[u8] = b"GET /readyz HTTP/1.1\r\nhost: agent\r\n\r\n";
/// The body is a few lines of JSON.
const ANSWER_MAX: usize = HEAD_MAX;

/// Why the agent does not answer itself.
#[derive(Debug, thiserror::Error)]
pub enum Unanswered {
    /// The accept loop is stuck, or over.
    #[error("the API does not accept connections")]
    Accepting,
    /// No answer came in time.
    #[error("the API does not answer")]
    Answering,
    /// The connection broke, or could not be made.
    #[error("the API's own connection failed")]
    Connection(#[from] io::Error),
    /// It answered that it is not ready.
    #[error("{0}")]
    NotReady(String),
}

/// The agent's own client.
///
/// It comes in by a door of its own, so that it is served when the limits of connections are reached,
/// when the socket's backlog is full, and when there are no descriptors left: its connection is made
/// once. All the rest is as for any client: the accept loop must look up, the connection's task must
/// run, and the heart must take a turn.
pub struct SelfProbe {
    knocks: mpsc::Sender<Knock>,
    stream: Option<UnixStream>,
}

/// The accept loop's end of a [`SelfProbe`].
pub struct Door(mpsc::Receiver<Knock>);

/// A look whether the accept loop is there, with a connection to serve if there is none yet.
pub(super) struct Knock {
    pub(super) stream: Option<UnixStream>,
    pub(super) heard: oneshot::Sender<()>,
}

/// A probe, and the door for it.
pub fn self_probe() -> (SelfProbe, Door) {
    let (knocks, door) = mpsc::channel(1);
    (SelfProbe { knocks, stream: None }, Door(door))
}

impl Door {
    /// The next knock; never, when nobody is left to knock.
    pub(super) async fn knock(&mut self) -> Knock {
        match self.0.recv().await {
            Some(knock) => knock,
            None => std::future::pending().await,
        }
    }
}

impl SelfProbe {
    /// Asks `GET /readyz`, and waits for the answer so long at most.
    ///
    /// # Errors
    ///
    /// See [`Unanswered`].
    pub async fn ask(&mut self, patience: Duration) -> Result<(), Unanswered> {
        // Whatever goes wrong, or is given up, leaves no half-read answer for the next time.
        let kept = self.stream.take();
        let mut heard = false;
        let asked = async {
            let (stream, theirs) = match kept {
                Some(stream) => (stream, None),
                None => UnixStream::pair().map(|(ours, theirs)| (ours, Some(theirs)))?,
            };
            let (reply, answer) = oneshot::channel();
            let knock = Knock { stream: theirs, heard: reply };
            self.knocks.send(knock).await.map_err(|_| Unanswered::Accepting)?;
            answer.await.map_err(|_| Unanswered::Accepting)?;
            heard = true;
            exchange(stream).await
        };
        let outcome = timeout(patience, asked).await;
        let given_up = if heard { Unanswered::Answering } else { Unanswered::Accepting };
        self.stream = Some(outcome.unwrap_or(Err(given_up))?);
        Ok(())
    }
}

/// One request and its answer.
async fn exchange(mut stream: UnixStream) -> Result<UnixStream, Unanswered> {
    stream.write_all(REQUEST).await?;
    let mut answer = Vec::with_capacity(512);
    let (status, body) = loop {
        if let Some(complete) = parse_answer(&answer) {
            break complete;
        }
        if answer.len() > ANSWER_MAX {
            return Err(io::Error::from(io::ErrorKind::InvalidData).into());
        }
        if stream.read_buf(&mut answer).await? == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
    };
    if status == 200 {
        return Ok(stream);
    }
    let problem = serde_json::from_slice::<Problem>(body);
    // The heart has taken a turn to say that nothing can be granted; a restart would not change that.
    if problem.as_ref().is_ok_and(|problem| problem.code == Code::UpstreamUnavailable) {
        return Ok(stream);
    }
    let detail = problem.map(|problem| problem.detail);
    Err(Unanswered::NotReady(detail.unwrap_or_else(|_| format!("the API answers {status}"))))
}

/// The status and the body of an answer, when all of it is there.
pub fn parse_answer(answer: &[u8]) -> Option<(u16, &[u8])> {
    const END: &[u8] = b"\r\n\r\n";
    let end = answer.windows(END.len()).position(|window| window == END)?;
    let head = std::str::from_utf8(&answer[..end]).ok()?.to_ascii_lowercase();
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"))?;
    let body = &answer[end + END.len()..];
    Some((status, body.get(..length.trim().parse().ok()?)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_answers_that_are_complete() {
        let answer = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\nx: y\r\n\r\n{}";
        assert_eq!(parse_answer(answer), Some((503, &b"{}"[..])));
        assert_eq!(parse_answer(&answer[..answer.len() - 1]), None);
        assert_eq!(parse_answer(b"HTTP/1.1 200 OK\r\n"), None);
    }
}
