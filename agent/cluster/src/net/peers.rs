//! The questions of openraft to other nodes.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use openraft::OptionalSend;
use openraft::alias::{SnapshotOf, VoteOf};
use openraft::errors::{NetworkError, RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::v2::RaftNetworkV2;
use openraft::network::{RPCOption, RaftNetworkFactory};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};

use super::deliveries::{Deliveries, TooLarge};
use super::link::{Link, LinkError};
use super::transport::Dial;
use super::wire::{Ask, PART, PART_MAX, Tell};
use crate::raft::{Member, Types};

/// The time in which a node takes entries that go together.
const ENTRIES_MAX: Duration = Duration::from_secs(10);
/// The time in which a node puts an image in the place of its machine.
const INSTALL_MAX: Duration = Duration::from_secs(60);

/// Makes the ways to other nodes.
pub(crate) struct Peers {
    pub(crate) dial: Arc<dyn Dial>,
    pub(crate) deliveries: Deliveries,
}

/// The way to one of them, for one of openraft's tasks.
pub(crate) struct Peer {
    id: u64,
    link: Link,
    deliveries: Deliveries,
}

impl RaftNetworkFactory<Types> for Peers {
    type Network = Peer;

    async fn new_client(&mut self, target: u64, node: &Member) -> Peer {
        let link = Link::new(target, &node.address, Arc::clone(&self.dial));
        Peer { id: target, link, deliveries: self.deliveries.clone() }
    }
}

impl Peer {
    /// Sends an image part by part.
    async fn send_image(
        &self,
        vote: VoteOf<Types>,
        snapshot: SnapshotOf<Types, Vec<u8>>,
    ) -> Result<SnapshotResponse<Types>, Unsent> {
        // A connection of its own: beats do not wait behind it.
        let (link, deliveries) = (self.link.another(), self.deliveries.clone());
        let peer = Peer { id: self.id, link, deliveries };
        let mut data = Bytes::from(snapshot.snapshot);
        TooLarge::check(data.len() as u64).map_err(Unsent::Lasting)?;
        while !data.is_empty() {
            let part = data.split_to(data.len().min(PART));
            peer.call(Ask::Part, part, PART_MAX).await?;
        }
        let last = Ask::Snapshot { vote, meta: snapshot.meta };
        match peer.call(last, Bytes::new(), INSTALL_MAX).await? {
            Tell::Snapshot(response) => Ok(response),
            other => Ok(unexpected(other)?),
        }
    }

    async fn call(
        &self,
        ask: Ask,
        body: Bytes,
        patience: Duration,
    ) -> Result<Tell, RPCError<Types>> {
        match tokio::time::timeout(patience, self.link.ask(ask, body)).await {
            Ok(Ok(Tell::Failed(cause))) => Err(network(cause)),
            Ok(Ok(tell)) => Ok(tell),
            // openraft waits a little before it tries again.
            Ok(Err(error @ LinkError::Unreachable { .. })) => {
                Err(RPCError::Unreachable(Unreachable::new(&error)))
            }
            Ok(Err(error @ LinkError::Broke { .. })) => Err(network(error.to_string())),
            Err(_) => {
                let cause = format!("no answer from {} within {patience:?}", self.link.address());
                Err(network(cause))
            }
        }
    }
}

/// The reason for which an image was not taken.
enum Unsent {
    Lasting(TooLarge),
    Tried(RPCError<Types>),
}

impl From<RPCError<Types>> for Unsent {
    fn from(error: RPCError<Types>) -> Unsent {
        Unsent::Tried(error)
    }
}

fn network(cause: impl ToString) -> RPCError<Types> {
    RPCError::Network(NetworkError::from_string(cause))
}

fn unexpected<T>(_: Tell) -> Result<T, RPCError<Types>> {
    Err(network("the answer is to another question"))
}

fn streaming(error: RPCError<Types>) -> StreamingError<Types> {
    match error {
        RPCError::Unreachable(error) => StreamingError::Unreachable(error),
        RPCError::Timeout(error) => StreamingError::Timeout(error),
        RPCError::Network(error) => StreamingError::Network(error),
        RPCError::RemoteError(error) => {
            StreamingError::Network(NetworkError::from_string(error.to_string()))
        }
    }
}

