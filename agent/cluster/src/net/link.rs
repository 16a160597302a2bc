//! A connection to another node, made anew when it breaks.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::{SinkExt, StreamExt};
use tokio::sync::{mpsc, oneshot};
use tokio_util::codec::Framed;

use super::transport::{Dial, Stream};
use super::wire::{Ask, FRAME_MAX, Frame, HELLO, Hello, Numbered, Tell, WRITE_MAX, codec};

/// Questions that wait to be written.
const WAITING_MAX: usize = 1024;
/// The time for a connection.
const CONNECT_MAX: Duration = Duration::from_secs(1);

/// The way to a node. Cheap to clone: all are the same connection.
#[derive(Clone)]
pub(crate) struct Link {
    /// `None` for whichever node is there.
    to: Option<u64>,
    address: Arc<str>,
    dial: Arc<dyn Dial>,
    open: Arc<Mutex<Option<Open>>>,
    /// One caller connects, and the others wait for it.
    connecting: Arc<tokio::sync::Mutex<()>>,
}

/// A connection that is there.
#[derive(Clone)]
struct Open {
    questions: mpsc::Sender<Question>,
    /// The reason for its end.
    ended: Arc<OnceLock<String>>,
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
    #[error("the node at {address} cannot be reached: {cause}")]
    Unreachable { address: Arc<str>, cause: io::Error },
    /// It may have been heard.
    #[error("the connection to the node at {address} broke: {cause}")]
    Broke { address: Arc<str>, cause: String },
}

impl Link {
    pub(crate) fn new(to: u64, address: &str, dial: Arc<dyn Dial>) -> Link {
        Link {
            to: Some(to),
            address: address.into(),
            dial,
            open: Arc::default(),
            connecting: Arc::default(),
        }
    }

    /// The way to whichever node listens there.
    pub(crate) fn to_any(address: &str, dial: Arc<dyn Dial>) -> Link {
        Link {
            to: None,
            address: address.into(),
            dial,
            open: Arc::default(),
            connecting: Arc::default(),
        }
    }

    /// The same way, over a connection of its own.
    pub(crate) fn another(&self) -> Link {
        Link { open: Arc::default(), connecting: Arc::default(), ..self.clone() }
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Asks, and waits for the answer. The caller has a deadline.
    pub(crate) async fn ask(&self, ask: Ask, body: Bytes) -> Result<Tell, LinkError> {
        let Open { questions, ended } = match self.opened() {
            Some(open) => open,
            None => self.connect().await.map_err(|cause| {
                let address = Arc::clone(&self.address);
                LinkError::Unreachable { address, cause }
            })?,
        };
        let broke = || {
            let cause = ended.get().map_or("it was closed", String::as_str).to_owned();
            LinkError::Broke { address: Arc::clone(&self.address), cause }
        };
        let (sender, answer) = oneshot::channel();
        let question = Question { ask, body, answer: sender };
        questions.send(question).await.map_err(|_| broke())?;
        answer.await.map_err(|_| broke())
    }

    /// The connection, if there is one.
    fn opened(&self) -> Option<Open> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner).clone();
        open.filter(|open| !open.questions.is_closed())
    }

    async fn connect(&self) -> io::Result<Open> {
        let _only = self.connecting.lock().await;
        if let Some(open) = self.opened() {
            return Ok(open);
        }
        let connecting = async {
            let mut framed = Framed::new(self.dial.connect(&self.address).await?, codec(FRAME_MAX));
            framed.send(Frame::of(&Hello::to(self.to), Bytes::new())?.encode()?).await?;
            Ok::<_, io::Error>(framed)
        };
        let framed = tokio::time::timeout(CONNECT_MAX, connecting)
            .await
            .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "it takes too long"))??;
        let (sender, questions) = mpsc::channel(WAITING_MAX);
        let open = Open { questions: sender, ended: Arc::default() };
        tokio::spawn(run(framed, questions, Arc::clone(&open.ended)));
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) = Some(open.clone());
        Ok(open)
    }
}

type Connection = Framed<Stream, tokio_util::codec::LengthDelimitedCodec>;

