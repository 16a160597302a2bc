//! The task that keeps a link's connection up.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tracing::{info, warn};

use super::address::{Address, Spot};
use super::link::{Connected, Phase, Purpose, Suspicion};
use super::sign_in::{self, Motor};
use super::stream;
use super::trouble::{Trouble, Whom};

/// First wait before connecting again; doubles up to [`BACK_OFF_MAX`].
const BACK_OFF_MIN: Duration = Duration::from_millis(50);
/// Longest wait before connecting again.
const BACK_OFF_MAX: Duration = Duration::from_secs(2);
/// A connection that lasted this long was a good one. After a good one the next is made at once; after
/// another that was not, too, but only once.
const STEADY: Duration = Duration::from_secs(1);
/// Between two looks at a connection that may be dead, or lead to a server that is no master any more.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The task behind a link. Takes suspicions; emits phases, and pushes; ends when nobody has the link
/// any more.
pub(super) struct Upkeep {
    address: Arc<Address>,
    purpose: Purpose,
    phase: watch::Sender<Phase>,
    suspicion: Arc<Suspicion>,
    generation: u64,
    /// Attempts in a row that came to nothing, or to a connection that did not last.
    failed: u32,
    /// The last connection did not last, and the next one was made at once all the same.
    flighty: bool,
}

impl Upkeep {
    pub(super) fn new(
        address: Arc<Address>,
        purpose: Purpose,
        phase: watch::Sender<Phase>,
        suspicion: Arc<Suspicion>,
    ) -> Upkeep {
        Upkeep { address, purpose, phase, suspicion, generation: 0, failed: 0, flighty: false }
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
        let trouble = match self.connect().await {
            Err(trouble) => trouble,
            Ok((connected, motor)) => {
                let since = Instant::now();
                let trouble = self.live(connected, motor).await;
                let steady = since.elapsed() >= STEADY;
                if steady || !self.flighty {
                    (self.failed, self.flighty) = (0, !steady);
                    return self.down(Phase::Connecting, &trouble);
                }
                trouble
            }
        };
        self.down(Phase::Down(Arc::new(trouble.clone())), &trouble);
        let wait = back_off(self.failed);
        self.failed = self.failed.saturating_add(1);
        tokio::select! {
            () = rest(wait) => {}
            () = self.address.recovered() => {}
        }
    }

    /// A connection to a server that was found fit.
    async fn connect(&mut self) -> Result<(Connected, Motor), Trouble> {
        let spot = self.address.locate().await?;
        let place = spot.to_string();
        let whom = Whom::Redis(place.clone());
        let patience = self.address.connect_timeout();
        let signed_in = timeout(patience, self.sign_in(&whom, &spot, &place)).await;
        let signed_in =
            signed_in.unwrap_or_else(|_| Err(Trouble::silent(&whom, "connecting", patience)));
        if signed_in.is_err() {
            self.address.misled();
        }
        signed_in
    }

    async fn sign_in(
        &mut self,
        whom: &Whom,
        spot: &Spot,
        place: &str,
    ) -> Result<(Connected, Motor), Trouble> {
        let (address, generation) = (&*self.address, self.generation + 1);
        let sink = self.purpose.sink().cloned();
        let heard = move |push| {
            if let Some(sink) = &sink {
                sink.push(generation, push);
            }
            Ok(())
        };
        let patience = address.connect_timeout();
        let stream = stream::connect(whom, spot, address.tls(), patience).await?;
        let (mut connection, mut motor) =
            sign_in::sign_in(address, whom, spot, stream, heard).await?;
        let purpose = self.purpose.name();
        let server = {
            let mut check = pin!(async {
                sign_in::introduce(address, &mut connection, whom, purpose).await?;
                sign_in::look(address, &mut connection, whom, place).await
            });
            tokio::select! {
                server = &mut check => server?,
                () = &mut motor => {
                    // It may have said why before.
                    drop(motor);
                    let said = check.await.err();
                    return Err(said.unwrap_or_else(|| Trouble::lost(whom, "it hung up")));
                }
            }
        };
        self.generation = generation;
        Ok((Connected { connection, generation, server: Arc::new(server) }, motor))
    }

    /// Stays with a connection until it ends, and says how it did.
    async fn live(&mut self, connected: Connected, mut motor: Motor) -> Trouble {
        let Connected { mut connection, generation, server } = connected.clone();
        let whom = Whom::Redis(server.place.clone());
        info!(
            place = server.place,
            version = server.version,
            purpose = self.purpose.name(),
            "upstream connected"
        );
        if let Some(sink) = self.purpose.sink() {
            sink.connected(generation);
        }
        self.phase.send_replace(Phase::Up(connected));
        self.address.succeeded();
        let overflown = async {
            match self.purpose.sink() {
                Some(sink) => sink.overflown().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = &mut motor => Trouble::lost(&whom, "it hung up"),
            trouble = self.watch(&mut connection, &whom, &server.place) => trouble,
            () = self.suspicion.of(generation) => {
                Trouble::lost(&whom, "a call failed or was not answered in time")
            }
            () = overflown => {
                Trouble::lost(&whom, "it told of more changes at once than the agent can take in")
            }
        }
    }

    /// Looks again and again whether the server is there, and is still the master.
    async fn watch(
        &self,
        connection: &mut MultiplexedConnection,
        whom: &Whom,
        place: &str,
    ) -> Trouble {
        let patience = self.address.timeout();
        loop {
            rest(LOOK_EVERY).await;
            let look = sign_in::look(&self.address, connection, whom, place);
            match timeout(patience, look).await {
                Ok(Ok(_)) => {}
                Ok(Err(trouble)) => return trouble,
                Err(_) => return Trouble::silent(whom, "looking whether it is there", patience),
            }
            // An old master that was cut off from the others believes in itself. That no Sentinel
            // answers says nothing against it.
            if self.address.moves()
                && let Ok(spot) = self.address.locate().await
                && spot.to_string() != place
            {
                return Trouble::lost(whom, &format!("Sentinel names {spot} as the master now"));
            }
        }
    }

    fn down(&self, phase: Phase, trouble: &Trouble) {
        let told = trouble.told();
        if self.address.is_news(&told) {
            warn!(purpose = self.purpose.name(), "upstream not connected: {told}");
        }
        // First the phase: whoever hears of the loss must not meet the old connection.
        self.phase.send_replace(phase);
        if let Some(sink) = self.purpose.sink() {
            sink.disconnected();
        }
    }
}

/// Doubled with every failure, and half of it by chance, so that agents that lost the same server do
/// not all come back at once.
fn back_off(failed: u32) -> Duration {
    let most = BACK_OFF_MIN.saturating_mul(1 << failed.min(16)).min(BACK_OFF_MAX);
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
    fn back_off_doubles_up_to_its_longest_and_varies() {
        for (failed, most) in [(0, 50), (1, 100), (3, 400), (6, 2000), (u32::MAX, 2000)] {
            let most = Duration::from_millis(most);
            for _ in 0..100 {
                let wait = back_off(failed);
                assert!((most / 2..=most).contains(&wait), "{failed}: {wait:?}");
            }
        }
        let first = back_off(6);
        assert!((0..100).any(|_| back_off(6) != first));
    }
}
