//! Answers other nodes.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::SinkExt;
use openraft::alias::SnapshotOf;
use tokio::io::{AsyncRead, ReadHalf, WriteHalf, split};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::codec::{FramedWrite, LengthDelimitedCodec};
use tracing::debug;

use super::frames::{Allowance, Budget, Frames, Share, UNDER_WAY_MAX, never};
use super::places::{Displaced, Place, Places};
use super::transport::{Accept, Opening, Stream, Unopened};
use super::wire::{
    Ask, FRAME_MAX, Frame, HELLO, HELLO_BYTES_MAX, Hello, IMAGE_MAX, Numbered, PART_MAX, Tell,
    WRITE_MAX, codec,
};
use crate::control::Control;
use crate::node::Node;
use crate::raft::Types;

/// The pause after an error.
const PAUSE: Duration = Duration::from_millis(100);
/// The time from a connection to its first frame.
const HELLO_TIME_MAX: Duration = Duration::from_secs(5);

/// A connection of another node: what is read of it, and what is written.
type Connection = (Frames<ReadHalf<Stream>>, Writer);
type Writer = FramedWrite<WriteHalf<Stream>, LengthDelimitedCodec>;

/// The things that all connections share.
struct Server {
    node: Node,
    /// One image is taken at a time: each may need all the memory that is meant for them.
    image: Arc<Semaphore>,
    budget: Budget,
}

/// Answers whoever connects, until it is dropped; then the connections end too, and the others make new ones.
pub(crate) async fn serve(listener: Box<dyn Accept>, node: Node) {
    let (image, budget) = (Arc::new(Semaphore::new(1)), Budget::default());
    let server = Arc::new(Server { node, image, budget });
    let places = Arc::<Places>::default();
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((opening, from)) => {
                let (place, displaced) = places.enter(from.ip().to_canonical());
                let (server, places) = (Arc::clone(&server), Arc::clone(&places));
                connections.spawn(async move {
                    let conversed = tokio::select! {
                        biased;
                        done = server.converse(opening, place) => done,
                        gone = displacement(displaced) => Err(gone),
                    };
                    match conversed {
                        Ok(()) => {}
                        Err(error) if is_end(&error) => {
                            debug!(%from, %error, "a connection of another node ended");
                        }
                        Err(error) => places.tell(from, &error),
                    }
                });
            }
            Err(error) => {
                places.tell(SocketAddr::from(([0; 4], 0)), &error);
                // Too many open files, as a rule: some are closed meanwhile. Sleep of the machine does no harm.
                let _ = timeout(PAUSE, std::future::pending::<()>()).await;
            }
        }
    }
}

/// Comes when a stranger has lost its place, which one that has said hello does not.
async fn displacement(displaced: Displaced) -> io::Error {
    if displaced.await.is_err() {
        return never().await;
    }
    io::Error::other("there are too many that have not said who they are")
}

/// True if the other one has gone, as nodes do.
fn is_end(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
}

fn late(what: &'static str) -> impl FnOnce(tokio::time::error::Elapsed) -> io::Error {
    move |_| io::Error::new(io::ErrorKind::TimedOut, what)
}

impl Server {
    async fn converse(&self, opening: Opening, mut place: Place) -> io::Result<()> {
        let opened = timeout(HELLO_TIME_MAX, self.open(opening)).await;
        let Some((frames, mut writer)) = opened.map_err(late("it did not say hello in time"))??
        else {
            return Ok(());
        };
        if !place.greet() {
            return refuse(&mut writer, "there are too many connections of nodes").await;
        }
        let (answers, told) = mpsc::channel(UNDER_WAY_MAX);
        // It ends when all questions are answered, and with an error as soon as an answer cannot be written.
        let (read, ()) =
            tokio::try_join!(async { Ok(self.read(frames, answers).await) }, write(writer, told),)?;
        read
    }

    /// Takes the hello; `None` if the other one left without a word.
    async fn open(&self, opening: Opening) -> io::Result<Option<Connection>> {
        let parts = |stream| {
            let (read, write) = split(stream);
            (Frames::of(read), FramedWrite::new(write, codec(FRAME_MAX)))
        };
        let (mut frames, mut writer) = match opening.await {
            Ok(stream) => parts(stream),
            Err(Unopened::Failed(error)) => return Err(error),
            // Nothing is read of it: a word that is answered tells a stranger of the cluster.
            Err(Unopened::Refused(stream, cause)) => {
                return refuse(&mut parts(stream).1, &cause).await.map(|()| None);
            }
        };
        let Some(first) = frames.first(HELLO_BYTES_MAX).await.transpose() else { return Ok(None) };
        let hello = first.and_then(Frame::decode).and_then(|frame| frame.head::<Hello>());
        let cause = match hello {
            Ok(hello) if hello.is_for(self.node.id()) => return Ok(Some((frames, writer))),
            Ok(hello) => format!("{hello:?} is not for this node, {}", self.node.id()),
            Err(error) if is_end(&error) => return Ok(None),
            Err(error) => format!("it does not speak as a node does: {error}"),
        };
        refuse(&mut writer, &cause).await.map(|()| None)
    }

