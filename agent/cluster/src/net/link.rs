//! A connection to another node, made anew when it breaks.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio_util::codec::Framed;

use super::wire::{Ask, Frame, Hello, Numbered, Tell, codec};

/// Questions that wait to be written.
const WAITING_MAX: usize = 1024;
/// The time for a connection.
const CONNECT_MAX: Duration = Duration::from_secs(1);

/// The way to a node. Cheap to clone: all are the same connection.
#[derive(Clone)]
pub(crate) struct Link {
    to: u64,
    address: Arc<str>,
    open: Arc<Mutex<Option<mpsc::Sender<Question>>>>,
}

struct Question {
    ask: Ask,
    body: Bytes,
    answer: oneshot::Sender<Tell>,
}

/// The reason for no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    /// Nothing was sent.
    #[error("node {node} at {address} cannot be reached: {cause}")]
    Unreachable { node: u64, address: Arc<str>, cause: io::Error },
    /// It may have been heard.
    #[error("the connection to node {node} at {address} broke")]
    Broke { node: u64, address: Arc<str> },
}

impl Link {
    pub(crate) fn new(to: u64, address: &str) -> Link {
        Link { to, address: address.into(), open: Arc::default() }
    }

    pub(crate) fn node(&self) -> u64 {
        self.to
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Asks, and waits for the answer. The caller has a deadline.
    pub(crate) async fn ask(&self, ask: Ask, body: Bytes) -> Result<Tell, LinkError> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let questions = match open.filter(|questions| !questions.is_closed()) {
            Some(questions) => questions,
            None => self.connect().await.map_err(|cause| {
                let address = Arc::clone(&self.address);
                LinkError::Unreachable { node: self.to, address, cause }
            })?,
        };
        let broke = || LinkError::Broke { node: self.to, address: Arc::clone(&self.address) };
        let (sender, answer) = oneshot::channel();
        let question = Question { ask, body, answer: sender };
        questions.send(question).await.map_err(|_| broke())?;
        answer.await.map_err(|_| broke())
    }

    async fn connect(&self) -> io::Result<mpsc::Sender<Question>> {
        let connecting = TcpStream::connect(&*self.address);
        let stream = tokio::time::timeout(CONNECT_MAX, connecting)
            .await
            .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "it takes too long"))??;
        stream.set_nodelay(true)?;
        let mut framed = Framed::new(stream, codec());
        framed.send(Frame::of(&Hello::to(self.to), Bytes::new())?.encode()?).await?;
        let (sender, questions) = mpsc::channel(WAITING_MAX);
        tokio::spawn(run(framed, questions));
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) = Some(sender.clone());
        Ok(sender)
    }
}

type Connection = Framed<TcpStream, tokio_util::codec::LengthDelimitedCodec>;

/// Runs a connection until it breaks, or nobody has it any more. Whoever waits then hears so.
async fn run(mut framed: Connection, mut questions: mpsc::Receiver<Question>) {
    let mut under_way: HashMap<u64, oneshot::Sender<Tell>> = HashMap::new();
    let mut number = 0;
    loop {
        tokio::select! {
            question = questions.recv() => {
                let Some(Question { ask, body, answer }) = question else { return };
                number += 1;
                // Some are given up.
                under_way.retain(|_, answer| !answer.is_closed());
                under_way.insert(number, answer);
                let frame = Frame::of(&Numbered { number, what: ask }, body);
                let Ok(bytes) = frame.and_then(Frame::encode) else { return };
                if framed.send(bytes).await.is_err() {
                    return;
                }
            }
            frame = framed.next() => {
                let Some(Ok(bytes)) = frame else { return };
                let told = Frame::decode(bytes).and_then(|frame| frame.head::<Numbered<Tell>>());
                let Ok(Numbered { number, what }) = told else { return };
                if let Some(answer) = under_way.remove(&number) {
                    // It may have been given up.
                    let _ = answer.send(what);
                }
            }
        }
    }
}
