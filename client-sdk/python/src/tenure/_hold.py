"""What a hold tells, in threads and in asyncio alike."""

from __future__ import annotations

from collections.abc import Callable
from time import clock_gettime_ns
from typing import TYPE_CHECKING, NoReturn

from . import page
from ._cell import Cell
from .errors import Lost

if TYPE_CHECKING:
    from ._life import AnyCore

_BOOTTIME = page.BOOTTIME


class HoldFacts:
    """Something held: leadership of a role, a project's master, a lease, a permit.

    It is a lease with a fence. Do guarded work only while it is held, stop when it is lost, and hand its
    token to whatever the work writes to, so that a late write can be refused. Once lost it stays lost.
    """

    __slots__ = ("__weakref__", "_cell", "_core")

    def __init__(self, core: AnyCore, cell: Cell) -> None:
        self._core = core
        self._cell = cell

    @property
    def id(self) -> str:
        return self._cell.id

    @property
    def kind(self) -> str:
        """`leader`, `lease`, `semaphore` or `master`."""
        return self._cell.kind

    @property
    def name(self) -> str:
        """Of a master the project."""
        return self._cell.name

    @property
    def token(self) -> int:
        """The fencing token of the grant: greater than every token granted before on the store."""
        return self._cell.token

    @property
    def ttl(self) -> float:
        """How long the hold outlives its last heartbeat, seconds."""
        return self._cell.ttl_ms / 1000

    @property
    def limit(self) -> int | None:
        """Semaphore only: the permits in all, as of the grant."""
        return self._cell.limit

    @property
    def limit_changed(self) -> tuple[int, int] | None:
        """Semaphore only: asking for this permit changed the limit for everybody, from and to."""
        return self._cell.limit_changed

    @property
    def lost(self) -> Lost | None:
        """How it was lost; None while it is held, when it was released, and where the page shows it as over
        before a reason has come."""
        cell = self._cell
        if not cell.is_over() and not self.is_held():
            self._core.conclude(cell)
        return cell.lost

    @property
    def in_jeopardy(self) -> bool:
        """True while the last renewal is unknown: it is valid, but perhaps not for long."""
        return self._cell.in_jeopardy and self.is_held()

    def is_held(self) -> bool:
        """True if it is valid at this instant, by the session's page: no call to the agent, and right
        even when that is stopped or this program was."""
        # `page.is_held`, without the price of a call.
        words, at, high, low = self._cell.view
        valid_until = words[at]
        return words[at - 3] == high and words[at - 2] == low and clock_gettime_ns(_BOOTTIME) < valid_until

    def check(self) -> None:
        """Raises `Lost` unless it is valid at this instant; costs what `is_held` does."""
        words, at, high, low = self._cell.view
        valid_until = words[at]
        if words[at - 3] != high or words[at - 2] != low or clock_gettime_ns(_BOOTTIME) >= valid_until:
            lost = self._loss()
            # On a new page of a restarted agent it may be.
            if not self.is_held():
                raise lost

    def valid_for(self) -> float:
        """How long it is valid from now on unless renewed, seconds; 0 when it is not held."""
        return max(0, page.valid_until_ns(self._cell.view) - page.boottime_ns()) / 1e9

    def on_lost(self, callback: Callable[[Lost], object]) -> None:
        """Calls `callback` once when it is lost; at once if it is. Runs in a thread of the session, or in the one that
        ends it; in asyncio on the loop. Keep it short."""
        cell = self._cell

        once = [callback]

        def told() -> None:
            # Both the session's thread and this one may see the end.
            try:
                pending = once.pop()
            except IndexError:
                return
            if cell.lost is not None:
                pending(cell.lost)

        cell.listeners.append(told)
        if cell.is_over():
            told()

    def _loss(self) -> Lost:
        return self._core.conclude(self._cell)

    def __bool__(self) -> NoReturn:
        raise TypeError("a hold is neither true nor false: ask is_held()")

    def __repr__(self) -> str:
        cell = self._cell
        state = "released" if cell.released else "lost" if cell.lost else "held"
        return f"<{cell.what} token={cell.token} {state}>"
