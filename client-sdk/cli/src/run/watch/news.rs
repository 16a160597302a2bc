//! News of the hold, from a stream that is opened again when it breaks.

use std::future::Future;
use std::pin::Pin;

use tenure::client::{CallError, EventStream, Received};
use tenure::wire::{Event, HoldState};

use super::Watch;
use crate::run::decide::Reaction;
use crate::run::tether::{Tether, attach_again};

pub(super) type Attaching = Pin<Box<dyn Future<Output = Result<Tether, CallError>>>>;

impl Watch<'_> {
    pub(super) fn take_event(&mut self, event: &Event) {
        let hold = self.hold;
        match event {
            Event::Jeopardy(event) if event.of.hold == hold => self.jeopardy = true,
            Event::Granted(event) | Event::Safe(event) if event.of.hold == hold => {
                self.jeopardy = false;
                self.validity.told(event.valid_until_boottime_ns);
            }
            Event::Lost(event) if event.of.hold == hold => self.lose(event.reason.as_str()),
            Event::Released(event) if event.of.hold == hold => self.lose("released"),
            Event::Snapshot(snapshot) if self.snapshot_counts => {
                match snapshot.holds.iter().find(|view| view.hold == hold) {
                    Some(view) => match view.state {
                        HoldState::Held | HoldState::Jeopardy => {
                            self.jeopardy = view.state == HoldState::Jeopardy;
                            self.validity.told(view.valid_until_boottime_ns);
                        }
                        _ => self.lose("ended"),
                    },
                    None => self.lose("ended"),
                }
            }
            _ => {}
        }
    }

    pub(super) fn lose(&mut self, reason: &'static str) {
        // The first reason is the cause of the others.
        if self.lost.is_none() {
            self.lost = Some(reason);
            if self.orders.reaction == Reaction::Ignore {
                self.warn();
            }
        }
    }

    /// The stream broke: the agent restarts, or is gone.
    pub(super) fn attach(&mut self) {
        self.stream = None;
        if self.attaching.is_none() {
            let again = attach_again(self.client.clone(), self.registered.clone());
            self.attaching = Some(Box::pin(again));
        }
    }

    pub(super) fn take_tether(&mut self, result: Result<Tether, CallError>) {
        self.attaching = None;
        match result {
            Ok(tether) => {
                self.validity.attached_again(&tether.registered);
                self.registered = tether.registered;
                self.stream = Some(tether.stream);
                self.snapshot_counts = true;
            }
            Err(error) => self.lose(if error.is_session_gone() { "ended" } else { "detached" }),
        }
    }
}

pub(super) async fn next_event(
    stream: &mut Option<EventStream>,
) -> Option<Result<Received, CallError>> {
    match stream {
        Some(stream) => stream.next().await,
        None => std::future::pending().await,
    }
}

pub(super) async fn attached(attaching: &mut Option<Attaching>) -> Result<Tether, CallError> {
    match attaching {
        Some(attaching) => attaching.await,
        None => std::future::pending().await,
    }
}
