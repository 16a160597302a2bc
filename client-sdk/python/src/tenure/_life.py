"""The life of a session object, over registrations: begun at first use, again after a fork, and again
after the agent has ended one."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Iterable, Mapping
from typing import Any, Union

from . import _socket
from ._actors import Turn
from ._calls import Backoff, Calls, InVain, NoAnswer
from ._cell import Cell
from ._core import Core
from ._effects import Enter, Io, Pause, Steps
from ._kinds import Want
from ._solo import SoloCore, is_solo
from ._standby import Standby
from .errors import Busy, SessionGone
from .events import Standing, parse_standing

Json = dict[str, Any]

AnyCore = Union[Core, SoloCore]


class Life:
    def __init__(
        self,
        io: Io,
        socket: str | os.PathLike[str] | None,
        register: Json,
        former: Iterable[Life] = (),
        *,
        knows_actors: bool = True,
    ) -> None:
        """`former` are those of closed event loops, in whose place it is."""
        self.io = io
        self.core: AnyCore | None = None
        self.closed = False
        self.knows_actors = knows_actors
        """False where any thread may give back what another one holds: every hold is waited for."""
        self._socket = socket
        self._register = register
        self._former: list[AnyCore] = []
        for life in former:
            life.end_with_loop()
            if life.core is not None:
                self._former.append(life.core)
        with _lives_lock:
            _lives.add(self)

    def live(self, wait: float | None = None) -> Steps[AnyCore]:
        """The registration, made now if there is none; `wait` is how long the caller wants to wait for a grant."""
        if self.closed:
            raise SessionGone("the session is gone: it was closed; open a new one")
        core = self.core
        if core is not None and core.gone is None:
            return core
        if self.io.is_over():
            raise SessionGone("the session is gone: its event loop was closed; open a new one")
        yield Enter()
        try:
            core = self.core
            if core is None or core.gone is not None:
                if is_solo():
                    core = SoloCore(self.io)
                else:
                    calls = Calls(_socket.find(self._socket))
                    yield from self._tell_ends(calls.path)
                    core = yield from Core.open(self.io, calls, self._register, wait)
                self.core = core
            return core
        finally:
            self.io.leave()

    def _tell_ends(self, path: str | None = None) -> Steps[None]:
        """What its place in a closed event loop still holds would keep it waiting for a while."""
        former, self._former = self._former, []
        for core in former:
            if isinstance(core, Core) and core.owes_end and path in (None, core.calls.path):
                yield from core.tell_end()

    def acquire(self, want: Want, wait: float | None, standby: Standby | None = None) -> Steps[tuple[AnyCore, Cell]]:
        """A `standby` has a place in line already."""
        until = None if wait is None else time.monotonic() + wait
        project = self._register.get("project")
        if want.project is not None and want.project != project:
            raise ValueError(f"this session is of project {project!r}, not {want.project!r}: open one with project=")
        actor = self.io.actor() if self.knows_actors else None
        backoff = Backoff()
        attempts = 0
        while True:
            attempts += 1
            try:
                core = yield from self.live(None if until is None else max(0.0, until - time.monotonic()))
            except NoAnswer:
                # Whoever waits outlasts an agent that is stopped, also at the first acquire.
                if until is not None and time.monotonic() >= until:
                    raise
                continue
            path = core.calls.path if isinstance(core, Core) else None
            turn = Turn((path, self.tenant or "default", want.kind, self.resource(want)["name"]), actor)
            left = None if until is None else max(0.0, until - time.monotonic())
            try:
                # A try names the holder, and is granted if this process is wrong about its own hold.
                ask = None if standby is None else standby.take(core)
                cell = yield from core.acquire(want.body(), 0.0 if wait == 0 or turn.is_vain() else left, turn, ask)
                turn.take(cell)
                return core, cell
            except InVain:
                continue
            except Busy as busy:
                why = turn.explain()
                if why is not None:
                    raise type(busy)(why, busy.holder, held_by_self=True) from None
                raise
            except SessionGone:
                # The agent has ended the session, or forgotten it; a new one may wait in its place.
                if not core.followed:
                    core.end("the task that read its events was cancelled")
                if self.closed or (until is not None and time.monotonic() >= until and attempts > 1):
                    raise
            yield Pause(backoff.step())

    def call(self, target: str) -> Steps[Json]:
        core = yield from self.live()
        return (yield from core.call(target))

    @property
    def name(self) -> str | None:
        return self._register.get("name")

    @property
    def tenant(self) -> str | None:
        return self._register.get("tenant")

    def resource(self, want: Want) -> dict[str, str | None]:
        """How the agent is asked about it."""
        name: str = want.name or self._register.get("project") or "default"
        return {"kind": want.kind, "name": name, "tenant": self.tenant}

    def get(self, target: str, query: Mapping[str, str | None]) -> Steps[Json]:
        core = yield from self.live()
        return (yield from core.get(target, query))

    def post(self, target: str, body: Json, *, repeat: bool) -> Steps[Json]:
        core = yield from self.live()
        return (yield from core.post(target, body, repeat=repeat))

    def standing(self, want: Want) -> Steps[Standing]:
        return parse_standing((yield from self.get("/v1/standing", self.resource(want))))

    def end_with_loop(self) -> None:
        """Ends it, and its holds as lost, where its event loop is closed: nobody else would notice."""
        if self.core is not None and self.io.is_over():
            self.core.end("its event loop was closed")

    def drop(self) -> None:
        """Nobody uses it any more."""
        self.end_with_loop()
        # It stays, for holds that outlive the session: the loop may be closed before this has run.
        if self.core is not None and self.core.gone is None:
            self.io.spawn(self.core.close(), "close")

    def close(self) -> Steps[None]:
        self.closed = True
        core, self.core = self.core, None
        if core is not None:
            yield from core.close()
        yield from self._tell_ends()

    def forked(self) -> None:
        core, self.core = self.core, None
        if core is not None:
            core.forked()


_lives: weakref.WeakSet[Life] = weakref.WeakSet()
_lives_lock = threading.Lock()


def _after_in_child() -> None:
    global _lives_lock
    _lives_lock = threading.Lock()
    for life in list(_lives):
        life.forked()


# No thread changes the set while it is copied into a child.
os.register_at_fork(
    before=lambda: _lives_lock.acquire() and None,
    after_in_parent=lambda: _lives_lock.release(),
    after_in_child=_after_in_child,
)
