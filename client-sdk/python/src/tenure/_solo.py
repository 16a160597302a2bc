"""Without an agent: TENURE_SOLO=1 keeps everything in this process, for a program that runs as a single
replica. Nothing is kept apart from other processes."""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections import deque
from collections.abc import Mapping
from typing import Any

from ._actors import Turn
from ._calls import LOOK_FIRST, LOOK_LAST, InVain
from ._cell import Cell
from ._effects import Io, Signal, Steps, WaitFor
from ._feed import Feed
from .errors import Busy, Holder, Lost, Reason, Refused, SessionGone, WaitTimeout

Json = dict[str, Any]
_FOREVER_NS = 2**63 - 1


def is_solo() -> bool:
    """True if TENURE_SOLO is set to anything but 0 or nothing."""
    return os.environ.get("TENURE_SOLO", "0") not in ("", "0")


class _Resource:
    def __init__(self) -> None:
        self.limit = 1
        self.holders: list[str] = []
        self.waiters: deque[tuple[str, Signal]] = deque()

    def grant(self) -> None:
        while self.waiters and len(self.holders) < self.limit:
            request, signal = self.waiters.popleft()
            self.holders.append(request)
            signal.set()


_lock = threading.Lock()
_resources: dict[tuple[str, str], _Resource] = {}
_token = 0


def _forget_all() -> None:
    global _lock
    _lock = threading.Lock()
    _resources.clear()


os.register_at_fork(after_in_child=_forget_all)


def _this_process() -> Holder:
    return Holder(os.uname().nodename, f"pid-{os.getpid()}", 0, 0, os.getpid())


class SoloCore:
    """What `Core` is with an agent."""

    def __init__(self, io: Io) -> None:
        self.io = io
        self.id = str(uuid.uuid4())
        self.gone: str | None = None
        self.connected = False
        self.followed = True
        self._cells: dict[str, Cell] = {}
        self._feeds: list[Feed] = []

    def acquire(self, want: Json, wait: float | None, turn: Turn | None = None, ask: Json | None = None) -> Steps[Cell]:
        """As that of `Core`."""
        if self.gone is not None:
            raise SessionGone(f"the session is gone: {self.gone}; open a new one")
        kind: str = want["kind"]
        name: str = want.get("name") or "default"
        if want.get("fleet"):
            raise Refused(
                "forbidden",
                f"{kind}/{name}: TENURE_SOLO keeps holds in this process alone, and fleet=True wants them kept from all "
                "hosts; unset TENURE_SOLO, and start an agent whose store all hosts share",
            )
        request, signal = str(uuid.uuid4()), self.io.signal()
        with _lock:
            resource = _resources.setdefault((kind, name), _Resource())
            if kind == "semaphore":
                resource.limit = want.get("limit") or resource.limit
            resource.waiters.append((request, signal))
            resource.grant()
            granted = request in resource.holders
            if not granted and wait == 0:
                resource.waiters.remove((request, signal))
                raise self._busy(Busy, kind, name, "is held in this process")
        try:
            if not granted:
                yield from self._wait(signal, wait, turn)
            with _lock:
                granted = request in resource.holders
                if not granted:
                    raise self._busy(WaitTimeout, kind, name, f"was not free within {wait} s")
        finally:
            if not granted:
                self._give_back(kind, name, request)
        return self._cell(kind, name, request, want, resource.limit)

    def _wait(self, signal: Signal, wait: float | None, turn: Turn | None) -> Steps[None]:
        until = None if wait is None else time.monotonic() + wait
        pause = LOOK_FIRST
        while not signal.is_set():
            left = pause if until is None else min(pause, until - time.monotonic())
            if left <= 0:
                return
            yield WaitFor(signal, left)
            if turn is not None and not signal.is_set() and turn.is_vain():
                raise InVain
            pause = min(2 * pause, LOOK_LAST)

    def conclude(self, cell: Cell) -> Lost:
        return cell.loss()

    def release(self, cell: Cell) -> Steps[None]:
        if cell.release():
            self._cells.pop(cell.id, None)
            self._give_back(cell.kind, cell.name, cell.id)
            cell.over.set()
        return
        yield  # a generator like its twin

    def release_in_background(self, cell: Cell) -> None:
        for _ in self.release(cell):
            pass

    def call(self, target: str, **fields: Any) -> Steps[Json]:
        return {}
        yield

    def get(self, target: str, query: Mapping[str, str | None]) -> Steps[Json]:
        # A list, and a history, without entries.
        with _lock:
            resource = _resources.get((query.get("kind") or "", query.get("name") or "")) or _Resource()
            held, waiting = len(resource.holders), len(resource.waiters)
        return {**query, "holders": [vars(_this_process())] * held, "waiting": waiting}
        yield

    def post(self, target: str, body: Json, *, repeat: bool) -> Steps[Json]:
        return {"revoked": 0}
        yield

    def subscribe(self) -> Feed:
        feed = Feed(self.io)
        self._feeds.append(feed)
        return feed

    def unsubscribe(self, feed: Feed) -> None:
        self._feeds.remove(feed)

    def close(self) -> Steps[None]:
        self.end("it was closed")
        return
        yield

    def end(self, why: str) -> None:
        self.gone = self.gone or why
        for cell in list(self._cells.values()):
            if cell.lose(Reason.SESSION_GONE, told=True):
                self._give_back(cell.kind, cell.name, cell.id)
                cell.over.set()
                for listener in cell.listeners:
                    listener()
        for feed in self._feeds:
            feed.close()

    def forked(self) -> None:
        self.gone = "it belongs to the process that this one was forked from"
        for cell in self._cells.values():
            cell.lose(Reason.FORKED, told=True)

    def _cell(self, kind: str, name: str, request: str, want: Json, limit: int) -> Cell:
        global _token
        with _lock:
            _token = max(_token + 1, time.time_ns() // 1000)
            token = _token
        answer = {
            "hold": request,
            "kind": kind,
            "name": name,
            "token": token,
            "ttl_ms": want.get("ttl_ms", 30_000),
            "slot": 0,
            "limit": limit if kind == "semaphore" else None,
            "valid_until_boottime_ns": _FOREVER_NS,
        }
        cell = Cell(answer, 0, self.io.signal)
        cell.view = (memoryview(bytes(24) + _FOREVER_NS.to_bytes(8, "little")).cast("Q"), 3, 0, 0)
        self._cells[cell.id] = cell
        return cell

    @staticmethod
    def _busy(error: type[Busy], kind: str, name: str, text: str) -> Busy:
        return error(f"{kind}/{name} {text}", _this_process())

    @staticmethod
    def _give_back(kind: str, name: str, request: str) -> None:
        with _lock:
            resource = _resources.get((kind, name))
            if resource is None:
                return
            if request in resource.holders:
                resource.holders.remove(request)
            resource.waiters = deque(waiter for waiter in resource.waiters if waiter[0] != request)
            resource.grant()
            if not resource.holders and not resource.waiters:
                del _resources[kind, name]
