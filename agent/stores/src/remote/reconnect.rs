//! The task that keeps a link's connection up.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{info, warn};

use super::connect_error::{ConnectError, Peer};
use super::hints::HintSink;
use super::link::{Connected, Connector, Dialed, Dialer, Phase, Pump};
use super::name::Name;
use super::purpose::Purpose;
use super::suspicion::Suspicion;

/// First wait before connecting again; doubles up to [`BACK_OFF_MAX`].
const BACK_OFF_MIN: Duration = Duration::from_millis(50);
/// Longest wait before connecting again.
const BACK_OFF_MAX: Duration = Duration::from_secs(2);
/// The same where the server does not let the agent in.
const BACK_OFF_SHUT_OUT_MAX: Duration = Duration::from_secs(15);
/// A connection that lasted this long was a good one. After a good one the next is made at once; after
/// another that was not, too, but only once.
const STEADY: Duration = Duration::from_secs(1);
/// The same where the next one is to another server.
const MOVES_AT_ONCE: u32 = 3;
/// Between two looks at a connection that may be dead, or lead to a server that is no longer the one to
/// use.
const CHECK_EVERY: Duration = Duration::from_secs(5);
/// Between two looks where the server's name leads.
const NAME_LOOKED_UP_EVERY: Duration = Duration::from_secs(10);
/// Between two looks at a connection, at least, where the server or something before it closes connections that idle.
const CHECK_EVERY_MIN: Duration = Duration::from_millis(500);

/// The task behind a link. Takes suspicions; emits phases, and hints; ends when nobody has the link
/// any more.
pub(super) struct Reconnect<D: Connector> {
    dialer: Arc<Dialer<D>>,
    purpose: Purpose,
    sink: Option<HintSink>,
    phase: watch::Sender<Phase<D::Connection>>,
    suspicion: Arc<Suspicion>,
    generation: u64,
    /// Attempts in a row that came to nothing, or to a connection that did not last.
    failed: u32,
    /// Connections in a row that did not last, and after which the next one was made at once all the same.
    brief: u32,
    /// Between two looks: less than what an idle connection is given, once that is known.
    check_every: Duration,
}

impl<D: Connector> Reconnect<D> {
    pub(super) fn new(
        dialer: Arc<Dialer<D>>,
        purpose: Purpose,
        sink: Option<HintSink>,
        phase: watch::Sender<Phase<D::Connection>>,
        suspicion: Arc<Suspicion>,
    ) -> Reconnect<D> {
        let (generation, check_every) = (0, CHECK_EVERY);
        Reconnect {
            dialer,
            purpose,
            sink,
            phase,
            suspicion,
            generation,
            failed: 0,
            brief: 0,
            check_every,
        }
    }

    pub(super) async fn keep_up(mut self) {
        let phase = self.phase.clone();
        loop {
            tokio::select! {
                biased;
                () = phase.closed() => return,
                () = self.once() => {}
            }
        }
    }

    /// One connection from beginning to end, or one attempt.
    async fn once(&mut self) {
        let error = match self.connect().await {
            Err(error) => error,
            Ok((connected, pump)) => {
                let (since, server) = (Instant::now(), Arc::clone(&connected.server));
                let error = self.live(connected, pump).await;
                let moves = self.dialer.connector().ended(&server, &error);
                let lasted = since.elapsed();
                // A connection that ended by a late call has served at least for the time of that call.
                let is_steady = lasted >= STEADY || matches!(error, ConnectError::Late { .. });
                self.check_every = check_every(self.check_every, lasted);
                let brief_max = if moves { MOVES_AT_ONCE } else { 1 };
                if is_steady || self.brief < brief_max {
                    self.failed = 0;
                    self.brief = if is_steady { 0 } else { self.brief + 1 };
                    return self.down(Phase::Connecting, &error);
                }
                error
            }
        };
        self.down(Phase::Down(Arc::new(error.clone())), &error);
        let wait = back_off(self.failed, &error);
        self.failed = self.failed.saturating_add(1);
        tokio::select! {
            () = rest(wait) => {}
            () = self.dialer.recovered() => {}
        }
    }

    async fn connect(&mut self) -> Result<(Connected<D::Connection>, Pump), ConnectError> {
        let generation = self.generation + 1;
        let hints = self.sink.as_ref().map(|sink| sink.of(generation));
        let dialed = self.dialer.connector().connect(self.purpose, hints).await?;
        let Dialed { connection, server, pump } = dialed;
        self.generation = generation;
        Ok((Connected { connection, generation, server: Arc::new(server) }, pump))
    }

