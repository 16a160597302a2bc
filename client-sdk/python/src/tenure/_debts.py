"""What a session still owes the agent, told in the background until the agent has heard it or the session is over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._calls import Backoff
from ._effects import Pause, Steps
from .errors import AgentUnavailable, TenureError, UpstreamUnavailable

if TYPE_CHECKING:
    from ._core import Core


def release_later(core: Core, hold: str) -> Steps[None]:
    backoff = Backoff()
    while core.gone is None:
        try:
            yield from core.calls.post("/v1/release", {"session": core.id, "hold": hold})
            return
        except (AgentUnavailable, UpstreamUnavailable):
            yield Pause(backoff.step())
        except TenureError:
            return


def settle(core: Core, ask: dict[str, Any]) -> Steps[None]:
    """Finds out about an attempt whose fate is unknown, and gives back what it got."""
    backoff = Backoff()
    while core.gone is None:
        try:
            answer = yield from core.calls.post("/v1/acquire", {**ask, "wait": "none"})
            return (yield from release_later(core, answer["hold"]))
        except AgentUnavailable:
            yield Pause(backoff.step())
        except TenureError:
            return
