"""The state of one hold, shared by its guard, the event stream and the watch over valid-untils."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from . import page
from ._actors import Actor
from .errors import Lost, Reason

_log = logging.getLogger("tenure")
_EARLY_LOSSES_MAX = 64


class Cell:
    """Once over it stays over. Changed only under its session's lock."""

    def __init__(self, answer: Mapping[str, Any], born_in: int, signal_factory: Callable[[], Any]) -> None:
        self.id: str = answer["hold"]
        self.kind: str = answer["kind"]
        self.name: str = answer["name"]
        self.token: int = answer["token"]
        self.ttl_ms: int = answer["ttl_ms"]
        self.slot: int = answer["slot"]
        self.limit: int | None = answer.get("limit")
        changed = answer.get("limit_changed")
        self.limit_changed: tuple[int, int] | None = changed and (changed["from"], changed["to"])
        self.born_in = born_in
        """The stream on which its events come, counted: snapshots of earlier ones omit it."""
        self.view: page.View = page.dead_view()
        self.over = signal_factory()
        """Set once it is lost or released."""
        self.explained = signal_factory()
        """Set once the agent has said why it is over. At valid-until it is over at once; the agent's own
        reason, which may be another than the clock, comes a moment later."""
        self.lost: Lost | None = None
        self.released = False
        self.told = False
        """The agent knows that it is over."""
        self.seen_valid_until: int = answer["valid_until_boottime_ns"]
        self.doubted_since = 0
        """Since when the page says *not held* though nobody told why, ns; 0 when it does not."""
        self.in_jeopardy = False
        self.actor: Actor | None = None
        """The thread or task that has it."""
        self.listeners: list[Callable[[], None]] = []

    @property
    def what(self) -> str:
        return f"{self.kind}/{self.name}"

    def awaits_word(self) -> bool:
        """The agent has not said yet why it is over, or that it is."""
        return not self.told and not self.released

    def is_over(self) -> bool:
        return self.released or self.lost is not None

    def lose(
        self, reason: Reason, *, told: bool, by: str | None = None, word: str = "", detail: str | None = None
    ) -> bool:
        """Ends it as lost, or says why it was. Returns whether it was not over."""
        if self.is_over():
            if told and not self.told and self.lost is not None:
                self.lost = Lost(reason, self.token, self.what, by, word, self.id, detail)
                self._tell()
            return False
        self.view = page.dead_view()
        self.lost = Lost(reason, self.token, self.what, by, word, self.id, detail)
        if told:
            self._tell()
        return True

    def release(self) -> bool:
        """Ends it as given back. Returns whether it was not over."""
        if self.is_over():
            return False
        self.view = page.dead_view()
        self.released = True
        return True

    def lapse(self, why: str) -> bool:
        """Ends it as lost if its valid-until has passed: that needs no word of the agent. Returns whether it was not over."""
        return self._has_expired() and self.lose(Reason.EXPIRED, told=False, detail=why)

    def _has_expired(self) -> bool:
        valid_until = page.valid_until_ns(self.view) or self.seen_valid_until
        return valid_until <= page.boottime_ns()

    def _tell(self) -> None:
        self.told = True
        self.explained.set()

    def loss(self) -> Lost:
        """Why it is not held, as far as is known."""
        if self.lost is not None:
            lost = self.lost
            return Lost(lost.reason, lost.token, lost.what, lost.by, lost.word, lost.hold, lost.detail)
        reason = Reason.UNTOLD
        if self.released:
            reason = Reason.RELEASED
        elif self._has_expired():
            reason = Reason.EXPIRED
        return Lost(reason, self.token, self.what, hold=self.id)


class Strays:
    """Losses that came before their grant, and holds that were given up before their loss came. Changed only under
    its session's lock."""

    def __init__(self) -> None:
        self._losses: dict[str, Lost] = {}
        """By hold: the grant is on its way here."""
        self._cells: weakref.WeakValueDictionary[str, Cell] = weakref.WeakValueDictionary()
        """Lost, and given up, before the agent said why."""

    def wait_for_word(self, cell: Cell) -> None:
        if cell.lost is not None and not cell.told:
            self._cells[cell.id] = cell

    def put(self, loss: Lost) -> None:
        cell = self._cells.pop(loss.hold, None)
        if cell is not None:
            cell.lose(loss.reason, told=True, by=loss.by, word=loss.word, detail=loss.detail)
            return
        if len(self._losses) >= _EARLY_LOSSES_MAX:
            self._losses.pop(next(iter(self._losses)))
        self._losses[loss.hold] = loss

    def take(self, hold: str) -> Lost | None:
        """The loss of a hold that is granted only now."""
        return self._losses.pop(hold, None)


def notify(cells: list[Cell]) -> None:
    for cell in cells:
        cell.over.set()
        listeners: list[Callable[[], None]] = cell.listeners
        cell.listeners = []
        for listener in listeners:
            try:
                listener()
            except Exception:
                _log.exception("a callback for the loss of %s failed", cell.what)