    /// Stays with a connection until it ends, and says how it did.
    async fn live(&mut self, connected: Connected<D::Connection>, mut pump: Pump) -> ConnectError {
        let Connected { connection, generation, server } = connected.clone();
        let peer = Peer { what: D::STORE, place: server.place.clone() };
        info!(
            place = server.place,
            version = server.version,
            purpose = self.purpose.name(),
            "upstream connected"
        );
        if let Some(sink) = &self.sink {
            sink.connected(generation);
        }
        self.phase.send_replace(Phase::Up(connected));
        self.dialer.changed(self.purpose, true);
        self.dialer.succeeded();
        let overflown = async {
            match &self.sink {
                Some(sink) => sink.overflown().await,
                None => std::future::pending().await,
            }
        };
        let moved = async {
            let endpoint = self.dialer.connector().endpoint();
            let Some(mut name) = Name::of(endpoint) else { return std::future::pending().await };
            loop {
                if let Some(address) = name.look().await {
                    let cause = format!("its name leads to {address} now, and no longer there");
                    return ConnectError::lost(&peer, &cause);
                }
                rest(NAME_LOOKED_UP_EVERY).await;
            }
        };
        let every = self.check_every;
        let check = async {
            loop {
                rest(every).await;
                if let Err(error) = self.dialer.connector().check(&connection, &server).await {
                    return error;
                }
            }
        };
        tokio::select! {
            error = &mut pump => error,
            error = check => error,
            error = moved => error,
            () = self.suspicion.of(generation) => self.suspicion.error(generation, &peer),
            () = overflown => ConnectError::lost(
                &peer,
                "it told of more changes at once than the agent can take in",
            ),
        }
    }

    fn down(&self, phase: Phase<D::Connection>, error: &ConnectError) {
        let text = error.with_causes();
        if self.dialer.is_news(&text) {
            warn!(purpose = self.purpose.name(), "upstream not connected: {text}");
        }
        // First the phase: whoever hears of the loss must not meet the old connection.
        self.phase.send_replace(phase);
        self.dialer.changed(self.purpose, false);
        if let Some(sink) = &self.sink {
            sink.disconnected();
        }
    }
}

/// Between two looks at the next connection. One that ended before the first look may have been closed since it was idle, as
/// Redis does with `timeout`, Postgres with `idle_session_timeout`, and many a proxy; the next is looked at in time. A server that
/// was restarted in that very moment costs some looks more.
fn check_every(before: Duration, lasted: Duration) -> Duration {
    match (STEADY..before).contains(&lasted) {
        true => (lasted / 2).max(CHECK_EVERY_MIN),
        false => before,
    }
}

/// Doubled with every failure, and half of it by chance, so that agents that lost the same server do
/// not all come back at once.
fn back_off(failed: u32, error: &ConnectError) -> Duration {
    let longest = match error {
        ConnectError::NotLetIn { .. } => BACK_OFF_SHUT_OUT_MAX,
        _ => BACK_OFF_MAX,
    };
    let most = BACK_OFF_MIN.saturating_mul(1 << failed.min(16)).min(longest);
    // Without chance there is none: they come back together.
    let chance = getrandom::u32().unwrap_or(u32::MAX);
    most / 2 + (most / 2).mul_f64(f64::from(chance) / f64::from(u32::MAX))
}

#[expect(
    clippy::disallowed_methods,
    reason = "a machine that sleeps connects later; the deadlines of holds and calls are others' to keep"
)]
async fn rest(time: Duration) {
    tokio::time::sleep(time).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_was_closed_before_a_look_has_the_next_looked_at_sooner() {
        let after = |seconds: &[u64]| {
            let lasted = seconds.iter().map(|it| Duration::from_secs(*it));
            lasted.fold(CHECK_EVERY, check_every).as_millis()
        };
        assert_eq!(after(&[]), 5000);
        assert_eq!(after(&[0, 5, 600]), 5000, "none of them was closed since it was idle");
        assert_eq!(after(&[2]), 1000);
        assert_eq!(after(&[4, 2, 1]), 500);
        assert_eq!(after(&[2, 0, 600]), 1000);
    }

    #[test]
    fn back_off_doubles_up_to_its_longest_and_varies() {
        let peer = Peer { what: "gateway", place: "h".to_owned() };
        let lost = ConnectError::lost(&peer, "");
        let shut_out = ConnectError::NotLetIn { peer, cause: String::new(), way_out: "" };
        for (failed, error, most) in [
            (0, &lost, 50),
            (1, &lost, 100),
            (3, &lost, 400),
            (6, &lost, 2000),
            (u32::MAX, &lost, 2000),
            (1, &shut_out, 100),
            (6, &shut_out, 3200),
            (u32::MAX, &shut_out, 15_000),
        ] {
            let most = Duration::from_millis(most);
            for _ in 0..100 {
                let wait = back_off(failed, error);
                assert!((most / 2..=most).contains(&wait), "{failed}: {wait:?}");
            }
        }
        let first = back_off(6, &lost);
        assert!((0..100).any(|_| back_off(6, &lost) != first));
    }
}
