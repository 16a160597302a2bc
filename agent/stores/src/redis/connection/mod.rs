//! A connection to a Redis that speaks RESP3, or RESP2 if it must, for the thread whose runtime has it.
//!
//! The usual crate has a task and two channels between a caller and the bytes. Here a command is in the
//! buffer when it is sent, `Connection::flush` has it leave, and whoever waits has the reply as soon as it
//! was read.

mod replies;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use redis::aio::ConnectionLike;
use redis::{Cmd, PushInfo, PushKind, RedisError, RedisFuture, Value};
use tenure_core::time::Boottime;
use tenure_host::marks::{Stage, mark};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;

use self::replies::Replies;
use crate::remote::StoreClock;
use crate::remote::stream::Stream;

/// Bytes that are read at once.
const CHUNK: usize = 16 * 1024;
/// Room that is kept between two commands, bytes.
const KEPT_MAX: usize = 64 * 1024;

/// A connection that several calls use at once. Cheap to clone. Knows no deadline: commands that wait are
/// bounded by whoever sends them, and a server that takes nothing in is given up by its link.
#[derive(Clone)]
pub struct Connection(Arc<Mutex<Shared>>);

struct Shared {
    stream: Box<dyn Stream>,
    /// Commands that are not written, or not wholly.
    out: Vec<u8>,
    /// The part of `out` that is written.
    written: usize,
    /// Who waits for replies, in the order of sending.
    waiting: VecDeque<Waiting>,
    /// Why nothing can be sent any more.
    ended: Option<RedisError>,
    /// Wakes the pump.
    pump: Option<Waker>,
    /// The server, or a proxy before it, knows no other protocol.
    speaks_resp2: bool,
    /// Messages may come.
    subscribes: bool,
    clock: StoreClock,
}

struct Waiting {
    /// Gone if the call was given up; its reply comes all the same.
    reply: oneshot::Sender<Result<Value, RedisError>>,
    /// Confirmations to come, where the reply are pushes, one for each channel.
    confirmations: usize,
}

impl Connection {
    /// A connection over that stream, and its pump. `heard` gets what the server says unasked, and what is known of
    /// its clock.
    pub fn new(
        stream: Box<dyn Stream>,
        heard: impl Fn(PushInfo, &StoreClock) + Send + 'static,
    ) -> (Connection, Pump) {
        let shared = Shared {
            stream,
            out: Vec::new(),
            written: 0,
            waiting: VecDeque::new(),
            ended: None,
            pump: None,
            speaks_resp2: false,
            subscribes: false,
            clock: StoreClock::default(),
        };
        let connection = Connection(Arc::new(Mutex::new(shared)));
        let pump = Pump {
            connection: connection.clone(),
            replies: Replies::default(),
            chunk: Box::new([0; CHUNK]),
            heard: Box::new(heard),
        };
        (connection, pump)
    }

    /// Nothing panics while it holds the lock.
    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a command. It leaves when the connection is flushed, or else soon. An error that is the
    /// server's answer is a value, too.
    pub(super) fn send(
        &self,
        command: &Cmd,
    ) -> impl Future<Output = Result<Value, RedisError>> + Send + use<> {
        let (reply, answer) = oneshot::channel();
        let mut shared = self.shared();
        match &shared.ended {
            // Nobody has taken it away yet.
            Some(error) => drop(reply.send(Err(error.clone()))),
            None => {
                let confirmations = confirmations(command);
                command.write_packed_command(&mut shared.out);
                shared.subscribes |= confirmations > 0;
                shared.waiting.push_back(Waiting { reply, confirmations });
                shared.wake_pump();
            }
        }
        async move { answer.await.unwrap_or_else(|_| Err(lost())) }
    }

    /// Reads what comes as RESP2, in which messages are arrays like any others.
    pub(super) fn speak_resp2(&self) {
        self.shared().speaks_resp2 = true;
    }

    pub(super) fn speaks_resp2(&self) -> bool {
        self.shared().speaks_resp2
    }

    /// True once it has asked for messages. With RESP2 a server then takes little else.
    pub(super) fn subscribes(&self) -> bool {
        self.shared().subscribes
    }

    /// The server answered with the time of its clock.
    pub(super) fn told_time(&self, sent_at: Boottime, time: Duration) {
        self.shared().clock.answered(sent_at, time);
    }

    /// Has the operating system take what was sent, as far as it takes it now.
    pub(super) fn flush(&self) {
        let mut shared = self.shared();
        let Some(pump) = shared.pump.clone() else { return };
        if shared.write(&mut Context::from_waker(&pump)).is_err() {
            // The pump meets the same error.
            pump.wake();
        }
    }
}

/// How many confirmations a command has instead of a reply.
fn confirmations(command: &Cmd) -> usize {
    let mut words = command.args_iter();
    match words.next() {
        Some(redis::Arg::Simple(b"SUBSCRIBE" | b"UNSUBSCRIBE")) => words.len(),
        _ => 0,
    }
}

impl Shared {
    /// Tells messages from replies, where the protocol does not.
    fn sort(&self, value: Value) -> Value {
        match value {
            Value::Array(mut data) if self.speaks_resp2 && self.subscribes => {
                let kind = match data.first() {
                    Some(Value::BulkString(name)) => match name.as_slice() {
                        b"message" => PushKind::Message,
                        b"subscribe" => PushKind::Subscribe,
                        b"unsubscribe" => PushKind::Unsubscribe,
                        _ => return Value::Array(data),
                    },
                    _ => return Value::Array(data),
                };
                data.remove(0);
                Value::Push { kind, data }
            }
            value => value,
        }
    }

