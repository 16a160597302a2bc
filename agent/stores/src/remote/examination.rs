//! An examination over a connection of its own, which shows at once whether new ones can be made, and
//! holds up no beat and no claim.

use std::sync::Arc;
use std::time::Duration;

use tenure_wire::Check;
use tokio::time::{Instant, timeout};

use super::backend::FeedState;
use super::link::{Connected, Connector, Dialer, Link};
use super::purpose::Purpose;
use super::writes::{REFUSES_WRITES, WriteError};
use crate::Examination;

/// How long it may take to connect.
const CONNECT_MAX: Duration = Duration::from_millis(2000);
/// Shortest time that a write may take; the time that the look has left comes on top.
const WRITE_MIN: Duration = Duration::from_millis(400);
/// The same while it is known why no connection could be made a moment ago: somebody waits, and is told that.
const CONNECT_AGAIN_MAX: Duration = Duration::from_millis(500);

/// A check's name: stable, since programs look for it.
fn name<D: Connector>(what: &str) -> String {
    format!("{}.{what}", D::KIND)
}

/// `known` is why the store is away, if the agent knows it to be.
pub fn examination<D: Connector>(
    dialer: Arc<Dialer<D>>,
    known: Option<String>,
    feed: FeedState,
) -> Examination {
    Box::pin(async move {
        // The connection ends with its link.
        let link = Link::open(Arc::clone(&dialer), Purpose::Examination);
        match connect(&link, known).await {
            Ok(Connected { connection, server, .. }) => {
                let detail = format!("connected to {}", server.place);
                let mut checks = vec![Check::ok(&name::<D>("connection"), detail)];
                let began = Instant::now();
                checks.extend(examine(dialer.connector(), connection.clone()).await);
                if D::TRIES_WRITES {
                    // Last, since a write that waits keeps the questions after it waiting.
                    let left = D::LOOK_MAX.saturating_sub(began.elapsed()).max(WRITE_MIN);
                    checks.insert(1, writes(dialer.connector(), &connection, left).await);
                }
                checks.push(hears::<D>(feed));
                checks
            }
            Err(cause) => vec![unreachable::<D>(&cause)],
        }
    })
}

async fn connect<C: Clone + Send + Sync + 'static>(
    link: &Link<C>,
    known: Option<String>,
) -> Result<Connected<C>, String> {
    let within = if known.is_some() { CONNECT_AGAIN_MAX } else { CONNECT_MAX };
    match timeout(within, link.ready()).await {
        Ok(ready) => ready.map_err(|failure| failure.cause().to_owned()),
        Err(_) => {
            Err(known.unwrap_or_else(|| format!("no connection within {} ms", within.as_millis())))
        }
    }
}

/// The check by a write without an effect.
async fn writes<D: Connector>(
    connector: &D,
    connection: &D::Connection,
    within: Duration,
) -> Check {
    let name = name::<D>("writes");
    let way_out = "nothing can be granted until it takes writes: do what it says, or see the server's log; the \
                   agent tries again by itself";
    match timeout(within, connector.try_write(connection, None)).await {
        Ok(Ok(())) => Check::ok(&name, "the store takes writes"),
        Ok(Err(WriteError::Refused(cause))) => {
            Check::failure(&name, format!("{REFUSES_WRITES}{cause}"), way_out)
        }
        Ok(Err(WriteError::Silent(cause))) => {
            Check::unknown(&name, cause, "see whether it is overloaded, and run this again")
        }
        Err(_) => {
            let ms = within.as_millis();
            let detail = format!("{REFUSES_WRITES}a write had no answer within {ms} ms");
            let way_out = "see which lock, pause or missing standby it waits for in the server; nothing can be granted \
                           until it takes writes";
            Check::failure(&name, detail, way_out)
        }
    }
}

/// Looks at the store over that connection. Never fails: what cannot be found out is unknown.
pub async fn examine<D: Connector>(connector: &D, connection: D::Connection) -> Vec<Check> {
    let mut checks = Vec::new();
    if timeout(D::LOOK_MAX, connector.examine(connection, &mut checks)).await.is_err() {
        checks.push(Check::unknown(
            &name::<D>("rest"),
            format!(
                "the server was too slow to look further within {} ms",
                D::LOOK_MAX.as_millis()
            ),
            "see whether it is overloaded, and run this again",
        ));
    }
    checks
}

/// The check when there is no connection; the cause names the place and the way out of it.
fn unreachable<D: Connector>(cause: &str) -> Check {
    Check::failure(
        &name::<D>("connection"),
        cause,
        "mend that, or correct upstream and upstream_secret_file (`tenured check-config` shows what \
         is in effect); the agent tries again by itself, nothing else could be looked at",
    )
}

/// The check of the agent's own feed, which needs no question.
fn hears<D: Connector>(feed: FeedState) -> Check {
    let name = name::<D>("feed");
    match feed {
        FeedState::Up => Check::ok(&name, "the agent hears at once what others change"),
        FeedState::Partial(why) => Check::warning(
            &name,
            format!("the agent does not hear all that others change: {why}"),
            "see the other checks; until then it finds changes by asking, up to a second late",
        ),
        FeedState::Down => Check::warning(
            &name,
            "the agent hears nothing of what others change at the moment",
            "run this again; if it stays so, look into the agent's log",
        ),
    }
}
