"""A place in line for the next term of a campaign, while the work of a lost one still ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._calls import Backoff
from ._cell import Cell
from ._core import Core
from ._debts import release_now
from ._effects import Pause, Steps, WaitFor
from ._kinds import Want
from ._watch import UNTOLD_MAX
from .errors import AgentUnavailable, Busy, Reason, TenureError, UpstreamUnavailable

if TYPE_CHECKING:
    from ._life import AnyCore

Json = dict[str, Any]

_LOSSES = frozenset(
    {
        Reason.EXPIRED,
        Reason.PREEMPTED,
        Reason.MAX_HOLD,
        Reason.REVOKED,
        Reason.UPSTREAM_RESET,
        Reason.CONFLICT,
        Reason.SLEPT,
    }
)
"""Not `STALLED`: that program does not get on. After the others the session, or its agent, is gone."""


class Standby:
    """Stands for the next term as soon as the loss of the former one is known. The caller that asks for the next term
    joins the request, and so has its place. A grant that comes before is kept for one ttl at most: others would wait
    for work that may never end, as they wait for a holder that has died."""

    def __init__(self, core: AnyCore, cell: Cell, want: Want) -> None:
        self._core = core
        self._cell = cell
        self._want = want
        self._wake = core.io.signal()
        self._is_begun = False
        self._ask: Json | None = None
        """The request that stands in line."""
        self._is_taken = False
        """The work of the former term has ended."""
        self._is_over = False
        """Nobody wants the next term, or what was granted is given back."""
        # With `hold_at_least` a grant that is given back would be kept from others all the same.
        if isinstance(core, Core) and "hold_at_least_ms" not in want.body():
            cell.listeners.append(self._begin)
            if cell.is_over():
                self._begin()

    def take(self, core: AnyCore) -> Json | None:
        """The request that stands in line, if one does; none is begun from now on."""
        if core is not self._core or not isinstance(core, Core):
            self.give_up()
            return None
        with core.lock:
            self._is_taken = True
            ask = None if self._is_over else self._ask
        self._wake.set()
        return ask

    def give_up(self) -> None:
        """Gives up the place in line, or gives back what was granted."""
        self._is_over = True
        self._wake.set()

    def _begin(self) -> None:
        core = self._core
        assert isinstance(core, Core), "others lose nothing"
        with core.lock:
            if self._is_begun:
                return
            self._is_begun = True
        if self._cell.lost is not None and core.gone is None:
            core.io.spawn(self._stand(core), "standby")

    def _stand(self, core: Core) -> Steps[None]:
        if not self._cell.told:
            yield WaitFor(self._cell.explained, UNTOLD_MAX)
        lost = self._cell.lost
        with core.lock:
            # The agent may think a hold held that is over by the page alone: the work must end before it is told otherwise.
            if self._is_taken or self._is_over or not self._cell.told or lost is None or lost.reason not in _LOSSES:
                return
            ask = self._ask = core.request(self._want.body())
        granted = yield from self._ask_for_it(core, ask)
        if granted is None:
            return
        yield WaitFor(self._wake, granted["ttl_ms"] / 1000)
        with core.lock:
            if self._is_taken and not self._is_over:
                return
            self._is_over = True
        yield from release_now(core, granted["hold"])

    def _ask_for_it(self, core: Core, ask: Json) -> Steps[Json | None]:
        """The grant. An error is for the caller that asks for the next term: its own attempt meets it again."""
        backoff = Backoff()
        while core.gone is None and not self._is_over:
            try:
                body = {**ask, "wait": "block"}
                return (yield from core.calls.post("/v1/acquire", body, deadline=None, is_vain=lambda: self._is_over))
            except (AgentUnavailable, UpstreamUnavailable):
                if self._is_taken:
                    return None
            except Busy:
                # Another thread or task of this session has it.
                if ask.get("behind_own"):
                    return None
                ask["behind_own"] = True
            except TenureError:
                return None
            yield Pause(backoff.step())
        return None
