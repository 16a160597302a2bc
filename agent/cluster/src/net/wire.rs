//! Frames, and the questions and answers in them.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use openraft::alias::{SnapshotMetaOf, VoteOf};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tenure_core::model::{Answer, Failure, Request};
use tokio_util::codec::LengthDelimitedCodec;

use crate::control::{Control, Report};
use crate::keys;
use crate::node::Attested;
use crate::raft::Types;

/// The version of these frames. A node talks only to those that have the same one.
const PROTOCOL: u32 = 1;
/// Most bytes of a frame: 150 entries with 512 beats each are 15 MB as a rule, and 45 MB with the longest names.
pub(crate) const FRAME_MAX: usize = 64 << 20;
/// Most bytes of a hello. Whoever has not said one is not trusted with more.
pub(super) const HELLO_BYTES_MAX: usize = 1024;
/// Most bytes of an image: about a million holds and waits. SQLite keeps no more than 10⁹ in one place.
pub(crate) const IMAGE_MAX: usize = 900 << 20;
/// The time for a frame to be taken by the other side.
pub(super) const WRITE_MAX: Duration = Duration::from_secs(10);
/// The time for a part of an image.
pub(super) const PART_MAX: Duration = Duration::from_secs(5);
/// Bytes of an image that go together.
pub(crate) const PART: usize = 1 << 20;

/// The first frame of a connection.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Hello {
    protocol: u32,
    /// The node that is meant: another one may have its address by now. `None` for whichever is there.
    to: Option<u64>,
}

impl Hello {
    pub(super) fn to(node: Option<u64>) -> Hello {
        Hello { protocol: PROTOCOL, to: node }
    }

    /// True if this node is meant, in words that it understands.
    pub(super) fn is_for(&self, node: u64) -> bool {
        self.protocol == PROTOCOL && self.to.is_none_or(|to| to == node)
    }
}

/// The number of the hello. A failure under it refuses the connection.
pub(super) const HELLO: u64 = 0;

/// A question, under a number of its connection.
#[derive(Serialize, Deserialize)]
pub(super) struct Numbered<T> {
    pub(super) number: u64,
    pub(super) what: T,
}

#[derive(Serialize, Deserialize)]
pub(crate) enum Ask {
    Append(AppendEntriesRequest<Types>),
    Vote(VoteRequest<Types>),
    PreVote(VoteRequest<Types>),
    /// A part of an image, which is beside it. The parts of a connection are put together.
    Part,
    /// That was all of it.
    Snapshot {
        vote: VoteOf<Types>,
        meta: SnapshotMetaOf<Types>,
    },
    TransferLeader(TransferLeaderRequest<Types>),
    /// For the leader, from a node that is not.
    Lead(Question),
    /// For agents of a principal whose stream may be open at the gateway that is asked. The words are beside it.
    News {
        principal: Arc<str>,
    },
    /// Of an administrator, or a gateway.
    Control(Control),
    /// What it has become, as of the entry with this index.
    Attest {
        index: u64,
    },
}

#[derive(Serialize, Deserialize)]
pub(crate) enum Tell {
    Append(AppendEntriesResponse<Types>),
    Vote(VoteResponse<Types>),
    Taken,
    Snapshot(SnapshotResponse<Types>),
    TransferLeader(TransferLeaderResponse<Types>),
    /// The reply, and the index of the entry that it comes after.
    Lead(Result<(Reply, u64), Refusal>),
    Attested(Attested),
    Control(Result<Report, String>),
    /// The node has stopped, or does not understand.
    Failed(String),
}

/// A question to the leader.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Question {
    Request(Request),
    ChangeKeys(keys::Change),
    /// Nothing but the index of the latest entry: a node that has applied it knows all that was answered so far.
    Latest,
}

/// The leader's reply to it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    Answer(Answer),
    Keys(keys::Changed),
    Latest,
}

/// The reason for no reply.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Refusal {
    /// This node is not the leader, and nothing happened.
    NotLeader,
    Failed(Failure),
}

/// A frame: the length of its head in 4 bytes, the head in JSON, and bytes that go with it.
pub(super) struct Frame {
    head: Bytes,
    pub(super) body: Bytes,
}

impl Frame {
    pub(super) fn of(head: &impl Serialize, body: Bytes) -> io::Result<Frame> {
        Ok(Frame { head: serde_json::to_vec(head)?.into(), body })
    }

    pub(super) fn head<T: DeserializeOwned>(&self) -> io::Result<T> {
        serde_json::from_slice(&self.head).map_err(|error| {
            let cause = format!("its frame is not understood: {error}");
            io::Error::new(io::ErrorKind::InvalidData, cause)
        })
    }

    pub(super) fn encode(self) -> io::Result<Bytes> {
        let length = u32::try_from(self.head.len()).map_err(io::Error::other)?;
        let mut bytes = BytesMut::with_capacity(4 + self.head.len() + self.body.len());
        bytes.put_u32(length);
        bytes.put(self.head);
        bytes.put(self.body);
        Ok(bytes.freeze())
    }

    pub(super) fn decode(bytes: BytesMut) -> io::Result<Frame> {
        let mut bytes = bytes.freeze();
        let short = || io::Error::new(io::ErrorKind::InvalidData, "its frame is too short");
        let length =
            bytes.get(..4).and_then(|it| <[u8; 4]>::try_from(it).ok()).ok_or_else(short)?;
        let length = u32::from_be_bytes(length) as usize;
        let _ = bytes.split_to(4);
        if length > bytes.len() {
            return Err(short());
        }
        let head = bytes.split_to(length);
        Ok(Frame { head, body: bytes })
    }
}

pub(super) fn codec(bytes_max: usize) -> LengthDelimitedCodec {
    LengthDelimitedCodec::builder().max_frame_length(bytes_max).new_codec()
}
