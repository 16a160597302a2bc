//! The change stream of a gateway, as hints.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::StatusCode;
use hyper::body::Incoming;
use tenure_host::clock;
use tenure_host::marks::{Stage, mark};
use tenure_wire::rules::TOKEN_MAX;
use tokio::time::timeout;

use super::behind::BehindGateway;
use super::door::refused;
use super::http::{Answered, CallError, Turn};
use super::scope::{Mark, Scope};
use super::wire::{CHANGES, NEWS_BYTES_MAX, News};
use crate::remote::{ConnectError, ConnectionHints, Hint, Peer, Pump};

/// A stream that is silent for longer is dead: a gateway gives a sign of life every 15 s.
const SILENT_MAX: Duration = Duration::from_secs(40);

/// An agent's ids, as one connection knows them.
pub(super) struct Scoped {
    pub(super) scope: Arc<Scope>,
    pub(super) mark: Mark,
}

/// Opens the stream. What it returns reads it until it ends.
pub(super) async fn open(
    turn: Turn<'_>,
    peer: &Peer,
    scope: Scoped,
    (kind, behind): (String, Arc<BehindGateway>),
    hints: ConnectionHints,
) -> Result<Pump, ConnectError> {
    let lost = |error: CallError| ConnectError::lost(peer, &error.to_string());
    let response = turn.get(CHANGES).await.map_err(lost)?;
    if response.status() != StatusCode::OK {
        return Err(refused(peer, &Answered::read(response).await.map_err(lost)?));
    }
    let peer = peer.clone();
    let mut body = response.into_body();
    Ok(Box::pin(async move {
        // Whatever was told of the store holds no longer than the stream.
        let _told = Arc::clone(&behind).until_end();
        let take = |news| match news {
            News::Store(state) => behind.told(clock::now(), &kind, &state),
            news => hints.push(scope.hint(news)),
        };
        let cause = read(&mut body, take).await;
        ConnectError::lost(&peer, &cause)
    }))
}

/// Reads news until the stream ends, and says why it did.
async fn read(body: &mut Incoming, mut give: impl FnMut(News)) -> String {
    let mut lines = Lines::default();
    loop {
        let frame = match timeout(SILENT_MAX, body.frame()).await {
            Err(_) => return format!("its stream was silent for {} s", SILENT_MAX.as_secs()),
            Ok(None) => return "it ended its stream".to_owned(),
            Ok(Some(Err(error))) => return error.to_string(),
            Ok(Some(Ok(frame))) => frame,
        };
        mark(Stage::Heard);
        let Ok(data) = frame.into_data() else { continue };
        if !lines.take(&data, |line| News::read(line).into_iter().for_each(&mut give)) {
            return format!("its stream has an event of more than {NEWS_BYTES_MAX} bytes");
        }
    }
}

/// Lines, put together of what comes.
#[derive(Default)]
struct Lines {
    /// The beginning of a line whose end has not come.
    begun: Vec<u8>,
}

impl Lines {
    /// Gives each line that is whole. `false` if one is too long.
    fn take(&mut self, data: &[u8], mut give: impl FnMut(&[u8])) -> bool {
        let mut pieces = data.split_inclusive(|byte| *byte == b'\n');
        pieces.all(|piece| {
            self.begun.extend_from_slice(piece);
            if let Some(line) = self.begun.strip_suffix(b"\n") {
                give(line.strip_suffix(b"\r").unwrap_or(line));
                self.begun.clear();
            }
            self.begun.len() <= NEWS_BYTES_MAX
        })
    }
}

impl Scoped {
    fn hint(&self, news: News) -> Hint {
        let Scoped { scope, mark } = self;
        match news {
            News::Resource(resource) => Hint::Resource(resource),
            News::Granted { claim, grant } => {
                let claim = scope.claim(*mark, claim);
                // A grant without a token that a store may count to makes the agent ask.
                match grant.filter(|grant| (1..=TOKEN_MAX).contains(&grant.token)) {
                    Some(grant) => Hint::Carried(claim, grant),
                    None => Hint::Granted(claim, None),
                }
            }
            News::Lost { claim } => Hint::Lost(scope.claim(*mark, claim)),
            News::Message { tenant, project, session, payload } => {
                let payload = payload.to_string().into_bytes();
                match session {
                    None => Hint::ToProject { tenant, project, payload },
                    Some(session) => {
                        Hint::ToSession { session: scope.session(*mark, session), payload }
                    }
                }
            }
            // Nothing of this agent's changes with it.
            News::FeedLost | News::Reset | News::Store(_) => Hint::Everything,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_put_together_and_are_not_too_long() {
        let mut lines = Lines::default();
        let mut given = Vec::new();
        for data in [&b"one\r\ntw"[..], b"o", b"\n\nthr"] {
            assert!(lines.take(data, |line| given.push(line.to_vec())));
        }
        assert_eq!(given, [&b"one"[..], b"two", b""]);
        assert!(!lines.take(&vec![b'x'; NEWS_BYTES_MAX], |_| {}));
    }
}
