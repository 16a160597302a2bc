//! One proxy: what it is to be told, and how it takes that.

use std::collections::HashMap;
use std::error::Error as _;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::{self, AbortHandle};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tenure_core::time::Boottime;
use tenure_host::clock;
use tenure_proto::prism::admin::v1::control_plane_client::ControlPlaneClient;
use tenure_proto::prism::admin::v1::{MailboxRouteRemoval, MailboxRouteUpdate};
use tokio::sync::Notify;
use tokio::time::timeout;
use tonic::transport::Channel;
use tonic::{Code, Status};
use tracing::warn;

use super::breaks::{Breaks, OF_LATE};
use super::dial::Dialer;
use super::followed::Followed;
use super::numbers::Numbers;
use crate::routes::{Lack, Outcome, PUSH_WITHIN, Place, Push, Queue, State};

/// The longest time between two looks at how far a proxy is behind.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A proxy that lacks something for longer is behind.
const BEHIND_AFTER: Duration = Duration::from_secs(1);

/// The state of a proxy, for people.
#[derive(Debug, Default)]
pub(super) struct Standing {
    /// It is not known to be away.
    pub(super) is_reached: AtomicBool,
    /// Connections whose peer has spoken HTTP/2.
    pub(super) greeted: AtomicUsize,
    /// It lacks something for longer than a second.
    pub(super) is_behind: AtomicBool,
    /// How many mailboxes it has not been told of.
    pub(super) lacks: AtomicUsize,
    /// Connections so far whose peer has spoken HTTP/2.
    pub(super) connected: AtomicU64,
    /// How many of them have ended since that was asked last, and why the last of them did.
    breaks: Mutex<(usize, String)>,
}

impl Standing {
    /// A connection whose peer has spoken HTTP/2 has ended.
    pub(super) fn broke(&self, cause: String) {
        let mut breaks = self.breaks.lock().unwrap_or_else(PoisonError::into_inner);
        *breaks = (breaks.0.saturating_add(1), cause);
    }

    /// The breaks since the last call, and the cause of the last break.
    fn take_breaks(&self) -> (usize, String) {
        let mut breaks = self.breaks.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *breaks)
    }

    /// How often it was connected to again.
    pub(super) fn reconnects(&self) -> u64 {
        self.connected.load(Relaxed).saturating_sub(1)
    }

    /// It speaks HTTP/2, and has taken the last thing that it was told. To accept a connection is not enough: callers
    /// would learn which ports are open.
    pub(super) fn is_connected(&self) -> bool {
        self.is_reached.load(Relaxed) && self.greeted.load(Relaxed) > 0
    }
}

/// The task that tells one proxy. Takes the news of a tenant's routes; ends when it is dropped.
pub(super) struct Proxy {
    pub(super) proxy_id: Arc<str>,
    pub(super) followed: Arc<Followed>,
    pub(super) dialer: Dialer,
    pub(super) standing: Arc<Standing>,
    /// It has registered again, and may know nothing.
    pub(super) is_new: Arc<Notify>,
    pub(super) numbers: Numbers,
}

impl Proxy {
    pub(super) async fn run(self) {
        let lost = Arc::new(Notify::new());
        let Some(mut client) = self.client(&lost) else { return };
        let mut breaks = Breaks::default();
        let mut news = self.followed.news();
        let (mut pushes, mut under_way) = (FuturesUnordered::new(), HashMap::new());
        // Readings from now on wake it up again.
        let (mut queue, mut place) = first(&self.followed);
        loop {
            let now = clock::now();
            while let Some(push) = queue.next(now) {
                let (told, breaks_off) = future::abortable(tell(client.clone(), push.clone()));
                under_way.insert(push.attempt, breaks_off);
                pushes.push(told);
            }
            for attempt in queue.take_abandoned() {
                under_way.remove(&attempt).inspect(AbortHandle::abort);
            }
            self.show(&queue, now);
            let wait = queue.poll_timeout().map_or(LOOK_EVERY, |at| at.since(now).min(LOOK_EVERY));
            tokio::select! {
                told = news.changed() => match told {
                    Ok(()) => place = catch_up(&self.followed, &mut queue, place),
                    Err(_) => return,
                },
                Some(told) = pushes.next() => {
                    let Ok((push, outcome)) = told else { continue };
                    under_way.remove(&push.attempt);
                    let roll = getrandom::u32().unwrap_or_default();
                    let roll = u16::try_from(roll >> 16).unwrap_or_default();
                    let lag = queue.done(clock::now(), &push, outcome, roll);
                    self.numbers.pushed(outcome, lag);
                    if queue.has_fallen_silent() {
                        let Some(another) = self.client(&lost) else { return };
                        client = another;
                    }
                }
                () = lost.notified() => {
                    self.tell_breaks(clock::now(), &mut breaks);
                    queue.lost_connection(clock::now());
                }
                () = self.is_new.notified() => queue.lost_connection(clock::now()),
                _ = timeout(wait, std::future::pending::<()>()) => {}
            }
        }
    }

    /// A client with a connection of its own.
    fn client(&self, lost: &Arc<Notify>) -> Option<ControlPlaneClient<Channel>> {
        let channel = self.dialer.clone().channel(Arc::clone(lost), Arc::clone(&self.standing));
        channel.map(ControlPlaneClient::new)
    }

