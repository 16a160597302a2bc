//! The state that a session's handles, holds and tasks share.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::runtime::Handle;
use tokio::sync::{Notify, broadcast, watch};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::pages::{FollowError, Pages};
use super::{SessionGone, SessionState};
use crate::backoff::Backoff;
use crate::client::{AcquireReply, Client};
use crate::hold::{Cell, Grant, Reason, Stage};
use crate::page::{Page, boottime_ns};
use crate::wire::{Event, HoldState, Kind, Register, Registered, SnapshotEvent};

/// Events that a subscriber may leave unread; a slower one is told how many it missed.
pub(super) const EVENTS_MAX: usize = 256;
/// Why a session is gone in a process that was forked off the one which opened it.
const FORKED: &str = "it belongs to the process that this one was forked from";
/// Losses remembered for holds whose grant is still on its way here; the oldest is forgotten, and
/// the page then shows the loss without a reason.
const EARLY_LOSSES_MAX: usize = 64;

pub(crate) struct Shared {
    pub(crate) client: Client,
    /// The registration as it was asked for.
    pub(crate) register: Register,
    pub(crate) registered: Registered,
    /// The runtime of the session's tasks, also when a guard is dropped elsewhere.
    pub(crate) runtime: Handle,
    pages: Pages,
    registry: Mutex<Registry>,
    pub(super) events: broadcast::Sender<Event>,
    pub(super) state: watch::Sender<SessionState>,
    /// There is something new to watch.
    pub(super) watch_list: Notify,
    /// Nobody uses the session any more: its tasks end.
    pub(crate) closed: CancellationToken,
    /// The agent has ended the session, so that it need not be told.
    pub(super) agent_knows: AtomicBool,
    /// Streams opened so far.
    pub(super) streams: AtomicU64,
}

#[derive(Default)]
struct Registry {
    cells: HashMap<Uuid, Arc<Cell>>,
    early_losses: VecDeque<(Uuid, Reason)>,
}

impl Shared {
    pub(super) fn new(
        client: Client,
        register: Register,
        registered: Registered,
        page: Page,
        runtime: Handle,
    ) -> Shared {
        Shared {
            client,
            register,
            registered,
            runtime,
            pages: Pages::new(page),
            registry: Mutex::default(),
            events: broadcast::Sender::new(EVENTS_MAX),
            state: watch::Sender::new(SessionState::Connected),
            watch_list: Notify::new(),
            closed: CancellationToken::new(),
            agent_knows: AtomicBool::new(false),
            streams: AtomicU64::new(1),
        }
    }

    pub(crate) fn session(&self) -> Uuid {
        self.registered.session
    }

    /// True in a process that was forked off the one which opened the session. There nothing of it may be locked: the
    /// thread that has the lock may not be there.
    #[inline]
    pub(crate) fn is_forked(&self) -> bool {
        self.pages.are_of_parent()
    }

    /// Fails there.
    pub(crate) fn forked(&self) -> Result<(), SessionGone> {
        if self.is_forked() { Err(SessionGone { why: FORKED.into() }) } else { Ok(()) }
    }

    /// Reads the newest page. A child of the process is shown nothing of it.
    #[inline]
    pub(crate) fn with_page<T: Default>(&self, read: impl FnOnce(&Page) -> T) -> T {
        self.pages.newest().map(read).unwrap_or_default()
    }

