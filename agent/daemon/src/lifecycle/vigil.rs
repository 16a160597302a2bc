//! A regular look whether clients still find the agent, and the agent its files.

use std::time::Duration;

use tenure_host::directory::Directory;
use tenure_host::page::PAGES;
use tenure_host::socket::{Look, Place};
use tenure_service::prepare::Locks;
use tokio::net::UnixListener;
use tokio::sync::mpsc;
use tokio::time::{Interval, MissedTickBehavior, interval};
use tracing::{error, warn};

use crate::heart::Heart;

/// Time between two looks; each is a handful of system calls.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Keeps the socket's file where clients look for it, and the runtime directory, which systemd-logind removes with the last login of its
/// user, or a tidy program empties. The lock is looked at for all files of the directory: whoever empties it removes the lock, too. What is
/// wrong is logged once, until it is right again.
pub struct Vigil<'a> {
    runtime_dir: &'a Directory,
    state_dir: &'a Directory,
    locks: &'a mut Locks,
    heart: &'a Heart,
    ticks: Interval,
    /// Device and inode of the folder of pages, as of the last look; `None` while the heart has to make the folder again.
    pages: Option<(u64, u64)>,
    /// To the API. There is room for one: the next one is not made before this one has gone.
    renewed: mpsc::Sender<UnixListener>,
    is_told: bool,
    is_told_of_directory: bool,
    /// The runtime directory is another one, and the heart has not heard of it.
    has_moved: bool,
}

impl<'a> Vigil<'a> {
    /// New listeners go to `renewed`. Within a runtime.
    pub fn new(
        [runtime_dir, state_dir]: [&'a Directory; 2],
        locks: &'a mut Locks,
        heart: &'a Heart,
        renewed: mpsc::Sender<UnixListener>,
    ) -> Vigil<'a> {
        let mut ticks = interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Vigil {
            runtime_dir,
            state_dir,
            locks,
            heart,
            ticks,
            pages: runtime_dir.identity_of_child(PAGES),
            renewed,
            is_told: false,
            is_told_of_directory: false,
            has_moved: false,
        }
    }

    /// Looks again and again. Can be dropped at any time.
    pub async fn keep(&mut self, place: &mut Place) -> ! {
        loop {
            self.ticks.tick().await;
            // First, since the socket mostly lies in it.
            self.look_at_directory();
            self.look(place);
        }
    }

    /// Looks no more, but once for the next agent, which is to find the journal.
    pub fn end(mut self, has_next: bool) {
        if has_next {
            self.look_at_directory();
        }
    }

    /// Makes the runtime directory again if somebody removed it.
    fn look_at_directory(&mut self) {
        let path = self.runtime_dir.path();
        let is_there = self.runtime_dir.is_in_place();
        let is_in_place = is_there && self.locks.is_in_place(self.runtime_dir);
        let pages = self.runtime_dir.identity_of_child(PAGES);
        let has_pages = pages.is_some() && self.pages.is_none_or(|seen| Some(seen) == pages);
        if is_in_place && !self.has_moved && has_pages {
            self.pages = pages;
            self.is_told_of_directory = false;
            return;
        }
        let is_first = !std::mem::replace(&mut self.is_told_of_directory, true);
        let renewed = match is_in_place {
            true => Ok(()),
            false => self.locks.renew(self.runtime_dir, self.state_dir),
        };
        let is_whole = renewed.is_ok();
        if let Err(error) = renewed {
            if is_first {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                let (what, outcome) = if is_there {
                    (
                        "the lock in the runtime directory",
                        "another agent could start in this directory; let this user write to it, and see that its disk has room",
                    )
                } else {
                    (
                        "the runtime directory",
                        "sessions get no page, and a restart loses every hold; make the directory for this user, and the agent goes \
                         on in it",
                    )
                };
                let path = path.display();
                error!(%error, cause, "{what} {path} was removed, and cannot be made again yet: {outcome}");
            }
            // Pages can be made again all the same.
            if has_pages || !self.runtime_dir.is_in_place() {
                return;
            }
        } else {
            self.has_moved |= !is_in_place;
        }
        if self.heart.renew(self.has_moved) {
            self.has_moved = false;
            self.pages = None;
        }
        if is_whole && (is_first || !is_in_place) {
            let what = match is_there {
                true => "files in the runtime directory",
                false => "the runtime directory",
            };
            warn!("{what} {} had been removed: the agent makes that again", path.display());
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