    fn wake_pump(&self) {
        if let Some(pump) = &self.pump {
            pump.wake_by_ref();
        }
    }

    /// Writes as much as the stream takes.
    fn write(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        while self.written < self.out.len() {
            let unwritten = &self.out[self.written..];
            match Pin::new(&mut self.stream).poll_write(context, unwritten) {
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(written)) => self.written += written,
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => return Ok(()),
            }
        }
        if self.written > 0 {
            mark(Stage::Sent);
            self.out.clear();
            self.out.shrink_to(KEPT_MAX);
            self.written = 0;
        }
        match Pin::new(&mut self.stream).poll_flush(context) {
            Poll::Ready(flushed) => flushed,
            Poll::Pending => Ok(()),
        }
    }

    /// Takes a reply; what nobody has asked for is an error. A server that has no room says so unasked, and
    /// hangs up.
    fn answer(&mut self, value: Value) -> Result<(), RedisError> {
        let Some(Waiting { reply, .. }) = self.waiting.pop_front() else {
            return Err(match value {
                Value::ServerError(error) => error.into(),
                _ => (redis::ErrorKind::Parse, "a reply that nobody asked for").into(),
            });
        };
        // Its call was given up.
        let _ = reply.send(Ok(value));
        Ok(())
    }

    /// Counts a confirmation that a channel is listened to, or no longer.
    fn confirm(&mut self) {
        let Some(first) = self.waiting.front_mut() else { return };
        first.confirmations = first.confirmations.saturating_sub(1);
        if first.confirmations == 0 {
            // There is somebody, so there is no error.
            let _ = self.answer(Value::Okay);
        }
    }

    fn end(&mut self, error: RedisError) {
        for Waiting { reply, .. } in self.waiting.drain(..) {
            // Its call was given up.
            let _ = reply.send(Err(error.clone()));
        }
        self.ended.get_or_insert(error);
        self.pump = None;
        self.stream = Box::new(tokio::io::empty());
    }
}

/// Takes what the server says unasked, and what is known of its clock then.
type Heard = dyn Fn(PushInfo, &StoreClock) + Send;

/// The part of a connection that must be polled for anything to happen on it. Ends when the connection
/// does, and ends the connection when it is dropped.
pub struct Pump {
    connection: Connection,
    replies: Replies,
    chunk: Box<[u8; CHUNK]>,
    heard: Box<Heard>,
}

impl Pump {
    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<RedisError> {
        let Pump { connection, replies, chunk, heard } = self;
        loop {
            let mut shared = connection.shared();
            if !shared.pump.as_ref().is_some_and(|pump| pump.will_wake(context.waker())) {
                shared.pump = Some(context.waker().clone());
            }
            // A server that hangs up may have said why: that is read first.
            let unwritten = shared.write(context).err();
            let mut chunk = ReadBuf::new(chunk.as_mut_slice());
            match Pin::new(&mut shared.stream).poll_read(context, &mut chunk) {
                Poll::Pending => {
                    return unwritten.map_or(Poll::Pending, |error| Poll::Ready(error.into()));
                }
                Poll::Ready(Err(error)) => return Poll::Ready(error.into()),
                Poll::Ready(Ok(())) if chunk.filled().is_empty() => return Poll::Ready(lost()),
                Poll::Ready(Ok(())) => {
                    mark(Stage::Heard);
                    replies.add(chunk.filled());
                }
            }
            loop {
                match replies.next().map(|reply| reply.map(|value| shared.sort(value))) {
                    Ok(Some(Value::Push { kind, data })) => {
                        if matches!(kind, PushKind::Subscribe | PushKind::Unsubscribe) {
                            shared.confirm();
                        }
                        heard(PushInfo { kind, data }, &shared.clock);
                    }
                    Ok(Some(value)) => {
                        if let Err(error) = shared.answer(value) {
                            return Poll::Ready(error);
                        }
                    }
                    Ok(None) => break,
                    Err(error) => return Poll::Ready(error),
                }
            }
        }
    }
}

impl Future for Pump {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let error = ready!(self.poll_end(context));
        self.connection.shared().end(error);
        Poll::Ready(())
    }
}

impl Drop for Pump {
    fn drop(&mut self) {
        self.connection.shared().end(lost());
    }
}

fn lost() -> RedisError {
    io::Error::from(io::ErrorKind::UnexpectedEof).into()
}

impl ConnectionLike for Connection {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        Box::pin(self.send(cmd))
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a redis::Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        // None of them is between two of another caller.
        let sent: Vec<_> = pipeline.cmd_iter().map(|command| self.send(command)).collect();
        Box::pin(async move {
            let mut values = Vec::with_capacity(count);
            for (index, answer) in sent.into_iter().enumerate() {
                let value = answer.await?;
                if (offset..offset + count).contains(&index) {
                    values.push(value);
                }
            }
            Ok(values)
        })
    }

    fn get_db(&self) -> i64 {
        0
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shared = self.shared();
        f.debug_struct("Connection").field("waiting", &shared.waiting.len()).finish_non_exhaustive()
    }
}