    /// Reads questions, and has them answered.
    async fn read<R: AsyncRead + Unpin>(
        &self,
        mut frames: Frames<R>,
        answers: mpsc::Sender<(Numbered<Tell>, Share)>,
    ) -> io::Result<()> {
        let own = Allowance::default();
        // The parts of an image that have come, and the right to take one.
        let mut image = Vec::new();
        let mut taking: Option<OwnedSemaphorePermit> = None;
        loop {
            let asked = frames.next(&self.budget, &own);
            let next = match taking {
                Some(_) => timeout(2 * PART_MAX, asked).await.map_err(late("its image stopped"))?,
                None => asked.await,
            };
            let Some((bytes, share)) = next? else { return Ok(()) };
            let frame = Frame::decode(bytes)?;
            let Numbered { number, what } = frame.head::<Numbered<Ask>>()?;
            if matches!(what, Ask::Part) {
                if taking.is_none() {
                    taking = Arc::clone(&self.image).try_acquire_owned().ok();
                }
                let cause = match &taking {
                    None => Some("this node takes an image already".to_owned()),
                    Some(_) => too_long(image.len(), frame.body.len()),
                };
                image.extend_from_slice(if cause.is_none() { &frame.body } else { &[] });
                let told = cause.clone().map_or(Tell::Taken, Tell::Failed);
                if answers.send((Numbered { number, what: told }, share)).await.is_err() {
                    return Ok(());
                }
                match cause {
                    Some(cause) => return Err(io::Error::other(cause)),
                    None => continue,
                }
            }
            let body = match what {
                Ask::Snapshot { .. } | Ask::Control(Control::Restore { .. }) => {
                    (std::mem::take(&mut image), taking.take())
                }
                _ => (frame.body.to_vec(), None),
            };
            let (node, answers) = (self.node.clone(), answers.clone());
            tokio::spawn(async move {
                let (body, _taking) = body;
                let what = answer(&node, what, body).await;
                // The connection may have ended.
                let _ = answers.send((Numbered { number, what }, share)).await;
            });
        }
    }
}

/// The reason for which a part is not put to what has come of an image.
fn too_long(image: usize, part: usize) -> Option<String> {
    let bytes = image + part;
    (bytes > IMAGE_MAX).then(|| {
        format!("an image has {bytes} bytes and more, and a node takes {IMAGE_MAX} at most")
    })
}

/// Says why this connection is closed, to whoever may wait for an answer.
async fn refuse(writer: &mut Writer, cause: &str) -> io::Result<()> {
    let refusal = Numbered { number: HELLO, what: Tell::Failed(cause.to_owned()) };
    let frame = Frame::of(&refusal, Bytes::new())?.encode()?;
    let _ = timeout(WRITE_MAX, writer.send(frame)).await;
    Err(io::Error::other(cause.to_owned()))
}

/// Writes answers. One that nobody takes ends the connection.
async fn write(
    mut writer: Writer,
    mut told: mpsc::Receiver<(Numbered<Tell>, Share)>,
) -> io::Result<()> {
    while let Some((tell, _share)) = told.recv().await {
        let frame = Frame::of(&tell, Bytes::new())?.encode()?;
        timeout(WRITE_MAX, writer.send(frame))
            .await
            .map_err(late("it does not read its answers"))??;
    }
    Ok(())
}

async fn answer(node: &Node, ask: Ask, body: Vec<u8>) -> Tell {
    let raft = node.raft();
    let failed = |error: &dyn std::fmt::Display| Tell::Failed(error.to_string());
    match ask {
        Ask::Append(request) => {
            node.hear_leader(&request.entries);
            raft.append_entries(request).await.map_or_else(|error| failed(&error), Tell::Append)
        }
        Ask::Vote(request) => {
            raft.vote(request).await.map_or_else(|error| failed(&error), Tell::Vote)
        }
        Ask::PreVote(request) => {
            raft.pre_vote(request).await.map_or_else(|error| failed(&error), Tell::Vote)
        }
        Ask::Part => Tell::Taken,
        Ask::Snapshot { vote, meta } => {
            let snapshot = SnapshotOf::<Types, Vec<u8>> { meta, snapshot: body };
            let installed = raft.install_full_snapshot(vote, snapshot).await;
            installed.map_or_else(|error| failed(&error), Tell::Snapshot)
        }
        Ask::TransferLeader(request) => {
            let handled = raft.handle_transfer_leader(request).await;
            handled.map_or_else(|error| failed(&error), Tell::TransferLeader)
        }
        Ask::Attest { index } => Tell::Attested(node.attest(index)),
        Ask::News { principal } => {
            node.tell(principal, body);
            Tell::Taken
        }
        Ask::Control(control) => Tell::Control(node.control(control, body).await),
        Ask::Lead(question) => Tell::Lead(node.lead(question).await),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_bounded_and_one_that_is_too_long_is_refused_with_words() {
        assert_eq!(too_long(IMAGE_MAX - 1, 1), None);
        let refused = too_long(IMAGE_MAX, 1).unwrap();
        assert!(refused.contains("943718401") && refused.contains("943718400"), "{refused}");
    }
}
