//! The hold, as far as it is known here.

use std::time::Duration;

use tenure::page::boottime_ns;
use tenure::wire::{Acquired, Event, HoldState, Registered};
use uuid::Uuid;

use crate::run::validity::{Reading, Validity};
use crate::show::shown;

/// How long the page's word is ahead of the event that says why: the agent writes the page first.
/// Nobody else is granted the resource meanwhile, since the session is a guarded one.
const NEWS_MAX_NS: u64 = 50_000_000;

/// A granted hold.
pub(super) struct Hold {
    id: Uuid,
    pub(super) ttl: Duration,
    /// The longest that it was seen to be valid for, the ttl at most: a grant lasts for seconds only until a first
    /// beat confirms it.
    pub(super) lasts: Duration,
    validity: Validity,
    /// The last one that was not 0.
    pub(super) valid_until: u64,
    pub(super) jeopardy: bool,
    /// The instant and the cause of the jeopardy, as the agent told.
    pub(super) doubt: Option<(u64, String)>,
    lost: Option<&'static str>,
    /// The reason in more words, such as `revoked by root on hostb: upgrade`.
    told: Option<String>,
    /// When the page was first seen to have no valid-until.
    blank_since: Option<u64>,
}

impl Hold {
    /// A fresh grant.
    pub(super) fn new(acquired: &Acquired, validity: Validity) -> Hold {
        let ttl = Duration::from_millis(acquired.ttl_ms);
        Hold {
            id: acquired.hold,
            ttl,
            lasts: ttl.min(Duration::from_millis(acquired.valid_ms)),
            validity,
            valid_until: acquired.valid_until_boottime_ns,
            jeopardy: acquired.state == HoldState::Jeopardy,
            lost: None,
            doubt: None,
            told: None,
            blank_since: None,
        }
    }

    /// The reason for which it was lost, if it was.
    pub(super) fn lost(&self) -> Option<&'static str> {
        self.lost
    }

    /// The reason as people read it, such as `revoked by root on hostb: upgrade`.
    pub(super) fn lost_words(&self) -> Option<&str> {
        self.told.as_deref().or(self.lost)
    }

    /// Notes that it is lost; true if that is new. The first reason is the cause of the others.
    pub(super) fn lose(&mut self, reason: &'static str) -> bool {
        let is_new = self.lost.is_none();
        self.lost.get_or_insert(reason);
        is_new
    }

    /// Takes what an event says. Returns the reason if it says that the hold is gone.
    pub(super) fn take_event(
        &mut self,
        event: &Event,
        snapshot_counts: bool,
    ) -> Option<&'static str> {
        match event {
            Event::Jeopardy(event) if event.of.hold == self.id => {
                self.jeopardy = true;
                self.doubt = Some((boottime_ns(), shown(&event.cause)));
            }
            Event::Granted(event) | Event::Safe(event) if event.of.hold == self.id => {
                (self.jeopardy, self.doubt) = (false, None);
                self.validity.told(event.valid_until_boottime_ns);
            }
            Event::Lost(event) if event.of.hold == self.id => {
                let is_more = event.by.is_some() || event.detail.is_some();
                self.told = is_more.then(|| shown(&event.words()));
                return Some(event.reason.as_str());
            }
            Event::Released(event) if event.of.hold == self.id => return Some("released"),
            Event::Snapshot(snapshot) if snapshot_counts => {
                let view = snapshot.holds.iter().find(|view| view.hold == self.id);
                let is_held = |state| matches!(state, HoldState::Held | HoldState::Jeopardy);
                let Some(view) = view.filter(|view| is_held(view.state)) else {
                    return Some("ended");
                };
                self.jeopardy = view.state == HoldState::Jeopardy;
                self.validity.told(view.valid_until_boottime_ns);
            }
            _ => {}
        }
        None
    }

    /// Takes over how long it is valid by now. Returns when a page without valid-until is to be
    /// believed even though no event says why.
    pub(super) fn look(&mut self) -> Option<u64> {
        if self.lost.is_some() {
            // The valid-until that was known before counts.
            return None;
        }
        match self.validity.read() {
            Reading::Until(instant) => {
                self.valid_until = instant;
                let left = Duration::from_nanos(instant.saturating_sub(boottime_ns()));
                self.lasts = self.lasts.max(left.min(self.ttl));
                self.blank_since = None;
                None
            }
            Reading::Ended => Some(*self.blank_since.get_or_insert_with(boottime_ns) + NEWS_MAX_NS),
        }
    }

    /// Returns when its validity is worth another look; see [`Validity::changed`].
    pub(super) async fn changed(&mut self) {
        self.validity.changed().await;
    }

    /// After the agent was restarted.
    pub(super) fn attached_again(&mut self, registered: &Registered) {
        self.validity.attached_again(registered);
    }
}
