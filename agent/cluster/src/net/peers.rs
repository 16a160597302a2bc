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

use super::link::{Link, LinkError};
use super::transport::Dial;
use super::wire::{Ask, IMAGE_MAX, PART, PART_MAX, Tell};
use crate::raft::{Member, Types};

/// The time in which a node takes entries that go together.
const ENTRIES_MAX: Duration = Duration::from_secs(10);
/// The time in which a node puts an image in the place of its machine.
const INSTALL_MAX: Duration = Duration::from_secs(60);

/// Makes the ways to other nodes.
pub(crate) struct Peers(pub(crate) Arc<dyn Dial>);

/// The way to one of them, for one of openraft's tasks.
pub(crate) struct Peer(Link);

impl RaftNetworkFactory<Types> for Peers {
    type Network = Peer;

    async fn new_client(&mut self, target: u64, node: &Member) -> Peer {
        Peer(Link::new(target, &node.address, Arc::clone(&self.0)))
    }
}

impl Peer {
    async fn call(
        &self,
        ask: Ask,
        body: Bytes,
        patience: Duration,
    ) -> Result<Tell, RPCError<Types>> {
        match tokio::time::timeout(patience, self.0.ask(ask, body)).await {
            Ok(Ok(Tell::Failed(cause))) => Err(network(cause)),
            Ok(Ok(tell)) => Ok(tell),
            // openraft waits a little before it tries again.
            Ok(Err(error @ LinkError::Unreachable { .. })) => {
                Err(RPCError::Unreachable(Unreachable::new(&error)))
            }
            Ok(Err(error @ LinkError::Broke { .. })) => Err(network(error.to_string())),
            Err(_) => {
                let cause = format!("no answer from {} within {patience:?}", self.0.address());
                Err(network(cause))
            }
        }
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
        let send = async {
            // A connection of its own: beats do not wait behind it.
            let peer = Peer(self.0.another());
            let mut data = Bytes::from(snapshot.snapshot);
            if data.len() > IMAGE_MAX {
                let cause = format!("an image of {} bytes; nodes take {IMAGE_MAX}", data.len());
                return Err(network(cause));
            }
            while !data.is_empty() {
                let part = data.split_to(data.len().min(PART));
                peer.call(Ask::Part, part, PART_MAX).await?;
            }
            let last = Ask::Snapshot { vote, meta: snapshot.meta };
            match peer.call(last, Bytes::new(), INSTALL_MAX).await? {
                Tell::Snapshot(response) => Ok(response),
                other => unexpected(other),
            }
        };
        tokio::select! {
            biased;
            closed = cancel => Err(StreamingError::Closed(closed)),
            sent = send => sent.map_err(streaming),
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
