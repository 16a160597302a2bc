//! The client of a Postgres, as the driver of remote stores wants it.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::model::{Answer, Beat, ClaimId, Failure, Request, Resource, Subject};
use uuid::Uuid;

use super::address::Address;
use super::chores::{Chores, Upkeep};
use super::connection::Line;
use super::settings::PostgresAccess;
use super::statements::Operation;
use super::{connection, feed, perform};
use crate::remote::{Audience, Backend, Dialer, Driver, Hears, Listening, Verified};

/// A Postgres, shared with others.
pub struct Postgres(Arc<Dialer<Address>>);

impl Postgres {
    /// Starts to connect. Must be called on the thread, and in the runtime, that will use it.
    pub fn open(access: PostgresAccess) -> Driver<Postgres> {
        let timeout = access.timeout;
        let dialer = Arc::new(Dialer::new(Address::new(access)));
        Driver::open(&dialer, Postgres(Arc::clone(&dialer)), Chores::default(), timeout)
    }
}

impl Backend for Postgres {
    type Connector = Address;
    type Chores = Chores;

    const ENDS_QUARANTINES: bool = true;

    async fn perform(
        &self,
        line: &mut Line,
        request: &Request,
        floor: u64,
    ) -> Result<Answer, Failure> {
        // The epoch notes the ttl of the request as one in use.
        self.0.connector().epoch.ask(asked_ttl(request));
        perform::perform(line, request, perform::token(floor)).await
    }

    async fn end_quarantine(&self, line: &mut Line) -> Result<(), Failure> {
        connection::rows(line, Operation::EndQuarantine, &[]).await?;
        self.0.connector().epoch.end_quarantine();
        Ok(())
    }

    async fn listen(&self, line: &mut Line) -> Result<Listening, Failure> {
        line.sending();
        let listen = format!("listen {}", feed::CHANNEL);
        let client = Arc::clone(&line.connection().client);
        match client.batch_execute(&listen).await {
            Ok(()) => Ok(Listening { hears: Hears::Everything, refused: None }),
            Err(error) => Err(Failure::Unknown(connection::words(&error))),
        }
    }

    async fn hear(
        &self,
        _line: &mut Line,
        _audiences: &[Audience],
    ) -> Result<Option<String>, Failure> {
        // All notifications come over one channel.
        Ok(None)
    }

    fn serve_principals(&self) {
        self.0.connector().serve_principals();
    }

    async fn relay(&self, line: &mut Line, principal: &str, news: &[u8]) -> Result<(), Failure> {
        let news = String::from_utf8_lossy(news);
        connection::rows(line, Operation::Relay, &[&principal, &news]).await.map(drop)
    }

    async fn verify(
        &self,
        line: &mut Line,
        claims: &[(ClaimId, Resource)],
    ) -> Result<Vec<Verified>, Failure> {
        let ids: Vec<Uuid> = claims.iter().map(|(claim, _)| claim.0).collect();
        let rows = connection::rows(line, Operation::Verify, &[&ids]).await?;
        let found = |is_held: bool| if is_held { Verified::Held } else { Verified::Gone };
        Ok(rows.iter().map(|row| found(row.get(0))).collect())
    }

    async fn do_chore(
        &self,
        line: &mut Line,
        _chore: Upkeep,
        floor: u64,
    ) -> Result<Option<Duration>, Failure> {
        let floor = perform::token(floor);
        let next: Option<i64> = connection::value(line, Operation::Upkeep, &[&floor]).await?;
        Ok(next.map(|us| Duration::from_micros(u64::try_from(us).unwrap_or(0))))
    }
}

/// The longest ttl that a request asks for.
fn asked_ttl(request: &Request) -> Duration {
    let of_claim = |beat: &&Beat| matches!(beat.subject, Subject::Claim { .. });
    match request {
        Request::Claim(claim) => claim.ttl,
        Request::Renew(beats) => {
            beats.iter().filter(of_claim).map(|beat| beat.ttl).max().unwrap_or_default()
        }
        _ => Duration::ZERO,
    }
}