/// Runs a connection until it breaks, or nobody has it any more. Whoever waits then hears why.
async fn run(
    mut framed: Connection,
    mut questions: mpsc::Receiver<Question>,
    ended: Arc<OnceLock<String>>,
) {
    let mut under_way = BTreeMap::new();
    if let Err(error) = exchange(&mut framed, &mut questions, &mut under_way).await {
        // Only this one sets it.
        let _ = ended.set(error.to_string());
    }
}

async fn exchange(
    framed: &mut Connection,
    questions: &mut mpsc::Receiver<Question>,
    under_way: &mut BTreeMap<u64, oneshot::Sender<Tell>>,
) -> io::Result<()> {
    let mut number = HELLO;
    loop {
        tokio::select! {
            biased;
            frame = framed.next() => {
                let Numbered { number, what } = told(frame)?;
                if let Some(answer) = under_way.remove(&number) {
                    // It may have been given up.
                    let _ = answer.send(what);
                }
            }
            question = questions.recv() => {
                let Some(Question { ask, body, answer }) = question else { return Ok(()) };
                number += 1;
                // Some are given up.
                under_way.retain(|_, answer| !answer.is_closed());
                under_way.insert(number, answer);
                let frame = Frame::of(&Numbered { number, what: ask }, body)?;
                let sent = tokio::time::timeout(WRITE_MAX, framed.send(frame.encode()?)).await;
                if let Err(error) = sent? {
                    // The other may have said why it closed.
                    return Err(told(framed.next().await).err().unwrap_or(error));
                }
            }
        }
    }
}

/// An answer; or the reason for none to come.
fn told(frame: Option<io::Result<BytesMut>>) -> io::Result<Numbered<Tell>> {
    let closed = || io::Error::new(io::ErrorKind::UnexpectedEof, "it was closed");
    let frame = frame.ok_or_else(closed)?.and_then(Frame::decode).map_err(foreign)?;
    match frame.head()? {
        Numbered { number: HELLO, what: Tell::Failed(cause) } => Err(io::Error::other(cause)),
        told => Ok(told),
    }
}

/// Names the likely cause of bytes that are no frame: the gateway's own port differs in one digit, and speaks HTTP.
fn foreign(error: io::Error) -> io::Error {
    if error.kind() != io::ErrorKind::InvalidData {
        return error;
    }
    let cause = format!(
        "it does not answer as a node does ({error}): give the node's port (cluster.listen, 8741 by default), not the \
         gateway's own (listen)"
    );
    io::Error::new(io::ErrorKind::InvalidData, cause)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::BoxFuture;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    /// Counts connections, which nobody answers.
    #[derive(Default)]
    struct Counted(AtomicUsize);

    impl Dial for Counted {
        fn connect<'a>(&'a self, _: &'a str) -> BoxFuture<'a, io::Result<Stream>> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Box::pin(async {
                tokio::task::yield_now().await;
                let (near, mut far) = duplex(1 << 16);
                tokio::spawn(async move {
                    let mut heard = Vec::new();
                    far.read_to_end(&mut heard).await
                });
                Ok(Box::new(near) as Stream)
            })
        }
    }

    /// Answers as a gateway's own port does.
    struct Http;

    impl Dial for Http {
        fn connect<'a>(&'a self, _: &'a str) -> BoxFuture<'a, io::Result<Stream>> {
            Box::pin(async {
                let (near, mut far) = duplex(1 << 16);
                tokio::spawn(async move {
                    far.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await?;
                    far.read_to_end(&mut Vec::new()).await
                });
                Ok(Box::new(near) as Stream)
            })
        }
    }

    #[tokio::test]
    async fn a_port_that_speaks_http_is_told_from_a_node() {
        let link = Link::to_any("127.0.0.1:8751", Arc::new(Http));
        let error = link.ask(Ask::Attest { index: 0 }, Bytes::new()).await.err().unwrap();
        let words = error.to_string();
        assert!(words.contains("does not answer as a node") && words.contains("8741"), "{words}");
    }

    #[tokio::test]
    async fn callers_at_once_make_one_connection() {
        let dial = Arc::new(Counted::default());
        let link = Link::new(7, "other:1", Arc::<Counted>::clone(&dial));
        let callers = (0..10_000).map(|_| link.connect());
        let opened = futures_util::future::join_all(callers).await;
        assert!(opened.iter().all(Result::is_ok));
        assert_eq!(dial.0.load(Ordering::Relaxed), 1);
    }
}
