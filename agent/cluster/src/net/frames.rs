//! Frames as they come: within a time, and within the memory that is meant for all of them.

use std::future::pending;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::wire::FRAME_MAX;

/// Questions of a connection that are under way, or whose answers wait to be written.
pub(super) const UNDER_WAY_MAX: usize = 1024;
/// Bytes of its frames of [`SMALL_MAX`] at most.
const UNDER_WAY_BYTES_MAX: usize = 16 << 20;
/// Frames with more bytes than this wait for each other, and no beat waits for them.
const SMALL_MAX: usize = 64 << 10;
/// Bytes of frames of all connections, of the small ones and of the others: those come one after the other where each is as
/// large as a frame may be.
const BYTES_MAX: [usize; 2] = [64 << 20, FRAME_MAX];
/// The time for the rest of a frame after its first byte, and the bytes a second beyond.
const REST_MAX: Duration = Duration::from_secs(10);
const BYTES_PER_SECOND: u64 = 1 << 20;
/// Room that is made before the first byte of a frame has come: its length is what its sender says.
const ROOM: usize = 64 << 10;

/// Bytes that are meant for the frames of all connections of a node.
pub(super) struct Budget([Arc<Semaphore>; 2]);

/// A connection's own bound.
pub(super) struct Allowance {
    count: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
}

/// A frame's share of what may be under way.
pub(super) type Share = [OwnedSemaphorePermit; 3];

impl Default for Budget {
    fn default() -> Budget {
        Budget(BYTES_MAX.map(|bytes| Arc::new(Semaphore::new(bytes))))
    }
}

impl Default for Allowance {
    fn default() -> Allowance {
        let [count, bytes] = [UNDER_WAY_MAX, UNDER_WAY_BYTES_MAX].map(Semaphore::new).map(Arc::new);
        Allowance { count, bytes }
    }
}

impl Budget {
    /// Waits until there is room for a frame of that length. Nothing of it is read before.
    async fn share(&self, own: &Allowance, length: u32) -> io::Result<Share> {
        let Budget([small, large]) = self;
        let is_small = length as usize <= SMALL_MAX;
        let (own_bytes, all) = if is_small { (length, small) } else { (0, large) };
        let take = async |semaphore: &Arc<Semaphore>, many: u32| {
            // They are never closed.
            Arc::clone(semaphore).acquire_many_owned(many).await.map_err(io::Error::other)
        };
        let (count, bytes) = (take(&own.count, 1).await?, take(&own.bytes, own_bytes).await?);
        Ok([count, bytes, take(all, length).await?])
    }
}

/// Reads frames.
pub(super) struct Frames<R> {
    stream: BufReader<R>,
    /// The time for the rest of a small one.
    patience: Duration,
}

impl<R: AsyncRead + Unpin> Frames<R> {
    pub(super) fn of(stream: R) -> Frames<R> {
        Frames { stream: BufReader::new(stream), patience: REST_MAX }
    }

    /// The first frame, which no stranger is trusted with more than these bytes for; `None` if there is none. Its caller has
    /// a deadline.
    pub(super) async fn first(&mut self, bytes_max: usize) -> io::Result<Option<BytesMut>> {
        if self.stream.fill_buf().await?.is_empty() {
            return Ok(None);
        }
        let length = self.length(bytes_max).await?;
        self.rest(length).await.map(Some)
    }

    /// The next frame; `None` at the end.
    pub(super) async fn next(
        &mut self,
        budget: &Budget,
        own: &Allowance,
    ) -> io::Result<Option<(BytesMut, Share)>> {
        if self.stream.fill_buf().await?.is_empty() {
            return Ok(None);
        }
        let length = timeout(self.patience, self.length(FRAME_MAX)).await.map_err(|_| late())??;
        let share = budget.share(own, length).await?;
        let patience = self.patience + Duration::from_secs(u64::from(length) / BYTES_PER_SECOND);
        let frame = timeout(patience, self.rest(length)).await.map_err(|_| late())??;
        Ok(Some((frame, share)))
    }

    async fn length(&mut self, bytes_max: usize) -> io::Result<u32> {
        let length = self.stream.read_u32().await?;
        if length as usize > bytes_max {
            let cause = format!("a frame of {length} bytes, and {bytes_max} at most are taken");
            return Err(io::Error::new(io::ErrorKind::InvalidData, cause));
        }
        Ok(length)
    }

    async fn rest(&mut self, length: u32) -> io::Result<BytesMut> {
        let length = length as usize;
        let mut frame = BytesMut::with_capacity(length.min(ROOM));
        let mut rest = (&mut self.stream).take(length as u64);
        while frame.len() < length {
            frame.reserve(1);
            if rest.read_buf(&mut frame).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(frame)
    }
}

fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the rest of its frame did not come in time")
}

/// Never comes.
pub(super) async fn never<T>() -> T {
    pending().await
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test]
    async fn a_frame_that_stops_is_given_up_and_its_room_is_free_again() {
        let (budget, own) = (Budget::default(), Allowance::default());
        let frame = |bytes: &[u8]| {
            let length = u32::try_from(bytes.len()).unwrap().to_be_bytes();
            [&length, bytes].concat()
        };
        let (near, mut far) = duplex(1 << 20);
        let length = u32::try_from(SMALL_MAX + 1).unwrap();
        far.write_all(&length.to_be_bytes()).await.unwrap();
        far.write_all(&[b'x'; 1000]).await.unwrap();
        let patience = Duration::from_millis(10);
        let mut stopped = Frames { stream: BufReader::new(near), patience };
        let error = stopped.next(&budget, &own).await.map(drop).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
        assert_eq!(budget.0[1].available_permits(), BYTES_MAX[1]);

        // While a large one has all the room, another waits, and a small one does not.
        let all = budget.share(&own, u32::try_from(FRAME_MAX).unwrap()).await.unwrap();
        let (near, mut far) = duplex(1 << 20);
        far.write_all(&frame(b"ok")).await.unwrap();
        far.write_all(&frame(&[b'y'; SMALL_MAX + 1])).await.unwrap();
        let mut frames = Frames::of(near);
        let small = frames.next(&budget, &own).await.unwrap();
        assert_eq!(&small.unwrap().0[..], b"ok");
        let mut large = Box::pin(frames.next(&budget, &own));
        assert!(futures_util::poll!(&mut large).is_pending());
        drop(all);
        assert_eq!(large.await.unwrap().unwrap().0.len(), SMALL_MAX + 1);
    }
}