    /// Begins work that ends at the latest when nobody uses the session any more. In a child of the process, which has
    /// copies of the connections, it stands still.
    pub(crate) fn spawn(self: &Arc<Shared>, work: impl Future<Output = ()> + Send + 'static) {
        let shared = Arc::clone(self);
        self.runtime.spawn(async move {
            let mut work = std::pin::pin!(shared.closed.run_until_cancelled(work));
            let look = |context: &mut Context<'_>| match shared.is_forked() {
                true => Poll::Pending,
                false => work.as_mut().poll(context),
            };
            std::future::poll_fn(look).await
        });
    }

    /// Maps the file that is now at `path`, if that is another than the mapped one.
    pub(super) fn follow_page(&self, path: &Path) -> Result<(), FollowError> {
        self.pages.follow(path, self.session(), self.registered.boot_id)
    }

    /// Makes sure that a new grant can be seen: a restarted agent may have made a new page, and
    /// answered before the event stream was open again.
    pub(crate) fn expect_on_page(&self, cell: &Cell) {
        if !self.with_page(|page| page.held(cell.slot(), cell.id)) {
            // A page that cannot be read shows nothing as held; the warden concludes from that.
            let _ = self.follow_page(self.registered.page.as_ref());
        }
    }

    /// Until when the page that is there now shows a granted hold as valid, ns; 0 when it does not. A restarted agent may
    /// have made a new page, or given it another slot, while this program was stopped.
    pub(crate) fn look_again(&self, cell: &Cell) -> u64 {
        if self.is_forked() {
            return 0;
        }
        // A page that cannot be read shows nothing as held.
        let _ = self.follow_page(self.registered.page.as_ref());
        let was = cell.slot();
        if let Some(slot) = self.with_page(|page| Some(page.find(was, cell.id))) {
            cell.found_in(was, slot);
        }
        self.with_page(|page| page.valid_until(cell.slot(), cell.id))
    }

    /// True if it is valid at this instant by the page that is there now.
    pub(crate) fn shows(&self, cell: &Cell) -> bool {
        self.with_page(|page| page.held(cell.slot(), cell.id))
            || self.look_again(cell) > boottime_ns()
    }

    pub(crate) fn is_connected(&self) -> bool {
        *self.state.borrow() == SessionState::Connected
    }

    pub(crate) fn state(&self) -> watch::Receiver<SessionState> {
        self.state.subscribe()
    }

    pub(crate) fn gone(&self) -> Option<SessionGone> {
        if let Err(gone) = self.forked() {
            return Some(gone);
        }
        match &*self.state.borrow() {
            SessionState::Gone(gone) => Some(gone.clone()),
            _ => None,
        }
    }

    /// Takes note of a hold that the agent has just told about.
    pub(crate) fn adopt(&self, reply: &AcquireReply) -> Arc<Cell> {
        let fresh = Cell::new(reply, self.streams.load(Ordering::Acquire));
        let mut registry = self.registry();
        let cell = Arc::clone(registry.cells.entry(fresh.id).or_insert_with(|| Arc::new(fresh)));
        if let AcquireReply::Acquired(acquired) = reply {
            cell.granted(Grant::from(acquired));
        }
        let early = registry.early_losses.iter().position(|(hold, _)| *hold == cell.id);
        if let Some((_, reason)) = early.and_then(|at| registry.early_losses.remove(at)) {
            cell.lose(reason, true);
        }
        drop(registry);
        // Looked at after the insertion, so that either this or `end` finds the other's work.
        if self.gone().is_some() {
            cell.lose(Reason::SessionGone, true);
        }
        self.watch_list.notify_one();
        cell
    }

    /// Loses a hold whose valid-until has passed, also before the warden looks. Returns whether it was not over.
    pub(crate) fn lapse(&self, cell: &Cell) -> bool {
        !cell.is_over() && cell.lapse(self.look_again(cell))
    }

    pub(crate) fn drop_cell(&self, hold: Uuid) {
        self.registry().cells.remove(&hold);
    }

    pub(crate) fn cell(&self, hold: Uuid) -> Option<Arc<Cell>> {
        self.registry().cells.get(&hold).cloned()
    }

    /// The holds of a resource that this session has; without a name those of its mastership.
    pub(crate) fn held(&self, kind: Kind, name: Option<&str>) -> Vec<Arc<Cell>> {
        let registry = self.registry();
        let cells = registry.cells.values().filter(|cell| {
            cell.kind == kind
                && name.is_none_or(|name| *name == *cell.name)
                && matches!(cell.stage(), Stage::Held(_))
        });
        cells.cloned().collect()
    }

    pub(super) fn cells(&self) -> Vec<Arc<Cell>> {
        self.registry().cells.values().cloned().collect()
    }

    /// Applies an event that came on the stream of that number.
    pub(super) fn apply(&self, event: &Event, stream: u64) {
        match event {
            Event::Snapshot(snapshot) => self.reconcile(snapshot, stream),
            Event::Queued(queued) => {
                if let Some(cell) = self.cell(queued.of.hold) {
                    cell.moved_to(queued.position);
                }
            }
            Event::Granted(granted) | Event::Safe(granted) => {
                if let Some(cell) = self.cell(granted.of.hold) {
                    cell.granted(Grant::from(granted));
                    cell.set_jeopardy(false);
                    self.watch_list.notify_one();
                }
            }
            Event::Lost(lost) => self.lose(lost.of.hold, lost.reason.into()),
            Event::Released(released) => {
                if let Some(cell) = self.cell(released.of.hold) {
                    cell.released_elsewhere();
                }
            }
            Event::Jeopardy(jeopardy) => {
                if let Some(cell) = self.cell(jeopardy.of.hold) {
                    cell.set_jeopardy(true);
                }
            }
            Event::Standing(_) | Event::Message(_) | Event::Shutdown(_) => {}
        }
    }

    /// A hold of which the agent knows nothing any more is lost; a wait is to be asked for again.
    fn reconcile(&self, snapshot: &SnapshotEvent, stream: u64) {
        for cell in self.cells() {
            let view = snapshot.holds.iter().find(|view| view.hold == cell.id);
            match view.map(|view| (view.state, view)) {
                Some((HoldState::Waiting, view)) => {
                    if let Some(position) = view.position {
                        cell.moved_to(position);
                    }
                }
                Some((state @ (HoldState::Held | HoldState::Jeopardy), view)) => {
                    cell.set_jeopardy(state == HoldState::Jeopardy);
                    if let Some(grant) = Grant::of_view(view) {
                        cell.granted(grant);
                    }
                }
                Some((HoldState::Released, _)) => cell.released_elsewhere(),
                Some((HoldState::Lost, _)) => {
                    cell.lose(Reason::Forgotten, true);
                }
                // Made after this stream was asked for: the snapshot may be older than the hold.
                None if cell.born_in >= stream => {}
                None => cell.forget(),
            }
        }
        self.watch_list.notify_one();
    }

    fn lose(&self, hold: Uuid, reason: Reason) {
        let mut registry = self.registry();
        match registry.cells.get(&hold) {
            Some(cell) => cell.told_lost(reason),
            None => {
                if registry.early_losses.len() == EARLY_LOSSES_MAX {
                    registry.early_losses.pop_front();
                }
                registry.early_losses.push_back((hold, reason));
            }
        }
    }

    /// The session is no more.
    pub(super) fn end(&self, why: impl Into<Arc<str>>) {
        let gone = SessionState::Gone(SessionGone { why: why.into() });
        self.state.send_if_modified(|state| {
            let first = !matches!(state, SessionState::Gone(_));
            if first {
                *state = gone;
            }
            first
        });
        for cell in self.cells() {
            cell.lose(Reason::SessionGone, true);
        }
    }

    /// Gives back a hold, or cancels a wait, until the agent has answered or the session is over.
    pub(crate) fn release_in_background(self: &Arc<Shared>, hold: Uuid) {
        if self.is_forked() {
            return;
        }
        let shared = Arc::clone(self);
        self.spawn(async move {
            let mut backoff = Backoff::new();
            while let Err(error) = shared.client.release(shared.session(), Some(hold)).await {
                if !error.is_transient() {
                    break;
                }
                backoff.wait().await;
            }
        });
    }

    pub(super) fn set_state(&self, to: SessionState) {
        self.state.send_if_modified(|state| {
            let changed = *state != to && !matches!(state, SessionState::Gone(_));
            if changed {
                *state = to;
            }
            changed
        });
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// True for a cell that the warden watches.
pub(super) fn is_held(cell: &Cell) -> bool {
    matches!(cell.stage(), Stage::Held(_))
}
