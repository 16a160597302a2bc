//! The client: how to connect, and how to ask.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use tenure_core::model::{Answer, Change, Failure, Request};
use tenure_stores::remote::{
    Backend, ConnectError, ConnectionHints, Connector, Dialed, Hears, Hint, LineOf, Listening,
    NoChores, Peer, Purpose, Server,
};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};

use super::{Ask, Told};

/// Calls on their way to the socket; whoever makes more waits.
const SENDING_MAX: usize = 64;

#[derive(Debug, Clone)]
pub(super) struct Trial {
    socket: Arc<PathBuf>,
}

/// A call, and the way back.
type Call = (Ask, oneshot::Sender<Option<Box<Answer>>>);

/// Fails when the connection has ended.
#[derive(Debug, Clone)]
pub(super) struct Connection(mpsc::Sender<Call>);

impl Connection {
    async fn ask(&self, ask: Ask) -> Result<Option<Box<Answer>>, Failure> {
        let gone = || Failure::Unknown("the trial store hung up".to_owned());
        let (reply, replied) = oneshot::channel();
        self.0.send((ask, reply)).await.map_err(|_| gone())?;
        replied.await.map_err(|_| gone())
    }
}

impl Trial {
    pub(super) fn at(socket: PathBuf) -> Trial {
        Trial { socket: Arc::new(socket) }
    }

    fn peer(&self) -> Peer {
        Peer { what: "the trial store", place: self.socket.display().to_string() }
    }
}

impl Connector for Trial {
    type Connection = Connection;
    const STORE: &'static str = "the trial store";
    const KIND: &'static str = "trial";

    async fn connect(
        &self,
        _purpose: Purpose,
        hints: Option<ConnectionHints>,
    ) -> Result<Dialed<Connection>, ConnectError> {
        let stream = UnixStream::connect(&*self.socket).await.map_err(|error| {
            ConnectError::Connect { peer: self.peer(), source: Arc::new(error) }
        })?;
        let (calls, to_send) = mpsc::channel(SENDING_MAX);
        let server = Server { place: self.peer().place, version: "1".to_owned() };
        let peer = self.peer();
        let pump = Box::pin(async move {
            pump(stream, to_send, hints).await;
            ConnectError::Lost { peer, cause: "it hung up".to_owned() }
        });
        Ok(Dialed { connection: Connection(calls), server, pump })
    }

    async fn check(&self, connection: &Connection, _server: &Server) -> Result<(), ConnectError> {
        let lost = |failure: Failure| ConnectError::Lost {
            peer: self.peer(),
            cause: failure.cause().to_owned(),
        };
        connection.ask(Ask::Ping).await.map(drop).map_err(lost)
    }
}

/// Sends calls and takes what comes, until the connection ends.
async fn pump(stream: UnixStream, mut calls: mpsc::Receiver<Call>, hints: Option<ConnectionHints>) {
    let (reader, mut writer) = stream.into_split();
    let mut lines = BufReader::new(reader).lines();
    let mut waiting: HashMap<u64, oneshot::Sender<Option<Box<Answer>>>> = HashMap::new();
    let mut number = 0;
    loop {
        tokio::select! {
            call = calls.recv() => {
                let Some((ask, reply)) = call else { return };
                number += 1;
                waiting.insert(number, reply);
                let mut line = serde_json::to_vec(&(number, ask)).expect("it can be written");
                line.push(b'\n');
                if writer.write_all(&line).await.is_err() {
                    return;
                }
            }
            line = lines.next_line() => {
                let Ok(Some(line)) = line else { return };
                match serde_json::from_str(&line).expect("our server's") {
                    Told::Reply(number, answer) => {
                        let reply = waiting.remove(&number);
                        // Whoever gave up is not there any more.
                        let _ = reply.map(|reply| reply.send(answer));
                    }
                    Told::Change(change) => {
                        hints.iter().for_each(|hints| hints.push(hint(change.clone())));
                    }
                }
            }
        }
    }
}

fn hint(change: Change) -> Hint {
    match change {
        Change::Resource(resource) => Hint::Resource(resource),
        Change::Granted { claim, .. } => Hint::Granted(claim, None),
        Change::Lost { claim, .. } => Hint::Lost(claim),
        Change::Message { session: Some(session), payload, .. } => {
            Hint::ToSession { session, payload: payload.to_string().into_bytes() }
        }
        Change::Message { tenant, project, payload, .. } => {
            Hint::ToProject { tenant, project, payload: payload.to_string().into_bytes() }
        }
    }
}

impl Backend for Trial {
    type Connector = Trial;
    type Chores = NoChores;

    async fn perform(
        &self,
        line: &mut LineOf<Self>,
        request: &Request,
        _floor: u64,
    ) -> Result<Answer, Failure> {
        line.sending();
        let answer = line.connection().ask(Ask::Do(Box::new(request.clone()))).await?;
        answer.map(|it| *it).ok_or_else(|| Failure::Unknown("no answer".to_owned()))
    }

    async fn listen(&self, line: &mut LineOf<Self>) -> Result<Listening, Failure> {
        line.sending();
        line.connection().ask(Ask::Listen).await?;
        Ok(Listening { hears: Hears::Everything, refused: None })
    }
}
