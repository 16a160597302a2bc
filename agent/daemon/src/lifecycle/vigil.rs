//! A regular look whether clients still find the agent.

use std::time::Duration;

use tenure_host::socket::{Look, Place};
use tokio::net::UnixListener;
use tokio::sync::mpsc;
use tokio::time::{Interval, MissedTickBehavior, interval};
use tracing::{error, warn};

/// How often it is looked; a look is one system call.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Keeps the socket's file where clients look for it. What is wrong is logged once, until it is
/// right again.
pub struct Vigil {
    ticks: Interval,
    /// To the API. There is room for one: the next one is not made before this one has gone.
    renewed: mpsc::Sender<UnixListener>,
    is_told: bool,
}

impl Vigil {
    /// New listeners go to `renewed`. Within a runtime.
    pub fn new(renewed: mpsc::Sender<UnixListener>) -> Vigil {
        let mut ticks = interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Vigil { ticks, renewed, is_told: false }
    }

    /// Looks again and again. Can be dropped at any time.
    pub async fn keep(&mut self, place: &mut Place) -> ! {
        loop {
            self.ticks.tick().await;
            self.look(place);
        }
    }

    fn look(&mut self, place: &mut Place) {
        let Ok(room) = self.renewed.try_reserve() else { return };
        let looked = place.look();
        let path = place.path().display();
        let is_first = !std::mem::replace(&mut self.is_told, !matches!(looked, Ok(Look::Same)));
        match looked {
            Ok(Look::Same) => {}
            Ok(Look::Renewed(listener)) => match UnixListener::from_std(listener) {
                Ok(listener) => {
                    warn!("the socket {path} had vanished: it is made again");
                    room.send(listener);
                }
                Err(error) => error!(%error, "the socket {path} cannot be served"),
            },
            Ok(Look::Gone) if is_first => {
                warn!(
                    "the socket {path} has vanished: restart the unit that made it (tenured.socket)"
                );
            }
            Ok(Look::Replaced) if is_first => {
                warn!("something else is at {path} now: clients do not find the agent; remove it");
            }
            Err(error) if is_first => {
                let cause = std::error::Error::source(&error);
                error!(%error, cause, "the socket {path} has vanished, and cannot be made again");
            }
            Ok(Look::Gone | Look::Replaced) | Err(_) => {}
        }
    }
}
