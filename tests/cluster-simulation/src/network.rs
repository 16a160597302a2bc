//! A network that delays, loses, parts hosts and cuts connections. What arrives on a connection arrives in order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use futures_util::future::BoxFuture;
use tenure_cluster::net::{Accept, Dial, Network, Opening, Stream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{mpsc, oneshot};

use crate::chance::Random;

/// Bytes that a connection takes before somebody reads them.
const BUFFER: usize = 1 << 20;
/// Connections that wait to be taken.
const BACKLOG: usize = 64;

/// The network. Cheap to clone: all are the same one.
#[derive(Clone)]
pub(crate) struct Net(Arc<Mutex<State>>);

struct State {
    now_us: u64,
    random: Random,
    loss_per_mille: u64,
    /// The directions in which nothing passes.
    blocked: BTreeSet<(usize, usize)>,
    /// Hosts that are switched off: they tell nobody that a connection ends.
    dark: BTreeSet<usize>,
    pipes: BTreeMap<u64, Pipe>,
    next: u64,
    knocks: Vec<Knock>,
    doors: BTreeMap<usize, mpsc::Sender<(Opening, SocketAddr)>>,
}

/// One direction of a connection.
struct Pipe {
    from: usize,
    to: usize,
    under_way: VecDeque<(u64, Piece)>,
    arrived: VecDeque<u8>,
    end: Option<End>,
    /// Nobody reads it any more.
    is_deaf: bool,
    /// Nobody writes it any more.
    is_silent: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

enum Piece {
    Bytes(Vec<u8>),
    End(End),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Closed,
    Reset,
}

/// A connection that is being made.
struct Knock {
    due_us: u64,
    from: usize,
    to: usize,
    answer: oneshot::Sender<io::Result<Stream>>,
}

fn reset() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "it was reset")
}