    /// Says that the connection breaks often: each time the proxy is told of all routes again.
    fn tell_breaks(&self, now: Boottime, breaks: &mut Breaks) {
        let (count, cause) = self.standing.take_breaks();
        if let Some(count) = breaks.count(now, count) {
            warn!(
                tenant = %self.followed.tenant, proxy_id = %self.proxy_id, address = %self.dialer.address, %cause,
                "the connection to a proxy broke {count} times in the last {} min: each time it is told of all \
                 routes again; see whether the proxy ends connections, or something between the two does",
                OF_LATE.as_secs() / 60
            );
        }
    }

    fn show(&self, queue: &Queue, now: Boottime) {
        let is_behind = queue.behind_since().is_some_and(|since| now.since(since) > BEHIND_AFTER);
        self.standing.is_reached.store(queue.is_reached(), Relaxed);
        self.standing.is_behind.store(is_behind, Relaxed);
        self.standing.lacks.store(queue.behind(), Relaxed);
    }
}

/// What a proxy is to be told first. An earlier task, or the run before, may have told it of any mailbox that is known.
fn first(followed: &Followed) -> (Queue, Place) {
    let mut queue = Queue::default();
    queue.may_know(&followed.before);
    queue.may_know(&followed.table().mailboxes());
    let place = catch_up(followed, &mut queue, Place::default());
    (queue, place)
}

/// Takes what changed since `place`.
fn catch_up(followed: &Followed, queue: &mut Queue, place: Place) -> Place {
    let now = clock::now();
    let table = followed.table();
    match table.after(place) {
        Lack::Changes(changes) => changes.into_iter().for_each(|it| queue.change(now, it)),
        Lack::Snapshot(routes) => queue.replace(now, table.version(), routes),
    }
    table.place()
}

/// Tells a proxy of a mailbox.
async fn tell(mut client: ControlPlaneClient<Channel>, push: Push) -> (Push, Outcome) {
    let answer = async {
        match &push.state {
            State::Routed(route) => {
                let update = MailboxRouteUpdate {
                    mailbox_id: route.name.clone(),
                    proxy_id: route.proxy_id.clone(),
                    runner_id: route.holder.clone(),
                    address: route.address.clone(),
                    partition: i32::from(route.partition),
                    status: route.status.clone(),
                    fencing_token: route.token,
                    version: route.version,
                };
                client.update_mailbox_route(update).await.map(|ack| ack.into_inner().success)
            }
            State::Removed(version) => {
                let removal =
                    MailboxRouteRemoval { mailbox_id: push.mailbox.to_string(), version: *version };
                client.remove_mailbox_route(removal).await.map(|ack| ack.into_inner().success)
            }
        }
    };
    let answer = timeout(PUSH_WITHIN, answer).await;
    let is_removal = matches!(push.state, State::Removed(_));
    let outcome = answer.map_or(Outcome::Late, |answer| outcome(is_removal, &answer));
    (push, outcome)
}

/// What an answer means. A status that the proxy gave itself has no source: it is there, and refuses this mailbox.
fn outcome(is_removal: bool, answer: &Result<bool, Status>) -> Outcome {
    match answer {
        Ok(true) => Outcome::Delivered,
        Ok(false) => Outcome::Refused,
        Err(status) if status.source().is_some() || status.code() == Code::Unavailable => {
            Outcome::Failed
        }
        Err(status) if is_removal && status.code() == Code::NotFound => Outcome::Delivered,
        Err(_) => Outcome::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routes::tests::route;
    use crate::routes::{Gone, Reading};

    #[test]
    fn a_proxy_that_comes_again_is_told_what_was_removed_since() {
        let followed = Followed::new("t".into(), Vec::new());
        let version = 1;
        let routes = vec![route("gone", version)];
        followed.table().take(Reading { version, until: version, routes, gone: Vec::new() });
        let version = 2;
        let gone = vec![Gone { mailbox: "gone".into(), version }];
        followed.table().take(Reading { version, until: version, routes: Vec::new(), gone });
        let (mut queue, place) = first(&followed);
        let push = queue.next(clock::now()).unwrap();
        assert_eq!((&*push.mailbox, push.state), ("gone", State::Removed(version)));
        assert_eq!(place, followed.table().place());
    }

    #[test]
    fn what_a_proxy_answers_itself_is_no_trouble() {
        for (status, of_route, of_removal) in [
            (Status::not_found(""), Outcome::Refused, Outcome::Delivered),
            (Status::invalid_argument(""), Outcome::Refused, Outcome::Refused),
            (Status::unknown("an exception"), Outcome::Refused, Outcome::Refused),
            (Status::unavailable(""), Outcome::Failed, Outcome::Failed),
            (Status::from_error("a connection".into()), Outcome::Failed, Outcome::Failed),
        ] {
            let answer = Err(status);
            assert_eq!(outcome(false, &answer), of_route, "{answer:?}");
            assert_eq!(outcome(true, &answer), of_removal, "{answer:?}");
        }
        assert_eq!(outcome(false, &Ok(false)), Outcome::Refused);
    }
}
