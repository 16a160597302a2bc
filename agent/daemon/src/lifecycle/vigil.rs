//! A regular look whether clients still find the agent, and the agent its files.

use std::time::Duration;

use tenure_host::directory::Directory;
use tenure_host::socket::{Look, Place};
use tenure_service::prepare::Locks;
use tenure_stores::journal;
use tokio::net::UnixListener;
use tokio::sync::mpsc;
use tokio::time::{Interval, MissedTickBehavior, interval};
use tracing::{error, warn};

use crate::heart::{Control, Heart};

/// How often it is looked; a look is a handful of system calls.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Keeps the socket's file where clients look for it, and the runtime directory, which ends with the last login of a user whom
/// systemd-logind knows, for one. What is wrong is logged once, until it is right again.
pub struct Vigil<'a> {
    runtime_dir: &'a Directory,
    locks: &'a mut Locks,
    heart: &'a Heart,
    ticks: Interval,
    /// To the API. There is room for one: the next one is not made before this one has gone.
    renewed: mpsc::Sender<UnixListener>,
    is_told: bool,
    is_told_of_directory: bool,
}

impl<'a> Vigil<'a> {
    /// New listeners go to `renewed`. Within a runtime.
    pub fn new(
        runtime_dir: &'a Directory,
        locks: &'a mut Locks,
        heart: &'a Heart,
        renewed: mpsc::Sender<UnixListener>,
    ) -> Vigil<'a> {
        let mut ticks = interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (is_told, is_told_of_directory) = (false, false);
        Vigil { runtime_dir, locks, heart, ticks, renewed, is_told, is_told_of_directory }
    }

    /// Looks again and again. Can be dropped at any time.
    pub async fn keep(&mut self, place: &mut Place) -> ! {
        loop {
            self.ticks.tick().await;
            // First, since the socket mostly lies in it.
            self.look_at_directory().await;
            self.look(place);
        }
    }

    async fn look_at_directory(&mut self) {
        let path = self.runtime_dir.path();
        let has = |name| path.join(name).exists();
        let is_in_place = self.runtime_dir.is_in_place();
        if is_in_place && has("pages") && has(journal::FILE) {
            self.is_told_of_directory = false;
            return;
        }
        let is_first = !std::mem::replace(&mut self.is_told_of_directory, true);
        if !is_in_place && let Err(error) = self.locks.renew(self.runtime_dir) {
            if is_first {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                error!(
                    %error,
                    cause,
                    "the runtime directory {} was removed, and cannot be made again: sessions get no page, and a restart loses every hold; \
                     make the directory, or have those that hold something release it and restart the agent",
                    path.display()
                );
            }
            return;
        }
        if is_first {
            warn!(
                "files in the runtime directory {} were removed: they are made again",
                path.display()
            );
        }
        self.heart.control(Control::Renew).await;
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