impl Net {
    pub(crate) fn new(random: Random, loss_per_mille: u64) -> Net {
        Net(Arc::new(Mutex::new(State {
            now_us: 0,
            random,
            loss_per_mille,
            blocked: BTreeSet::new(),
            dark: BTreeSet::new(),
            pipes: BTreeMap::new(),
            next: 0,
            knocks: Vec::new(),
            doors: BTreeMap::new(),
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The address of a host.
    pub(crate) fn address(host: usize) -> String {
        format!("host{host}:7000")
    }

    /// The network as a process of a host sees it.
    pub(crate) fn of(&self, host: usize) -> Network {
        let (door, knocks) = mpsc::channel(BACKLOG);
        let mut state = self.state();
        state.doors.insert(host, door);
        state.dark.remove(&host);
        let accept = Door(tokio::sync::Mutex::new(knocks));
        Network { dial: Arc::new(Way { net: self.clone(), host }), accept: Box::new(accept) }
    }

    /// A process of a host has ended; in the dark nobody is told.
    pub(crate) fn leave(&self, host: usize, is_dark: bool) {
        let mut state = self.state();
        state.doors.remove(&host);
        if is_dark {
            state.dark.insert(host);
        }
    }

    pub(crate) fn block(&self, blocked: BTreeSet<(usize, usize)>) {
        self.state().blocked = blocked;
    }

    pub(crate) fn lose(&self, per_mille: u64) {
        self.state().loss_per_mille = per_mille;
    }

    /// Cuts all connections of a host.
    pub(crate) fn cut(&self, host: usize) {
        for pipe in self.state().pipes.values_mut() {
            if pipe.from == host || pipe.to == host {
                pipe.under_way.clear();
                pipe.finish(End::Reset);
            }
        }
    }

    /// Time passes: what has come is there.
    pub(crate) fn pass(&self, now_us: u64) {
        let mut state = self.state();
        state.now_us = now_us;
        let State { blocked, pipes, .. } = &mut *state;
        for pipe in pipes.values_mut() {
            if !blocked.contains(&(pipe.from, pipe.to)) {
                pipe.pass(now_us);
            }
        }
        pipes.retain(|_, pipe| !(pipe.is_deaf && pipe.is_silent));
        let (due, later): (Vec<_>, Vec<_>) = std::mem::take(&mut state.knocks)
            .into_iter()
            .partition(|knock| knock.due_us <= now_us && state.are_in_touch(knock.from, knock.to));
        state.knocks = later;
        drop(state);
        for knock in due {
            self.let_in(knock);
        }
    }

    fn let_in(&self, knock: Knock) {
        let Knock { from, to, answer, .. } = knock;
        if answer.is_closed() {
            return;
        }
        let (door, ends) = {
            let mut state = self.state();
            if state.dark.contains(&to) {
                return;
            }
            (state.doors.get(&to).cloned(), [state.pipe(from, to), state.pipe(to, from)])
        };
        let end = |read: u64, write: u64, host| Socket { net: self.clone(), read, write, host };
        let (near, far) = (end(ends[1], ends[0], from), end(ends[0], ends[1], to));
        let opening: Opening = Box::pin(async { Ok(Box::new(far) as Stream) });
        let source = SocketAddr::from(([10, 0, 0, from as u8], 7000));
        let taken = door.is_some_and(|door| door.try_send((opening, source)).is_ok());
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        // Whoever asked may have gone.
        drop(answer.send(if taken { Ok(Box::new(near) as Stream) } else { Err(refused()) }));
    }
}

impl State {
    fn are_in_touch(&self, one: usize, other: usize) -> bool {
        !self.blocked.contains(&(one, other)) && !self.blocked.contains(&(other, one))
    }

    fn pipe(&mut self, from: usize, to: usize) -> u64 {
        self.next += 1;
        let (under_way, arrived) = (VecDeque::new(), VecDeque::new());
        let (is_deaf, is_silent) = (false, false);
        let pipe = Pipe {
            from,
            to,
            under_way,
            arrived,
            end: None,
            is_deaf,
            is_silent,
            reader: None,
            writer: None,
        };
        self.pipes.insert(self.next, pipe);
        self.next
    }

    /// The instant at which a packet arrives; one that is lost is sent again a while later.
    fn arrival(&mut self) -> u64 {
        let lost = self.random.per_mille(self.loss_per_mille);
        let again = if lost { self.random.number(200_000, 900_000) } else { 0 };
        self.now_us + self.random.number(100, 6_000) + again
    }

    fn send(&mut self, pipe: u64, piece: Piece) {
        let at = self.arrival();
        if let Some(pipe) = self.pipes.get_mut(&pipe) {
            let last = pipe.under_way.back().map_or(0, |(due, _)| *due);
            pipe.under_way.push_back((at.max(last), piece));
        }
    }
}

impl Pipe {
    fn pass(&mut self, now_us: u64) {
        while self.under_way.front().is_some_and(|(due, _)| *due <= now_us) {
            match self.under_way.pop_front() {
                Some((_, Piece::Bytes(bytes))) if self.end.is_none() && !self.is_deaf => {
                    self.arrived.extend(bytes);
                    self.reader.take().into_iter().for_each(Waker::wake);
                }
                Some((_, Piece::End(end))) => self.finish(end),
                _ => {}
            }
        }
    }

    fn finish(&mut self, end: End) {
        self.end.get_or_insert(end);
        self.reader.take().into_iter().for_each(Waker::wake);
        self.writer.take().into_iter().for_each(Waker::wake);
    }
}

struct Way {
    net: Net,
    host: usize,
}

impl Dial for Way {
    fn connect<'a>(&'a self, address: &'a str) -> BoxFuture<'a, io::Result<Stream>> {
        Box::pin(async move {
            let host = address.strip_prefix("host").and_then(|rest| rest.split_once(':'));
            let to = host.and_then(|(host, _)| host.parse().ok()).ok_or_else(reset)?;
            let (answer, answered) = oneshot::channel();
            {
                let mut state = self.net.state();
                let due_us = state.arrival();
                state.knocks.push(Knock { due_us, from: self.host, to, answer });
            }
            answered.await.map_err(|_| reset())?
        })
    }
}

struct Door(tokio::sync::Mutex<mpsc::Receiver<(Opening, SocketAddr)>>);

impl Accept for Door {
    fn accept(&self) -> BoxFuture<'_, io::Result<(Opening, SocketAddr)>> {
        Box::pin(async { self.0.lock().await.recv().await.ok_or_else(reset) })
    }
}

/// One end of a connection.
struct Socket {
    net: Net,
    read: u64,
    write: u64,
    host: usize,
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut state = self.net.state();
        let Some(pipe) = state.pipes.get_mut(&self.read) else { return Poll::Ready(Err(reset())) };
        if pipe.arrived.is_empty() {
            match pipe.end {
                Some(End::Closed) => return Poll::Ready(Ok(())),
                Some(End::Reset) => return Poll::Ready(Err(reset())),
                None => {}
            }
            pipe.reader = Some(context.waker().clone());
            return Poll::Pending;
        }
        let count = buffer.remaining().min(pipe.arrived.len());
        let bytes: Vec<u8> = pipe.arrived.drain(..count).collect();
        buffer.put_slice(&bytes);
        pipe.writer.take().into_iter().for_each(Waker::wake);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut state = self.net.state();
        let Some(pipe) = state.pipes.get_mut(&self.write) else {
            return Poll::Ready(Err(reset()));
        };
        if pipe.end.is_some() {
            return Poll::Ready(Err(reset()));
        }
        if pipe.arrived.len() > BUFFER {
            pipe.writer = Some(context.waker().clone());
            return Poll::Pending;
        }
        state.send(self.write, Piece::Bytes(bytes.to_vec()));
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.net.state().send(self.write, Piece::End(End::Closed));
        Poll::Ready(Ok(()))
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let mut state = self.net.state();
        if let Some(read) = state.pipes.get_mut(&self.read) {
            read.under_way.clear();
            read.arrived.clear();
            read.is_deaf = true;
        }
        if let Some(write) = state.pipes.get_mut(&self.write) {
            write.is_silent = true;
        }
        if state.dark.contains(&self.host) {
            // The other end learns of it when TCP gives up.
            let at = state.now_us + state.random.number(1_000_000, 10_000_000);
            if let Some(pipe) = state.pipes.get_mut(&self.write) {
                pipe.under_way = VecDeque::from([(at, Piece::End(End::Reset))]);
            }
        } else {
            state.send(self.write, Piece::End(End::Closed));
        }
    }
}
