"""The watch over the valid-untils of a session's holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import page
from ._cell import Cell, notify
from ._effects import Steps, WaitFor
from .errors import Reason

if TYPE_CHECKING:
    from ._core import Core

_LOOK_AGAIN_NS = 1_000_000_000
UNTOLD_MAX = 0.1
"""How long a page may say *not held* before the event that tells why, seconds."""


class Watch:
    """Loses each hold whose valid-until has passed, whatever the agent says or fails to say."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._wake = core.io.signal()
        self._due: int | None = None
        """When it looks at the holds again, ns; None when it waits to be woken."""
        self._ended: list[Cell] = []
        """Holds that others saw to be lost."""

    def run(self) -> Steps[None]:
        """Ends with the session."""
        core = self._core
        woken = True
        while core.gone is None:
            self._wake.clear()
            now = page.boottime_ns()
            with core.lock:
                looks = [self._look_at(cell, now) for cell in core.cells.values()]
                over = [cell for cell in core.cells.values() if cell.is_over()] + self.take_ended()
                pending = [at for at in looks if at is not None]
                # Timers stand still while the machine sleeps, so that none is trusted for longer. It goes on for as long
                # after the last hold: a program that acquires again and again would wake it each time.
                self._due = min([now + _LOOK_AGAIN_NS, *pending]) if looks or woken else None
            notify(over)
            woken = yield WaitFor(self._wake, None if self._due is None else max(0.001, (self._due - now) / 1e9))

    def wake(self) -> None:
        """Has it look at once, and see whether the session is over."""
        self._wake.set()

    def tell(self, cell: Cell) -> None:
        """Has it call those who want to know that the hold is over: who sees that may have locks that they take. Under
        the session's lock."""
        cell.over.set()
        self._ended.append(cell)
        self._wake.set()

    def take_ended(self) -> list[Cell]:
        """The holds of which it has yet to tell. Under the session's lock."""
        ended, self._ended = self._ended, []
        return ended

    def take(self, cell: Cell) -> None:
        """Takes note of a new hold. Under the session's lock."""
        self.look_before(self._look_at(cell, page.boottime_ns()))

    def look_before(self, at: int | None) -> None:
        """Wakes the watch unless it looks before that by itself. Under the session's lock."""
        if at is not None and (self._due is None or at < self._due):
            self._wake.set()

    def _look_at(self, cell: Cell, now: int) -> int | None:
        """When to look at the hold again; None when it is over."""
        if cell.is_over():
            return None
        shown = page.valid_until_ns(cell.view)
        if shown <= now:
            shown = self._core.look_again(cell)
        if shown > now:
            cell.seen_valid_until = shown
            cell.doubted_since = 0
            return shown
        if shown or cell.seen_valid_until <= now:
            cell.lose(Reason.EXPIRED, told=False, detail=self._core.why_expired())
            return None
        # The page was zeroed: the agent ended it, and an event with the reason is on its way; or a
        # restarted agent gave it another slot, and a snapshot is.
        if not self._core.connected:
            return cell.seen_valid_until
        cell.doubted_since = cell.doubted_since or now
        until = cell.doubted_since + int(UNTOLD_MAX * 1e9)
        if until <= now:
            cell.lose(Reason.FORGOTTEN, told=False)
            return None
        return min(until, cell.seen_valid_until)