impl RaftNetworkV2<Types> for Peer {
    type SnapshotData = Vec<u8>;

    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<Types>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<Types>, RPCError<Types>> {
        // A heartbeat goes over another connection, and is late when the next one is due. Entries take the time that the
        // network and the other disk take: to send them again meanwhile would not get them there.
        let patience = if request.entries.is_empty() { option.soft_ttl() } else { ENTRIES_MAX };
        match self.call(Ask::Append(request), Bytes::new(), patience).await? {
            Tell::Append(response) => Ok(response),
            other => unexpected(other),
        }
    }

    async fn vote(
        &mut self,
        request: VoteRequest<Types>,
        option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        match self.call(Ask::Vote(request), Bytes::new(), option.soft_ttl()).await? {
            Tell::Vote(response) => Ok(response),
            other => unexpected(other),
        }
    }

    async fn pre_vote(
        &mut self,
        request: VoteRequest<Types>,
        option: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        match self.call(Ask::PreVote(request), Bytes::new(), option.soft_ttl()).await? {
            Tell::Vote(response) => Ok(response),
            other => unexpected(other),
        }
    }

    async fn full_snapshot(
        &mut self,
        vote: VoteOf<Types>,
        snapshot: SnapshotOf<Types, Vec<u8>>,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _: RPCOption,
    ) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
        let deliver = async {
            let (error, is_lasting) = match self.send_image(vote, snapshot).await {
                Ok(response) => {
                    self.deliveries.succeed(self.id, self.link.address());
                    return Ok(response);
                }
                Err(Unsent::Lasting(error)) => (network(error), true),
                Err(Unsent::Tried(error)) => (error, false),
            };
            let cause = error.to_string();
            let pause = self.deliveries.fail(self.id, self.link.address(), cause, is_lasting);
            // openraft would read the image and try again at once. Sleep of the machine does no harm.
            let _ = tokio::time::timeout(pause, std::future::pending::<()>()).await;
            Err(streaming(error))
        };
        tokio::select! {
            biased;
            closed = cancel => Err(StreamingError::Closed(closed)),
            sent = deliver => sent,
        }
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<Types>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<Types>, RPCError<Types>> {
        match self.call(Ask::TransferLeader(request), Bytes::new(), option.soft_ttl()).await? {
            Tell::TransferLeader(response) => Ok(response),
            other => unexpected(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::BoxFuture;
    use openraft::alias::SnapshotMetaOf;

    use super::super::transport::Stream;
    use super::super::wire::IMAGE_MAX;
    use super::*;

    struct Nobody;

    impl Dial for Nobody {
        fn connect<'a>(&'a self, _: &'a str) -> BoxFuture<'a, std::io::Result<Stream>> {
            Box::pin(async { Err(std::io::ErrorKind::ConnectionRefused.into()) })
        }
    }

    #[tokio::test]
    async fn an_image_that_nodes_do_not_take_is_told_of_and_not_sent_at_full_speed() {
        let deliveries = Deliveries::default();
        let mut peers = Peers { dial: Arc::new(Nobody), deliveries: deliveries.clone() };
        let member = Member { address: "other:1".to_owned() };
        let mut peer = peers.new_client(7, &member).await;
        let image = |bytes| SnapshotOf::<Types, Vec<u8>> {
            meta: SnapshotMetaOf::<Types>::default(),
            snapshot: vec![0; bytes],
        };
        let sent = peer.send_image(VoteOf::<Types>::new(1, 1), image(IMAGE_MAX + 1)).await;
        assert!(matches!(sent, Err(Unsent::Lasting(_))));
        let option = RPCOption::new(Duration::from_secs(1));
        for (bytes, words) in
            [(IMAGE_MAX + 1, "943718401 bytes, and nodes take"), (1, "cannot be reached")]
        {
            let vote = VoteOf::<Types>::new(1, 1);
            let never = std::future::pending();
            let sent = peer.full_snapshot(vote, image(bytes), never, option.clone()).await;
            assert!(sent.is_err());
            let cause = deliveries.cause(7).unwrap();
            assert!(cause.contains(words), "{cause}");
            assert_eq!(deliveries.lasting_cause(7).is_some(), bytes > 1);
        }
        let pauses =
            (0..9).map(|_| deliveries.fail(7, "other:1", "it does not take it".to_owned(), false));
        let pauses: Vec<_> = pauses.collect();
        assert!(pauses.is_sorted() && pauses[8] == Duration::from_secs(30), "{pauses:?}");
        deliveries.succeed(7, "other:1");
        assert_eq!(deliveries.cause(7), None);
    }
}
