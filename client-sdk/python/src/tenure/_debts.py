"""What a session still owes the agent, told in the background until the agent has heard it or the session is over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._calls import TRY_DEADLINE, Backoff
from ._effects import Pause, Steps
from .errors import AgentUnavailable, TenureError, UpstreamUnavailable

if TYPE_CHECKING:
    from ._core import Core


def release_now(core: Core, hold: str) -> Steps[None]:
    """Has the agent told at once; later where it does not answer."""
    answered = False
    try:
        yield from core.calls.post("/v1/release", {"session": core.id, "hold": hold}, deadline=TRY_DEADLINE)
        answered = True
    except (AgentUnavailable, UpstreamUnavailable):
        pass
    except TenureError:
        # The agent has no such hold: as good as released.
        answered = True
    finally:
        if not answered and core.gone is None:
            core.io.spawn(release_later(core, hold), "release")


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
