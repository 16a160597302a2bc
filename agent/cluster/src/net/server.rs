//! Answers other nodes.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use openraft::alias::SnapshotOf;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::codec::Framed;
use tracing::{debug, warn};

use super::wire::{Ask, Frame, Hello, Numbered, Tell, codec};
use crate::node::Node;
use crate::raft::Types;

/// Connections of other nodes: three of each are usual.
const CONNECTIONS_MAX: usize = 256;
/// Questions of a connection that are under way.
const UNDER_WAY_MAX: usize = 1024;
/// The pause after an error.
const PAUSE: Duration = Duration::from_millis(100);
/// The time for the first frame.
const HELLO_MAX: Duration = Duration::from_secs(5);

/// Answers whoever connects, until it is dropped.
pub(crate) async fn serve(listener: TcpListener, node: Node) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, from)) => {
                let node = node.clone();
                tokio::spawn(async move {
                    if let Err(error) = converse(stream, &node).await {
                        debug!(%from, %error, "a connection of another node ended");
                    }
                    drop(permit);
                });
            }
            Err(error) => {
                warn!(%error, "a connection of another node cannot be taken");
                // Too many open files, as a rule: some are closed meanwhile. Sleep of the machine does no harm.
                let _ = tokio::time::timeout(PAUSE, std::future::pending::<()>()).await;
            }
        }
    }
}

async fn converse(stream: TcpStream, node: &Node) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut framed = Framed::new(stream, codec());
    let first = tokio::time::timeout(HELLO_MAX, framed.next()).await?;
    let Some(first) = first else { return Ok(()) };
    let hello: Hello = Frame::decode(first?)?.head()?;
    if hello != Hello::to(node.id()) {
        return Err(io::Error::other(format!("{hello:?} is not for node {}", node.id())));
    }
    let (sink, mut asked) = framed.split();
    let (answers, told) = mpsc::channel(UNDER_WAY_MAX);
    let writing = tokio::spawn(write(sink, told));
    let room = Arc::new(Semaphore::new(UNDER_WAY_MAX));
    // The parts of an image that have come.
    let mut image = Vec::new();
    while let Some(bytes) = asked.next().await {
        let frame = Frame::decode(bytes?)?;
        let Numbered { number, what } = frame.head::<Numbered<Ask>>()?;
        if matches!(what, Ask::Part) {
            image.extend_from_slice(&frame.body);
            let taken = Numbered { number, what: Tell::Taken };
            if answers.send(taken).await.is_err() {
                break;
            }
            continue;
        }
        let image = if matches!(what, Ask::Snapshot { .. }) {
            std::mem::take(&mut image)
        } else {
            Vec::new()
        };
        let Ok(permit) = Arc::clone(&room).acquire_owned().await else { break };
        let (node, answers) = (node.clone(), answers.clone());
        tokio::spawn(async move {
            let what = answer(&node, what, image).await;
            // The connection may have ended.
            let _ = answers.send(Numbered { number, what }).await;
            drop(permit);
        });
    }
    drop(answers);
    writing.await?
}

async fn write<S>(mut sink: S, mut told: mpsc::Receiver<Numbered<Tell>>) -> io::Result<()>
where
    S: futures_util::Sink<Bytes, Error = io::Error> + Unpin,
{
    while let Some(tell) = told.recv().await {
        sink.send(Frame::of(&tell, Bytes::new())?.encode()?).await?;
    }
    Ok(())
}

async fn answer(node: &Node, ask: Ask, image: Vec<u8>) -> Tell {
    let raft = node.raft();
    let failed = |error: &dyn std::fmt::Display| Tell::Failed(error.to_string());
    match ask {
        Ask::Append(request) => {
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
            let snapshot = SnapshotOf::<Types, Vec<u8>> { meta, snapshot: image };
            let installed = raft.install_full_snapshot(vote, snapshot).await;
            installed.map_or_else(|error| failed(&error), Tell::Snapshot)
        }
        Ask::TransferLeader(request) => {
            let handled = raft.handle_transfer_leader(request).await;
            handled.map_or_else(|error| failed(&error), Tell::TransferLeader)
        }
        Ask::Attest { index } => Tell::Attested(node.attest(index)),
        Ask::Request(request) => Tell::Request(node.lead(request).await),
    }
}
