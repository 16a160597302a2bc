"""One registration with the agent: its holds, its event stream, and the watch over valid-untils."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

from . import _http, _sse, events, page
from ._actors import Key, Turn
from ._calls import (
    CALL_DEADLINE,
    RESTART_PATIENCE,
    TRY_DEADLINE,
    Backoff,
    Calls,
    EventStream,
    HoldLost,
    InVain,
    NoAnswer,
    RequestIds,
    Stopping,
    Unsent,
    waiting,
)
from ._cell import Cell, Strays, notify
from ._debts import release_later, release_now, settle
from ._effects import Io, Pause, Steps
from ._feed import Feed
from ._watch import Watch
from .errors import (
    AgentUnavailable,
    Busy,
    ClocksDiffer,
    Lost,
    PageError,
    Reason,
    Refused,
    SessionGone,
    TenureError,
    UpstreamUnavailable,
    WaitTimeout,
)

Json = dict[str, Any]

_ADVICE_MAX = 5.0
_HOLD_FIELD = '"hold":"'
_UUID_LENGTH = 36


class Core:
    def __init__(self, io: Io, calls: Calls, registered: Json, first_page: page.Page) -> None:
        self.io = io
        self.calls = calls
        self.registered = registered
        self.id: str = registered["session"]
        self.gone: str | None = None
        self.stream: EventStream | None = None
        self.streams = 1
        """Streams asked for so far."""
        self.connected = True
        self._away_since = page.boottime_ns()
        """When the last connection to the agent ended."""
        self.followed = True
        """False once nobody reads the events: the agent ends the session."""
        self.owes_end = False
        self._page = first_page
        # The garbage collector may end it while this thread has the lock.
        self.lock = threading.RLock()
        self.cells: dict[str, Cell] = {}
        self._strays = Strays()
        self._feeds: list[Feed] = []
        self._watch = Watch(self)
        self._request_ids = RequestIds()
        self._behind: dict[object, Key] = {}
        """What is asked for behind holds of this session, by the attempts that wait."""
        self._agent_is_older = False
        """It knows no waiting behind holds of the session itself."""

    # Beginning and end.

    @staticmethod
    def open(io: Io, calls: Calls, register: Json, wait: float | None) -> Steps[Core]:
        """Registers, maps the page and opens the event stream, in this order: the tether is there
        before anything is asked for. `wait` is how long the caller wants to wait for its grant."""
        deadline = min(CALL_DEADLINE, _deadline(wait) or CALL_DEADLINE)
        registered = yield from calls.post("/v1/register", register, repeat=False, deadline=deadline)
        try:
            first_page = page.Page(registered["page"], registered["session"], registered["boot_id"])
            stream = yield from calls.open_events(registered["session"], None)
        except TenureError:
            try:
                yield from calls.post("/v1/release", {"session": registered["session"]}, deadline=TRY_DEADLINE)
            except TenureError:
                # The first error is the one to report; the tether frees what this leaves behind.
                pass
            raise
        core = Core(io, calls, registered, first_page)
        core.stream = stream
        io.spawn(core._follow(), "events", core._disconnect)
        io.spawn(core._watch.run(), "watch")
        return core

    def why_expired(self) -> str:
        """What is known here of a hold that was not renewed."""
        if self.connected:
            return f"the agent at {self.calls.path} has not renewed it in time"
        seconds = (page.boottime_ns() - self._away_since) / 1e9
        return f"no agent has answered at {self.calls.path} for {seconds:.1f} s"

    def close(self) -> Steps[None]:
        """Ends the session, and all its holds with it."""
        told = self.gone is not None
        self._end("it was closed")
        try:
            if not told:
                yield from self.tell_end()
        finally:
            self._stop()

    def end(self, why: str) -> None:
        """Ends it where no call can be made. The agent ends it a while after its event stream, or when told."""
        self.owes_end = self.owes_end or self.gone is None
        self._end(why)
        self._disconnect()

    def tell_end(self) -> Steps[None]:
        self.owes_end = False
        try:
            yield from self.calls.post("/v1/release", {"session": self.id}, deadline=TRY_DEADLINE)
        except TenureError:
            # The tether ends what the agent could not be told.
            pass

    def forked(self) -> None:
        """Runs in a child: nothing here is the child's. The parent's connections stay open."""
        self.lock = threading.RLock()
        self.io.forked()
        self.gone = "it belongs to the process that this one was forked from"
        self.connected = False
        if self.stream is not None:
            self.stream.close()
        self.calls.close()
        for cell in self.cells.values():
            # The parent's signals may be locked by threads that are not here.
            cell.over, cell.explained = self.io.signal(), self.io.signal()
            cell.lose(Reason.FORKED, told=True)
            cell.over.set()
        for feed in self._feeds:
            feed.closed = True

    def raise_if_gone(self) -> None:
        if self.gone is not None:
            raise SessionGone(f"the session is gone: {self.gone}; open a new one")

    def _end(self, why: str) -> None:
        with self.lock:
            self.gone = self.gone or why
            cells, self.cells = self.cells, {}
            over = [cell for cell in cells.values() if cell.lose(Reason.SESSION_GONE, told=True)]
            over += self._watch.take_ended()
            feeds, self._feeds = self._feeds, []
        for feed in feeds:
            feed.close()
        notify(over)
        self._watch.wake()

    def _stop(self) -> None:
        if self.stream is not None:
            # Whoever reads it closes it, and ends.
            self.stream.wake()
        self.calls.close()

    def _disconnect(self) -> None:
        """Closes what is open to the agent, once nobody reads its events."""
        self.followed = False
        if self.stream is not None:
            self.stream.close()
        self.calls.close()

    # Calls.

    def call(self, target: str, **fields: Any) -> Steps[Json]:
        return (yield from self.calls.post(target, {"session": self.id, **fields}))

    def get(self, target: str, query: Mapping[str, str | None]) -> Steps[Json]:
        return (yield from self.calls.get(target, query))

    def post(self, target: str, body: Json, *, repeat: bool) -> Steps[Json]:
        return (yield from self.calls.post(target, body, repeat=repeat))

    def subscribe(self) -> Feed:
        feed = Feed(self.io)
        with self.lock:
            if self.gone is None:
                self._feeds.append(feed)
            else:
                feed.closed = True
        return feed

    def unsubscribe(self, feed: Feed) -> None:
        with self.lock:
            if feed in self._feeds:
                self._feeds.remove(feed)

    def request(self, want: Json) -> Json:
        """A request that may be sent again."""
        return {"session": self.id, **want, "request": self._request_ids.next()}

    def acquire(self, want: Json, wait: float | None, turn: Turn | None = None, ask: Json | None = None) -> Steps[Cell]:
        """Waits for a grant: 0 to try once, None for ever. Restarts of the agent and times without a
        store are outlasted by who waits. A closed generator leaves nothing behind. Raises `InVain` once
        the `turn` would wait for itself. `ask` is a request that waits already."""
        began = time.monotonic()
        until = None if wait is None else began + wait
        backoff = Backoff()
        ask = dict(ask or {})
        attempt = object()
        # An attempt may have been granted without our knowing.
        uncertain = False
        try:
            while True:
                self.raise_if_gone()
                if not ask:
                    ask = self.request(want)
                    if wait != 0 and self._is_behind_own(turn):
                        ask["behind_own"] = True
                left = None if until is None else max(0.0, until - time.monotonic())
                asked_at = page.boottime_ns()
                failure: TenureError
                # Whoever gives up meanwhile may leave an answer unread.
                before, uncertain = uncertain, True
                if turn is not None and "behind_own" in ask:
                    self._behind[attempt] = turn.key
                may_be_vain = wait != 0 and turn is not None and ("behind_own" in ask or turn.held() is not None)
                is_vain = turn.is_vain if turn is not None and may_be_vain else None
                try:
                    answer = yield from self.calls.post(
                        "/v1/acquire", {**ask, **waiting(wait, left)}, deadline=_deadline(left), is_vain=is_vain
                    )
                    uncertain = False
                    return (yield from self._granted(answer, asked_at))
                except HoldLost as error:
                    # Granted, and lost before this heard of it: a new request.
                    ask, uncertain, failure = {}, False, error
                except Busy as busy:
                    uncertain = False
                    own = busy.holder.hold if busy.holder is not None else None
                    if wait == 0 or own is None or isinstance(busy, WaitTimeout):
                        raise
                    if not self._agent_is_older:
                        if "behind_own" in ask:
                            raise
                        if turn is not None and turn.is_vain():
                            raise InVain from None
                        ask["behind_own"] = True
                        continue
                    # The release of an earlier hold may still be on its way.
                    if own in self.cells:
                        raise
                    failure = busy
                except Stopping as error:
                    uncertain, failure = False, error
                except NoAnswer:
                    raise
                except AgentUnavailable as error:
                    uncertain = before or not isinstance(error, Unsent)
                    failure = error
                except UpstreamUnavailable as error:
                    uncertain, failure = False, error
                    if wait == 0:
                        raise
                except (Refused, SessionGone) as error:
                    uncertain = before
                    if "behind_own" not in ask or "behind_own" not in str(error):
                        raise
                    self._agent_is_older, ask = True, {}
                    continue
                pause = max(min(getattr(failure, "retry_after", None) or 0.0, _ADVICE_MAX), backoff.step())
                end = began + RESTART_PATIENCE if wait == 0 else until
                if end is not None and time.monotonic() + pause >= end:
                    raise failure
                yield Pause(pause)
        finally:
            self._behind.pop(attempt, None)
            if uncertain and self.gone is None:
                self.io.spawn(settle(self, ask), "settle")

    def conclude(self, cell: Cell) -> Lost:
        """Why it is not held, as its page has shown. If valid-until has passed it is lost for good, whether or not the
        watch has looked."""
        with self.lock:
            if self.look_again(cell) <= page.boottime_ns() and cell.lapse(self.why_expired()):
                self._watch.tell(cell)
        return cell.loss()

    def look_again(self, cell: Cell) -> int:
        """Until when the page that is there now shows it as valid, ns; 0 when it does not. A restarted agent may have made
        a new page, or given it another slot, while this program was stopped. Under the session's lock."""
        if cell.is_over():
            return 0
        self._follow_page()
        shown = page.valid_until_ns(cell.view)
        if not shown:
            cell.slot = self._page.find(cell.id, cell.slot)
            cell.view = self._page.view(cell.slot, cell.id)
            shown = page.valid_until_ns(cell.view)
        return shown

    def release(self, cell: Cell) -> Steps[None]:
        """Gives the hold back, so that the next waiter anywhere has it at once. One that is not held any more is lost.
        What the agent cannot be told now it is told in the background."""
        with self.lock:
            held = page.is_held(cell.view) or self.look_again(cell) > page.boottime_ns()
            if held:
                mine = cell.release()
            elif cell.lapse(self.why_expired()) or (self.connected and cell.lose(Reason.UNTOLD, told=False)):
                mine = True
                self._watch.tell(cell)
            else:
                # A restarted agent may have it still, and show it in another slot.
                mine = cell.release()
            self.cells.pop(cell.id, None)
            self._strays.wait_for_word(cell)
        if not mine and (cell.lost is None or cell.told):
            return
        if cell.released:
            notify([cell])
        if not held:
            # Nobody waits for what is over, and the agent may be stopped.
            self.io.spawn(release_later(self, cell.id), "release")
        else:
            yield from release_now(self, cell.id)

    def release_in_background(self, cell: Cell) -> None:
        self.io.spawn(self.release(cell), "release")

    def _granted(self, answer: Json, asked_at: int) -> Steps[Cell]:
        cell = Cell(answer, self.streams, self.io.signal)
        try:
            page.check_clock(asked_at, answer["valid_ms"], answer["valid_until_boottime_ns"])
        except ClocksDiffer:
            yield from release_now(self, cell.id)
            raise
        over: list[Cell] = []
        with self.lock:
            cell.view = self._page.view(cell.slot, cell.id)
            if not page.is_held(cell.view):
                # A restarted agent may have made a new page, and answered before its stream was open again.
                self._follow_page()
                cell.view = self._page.view(cell.slot, cell.id)
            early = self._strays.take(cell.id)
            if self.gone is not None:
                cell.lose(Reason.SESSION_GONE, told=True)
            elif early is not None:
                cell.lose(early.reason, told=True, by=early.by, word=early.word, detail=early.detail)
            else:
                self.cells[cell.id] = cell
                self._watch.take(cell)
            if cell.is_over():
                over.append(cell)
        notify(over)
        return cell

    def _is_behind_own(self, turn: Turn | None) -> bool:
        """True if a hold of this session is in the way, or another of its threads or tasks waits behind one."""
        if turn is None or self._agent_is_older:
            return False
        held = turn.held()
        return (held is not None and held.id in self.cells) or turn.key in list(self._behind.values())

    # The event stream.

    def _follow(self) -> Steps[None]:
        last_event_id: int | None = None
        number = self.streams
        while self.gone is None and (stream := self.stream) is not None:
            try:
                while (frames := (yield from stream.next())) is not None:
                    for frame in frames:
                        last_event_id = last_event_id if frame.id is None else frame.id
                        if not self._feeds and self._is_known(frame):
                            continue
                        event = events.parse(frame.event, frame.data)
                        if event is not None and self._apply(event, number):
                            return
            except (ValueError, KeyError, TypeError, _http.NotHttp, _sse.FrameTooLarge):
                # What cannot be read once cannot be read again: go on from a snapshot.
                last_event_id = None
            finally:
                stream.close()
            self.connected, self._away_since = False, page.boottime_ns()
            reopened = yield from self._reopen(last_event_id)
            if reopened is None:
                return
            number, self.stream = reopened
            self.connected = True

    def _is_known(self, frame: _sse.Frame) -> bool:
        """True of the echo of a grant, or of a release, that this session has, or will have, as an answer: most events
        are, and whoever acquires would wait for the thread that reads them."""
        if frame.event not in ("granted", "released"):
            return False
        at = frame.data.find(_HOLD_FIELD) + len(_HOLD_FIELD)
        cell = self.cells.get(frame.data[at : at + _UUID_LENGTH])
        return cell is None or (frame.event == "granted" and page.is_held(cell.view))

    def _reopen(self, last_event_id: int | None) -> Steps[tuple[int, EventStream] | None]:
        """A stream that ends is no loss: the session is taken up again with its secret."""
        backoff = Backoff()
        resume = {"session": self.id, "secret": self.registered["secret"]}
        while self.gone is None:
            # From here on a new hold may be missing from the coming snapshot.
            self.streams += 1
            number = self.streams
            try:
                self.registered = {**self.registered, **(yield from self.calls.post("/v1/register", {"resume": resume}))}
                with self.lock:
                    self._follow_page()
                return number, (yield from self.calls.open_events(self.id, last_event_id))
            except Refused as error:
                if error.code != "quota_exceeded":
                    self._end(str(error))
                    return None
            except SessionGone as error:
                self._end(str(error))
                return None
            except TenureError:
                pass
            yield Pause(backoff.step())
        return None

    def _follow_page(self) -> None:
        path: str = self.registered["page"]
        if not self._page.is_at(path):
            try:
                self._page = page.Page(path, self.id, self.registered["boot_id"])
            except PageError:
                # A page that cannot be read shows nothing as held; the watch concludes from that.
                return
            for cell in self.cells.values():
                # The snapshot that tells of another slot has yet to come.
                cell.slot = self._page.find(cell.id, cell.slot)
                cell.view = self._page.view(cell.slot, cell.id)

    def _apply(self, event: events.Event, number: int) -> bool:
        """Takes note of an event of the stream of that number. True if the session is over."""
        over: list[Cell] = []
        with self.lock:
            if isinstance(event, events.Snapshot):
                over = self._reconcile(event, number)
            elif isinstance(event, (events.Granted, events.Safe)):
                self._renewed(event.view)
            elif isinstance(event, events.Jeopardy):
                cell = self.cells.get(event.hold)
                if cell is not None:
                    cell.in_jeopardy = True
            elif isinstance(event, Lost):
                cell = self.cells.pop(event.hold, None)
                if cell is None:
                    self._strays.put(event)
                elif cell.lose(event.reason, told=True, by=event.by, word=event.word, detail=event.detail):
                    over.append(cell)
            elif isinstance(event, events.Released):
                cell = self.cells.pop(event.hold, None)
                if cell is not None and cell.lose(Reason.RELEASED, told=True):
                    over.append(cell)
            feeds = list(self._feeds)
        notify(over)
        for feed in feeds:
            feed.put(event)
        if isinstance(event, events.Shutdown) and event.cause == "session_ended":
            self._end("the agent says that it ended")
            return True
        return False

    def _renewed(self, view: events.HoldView) -> None:
        cell = self.cells.get(view.hold)
        if cell is not None:
            cell.in_jeopardy = False
            cell.slot = view.slot
            cell.seen_valid_until = view.valid_until_boottime_ns
            cell.view = self._page.view(view.slot, view.hold)
            # One that is not seen there is looked at by the watch, which can lose it.
            self._watch.look_before(page.valid_until_ns(cell.view))

    def _reconcile(self, snapshot: events.Snapshot, number: int) -> list[Cell]:
        """A hold of which the agent knows nothing any more is lost."""
        views = {view.hold: view for view in snapshot.holds}
        over: list[Cell] = []
        for cell in list(self.cells.values()):
            view = views.get(cell.id)
            if view is not None and view.state in ("held", "jeopardy"):
                self._renewed(view)
                cell.in_jeopardy = view.state == "jeopardy"
            elif view is not None and view.state == "waiting":
                # The grant came on another connection before the snapshot, which is older.
                continue
            elif view is not None or cell.born_in < number:
                # Else it was made after this stream was asked for, and the snapshot may be older.
                reason = Reason.RELEASED if view is not None and view.state == "released" else Reason.FORGOTTEN
                if cell.lose(reason, told=True):
                    over.append(cell)
                self.cells.pop(cell.id, None)
        return over


def _deadline(left: float | None) -> float | None:
    # On top of the wait itself: what a sound agent needs to say that it was in vain.
    return None if left is None else left + TRY_DEADLINE
