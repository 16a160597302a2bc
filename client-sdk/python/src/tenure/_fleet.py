"""What may be asked and said about resources of the whole fleet, whoever holds them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ._effects import Steps
from ._kinds import Duration, Want, given, milliseconds
from ._life import Life
from .errors import TenureError
from .events import AgentView, HistoryEntry, Revoked, Standing, Why, parse_agents, parse_history, parse_revoked, parse_standing

Json = dict[str, Any]

PAGE_LIMIT = "100"
"""Resources, or agents, that are asked for at once."""


def history(life: Life, want: Want) -> Steps[tuple[HistoryEntry, ...]]:
    return parse_history((yield from life.get("/v1/history", life.resource(want))))


def revoke(
    life: Life, want: Want, reason: str | None, barred_for: Duration | None, token: int | None
) -> Steps[Revoked]:
    asked = given(**life.resource(want), reason=reason, for_ms=milliseconds(barred_for), token=token)
    # Without a token a second try could hit the next holder.
    return parse_revoked((yield from life.post("/v1/revoke", asked, repeat=token is not None)))


def why(life: Life, want: Want) -> Steps[Why]:
    standing = yield from life.standing(want)
    try:
        return Why(standing, (yield from history(life, want)))
    except TenureError as error:
        # Who holds it is told all the same.
        return Why(standing, (), str(error))


def listed(life: Life, kind: str | None, glob: str | None) -> Steps[tuple[Standing, ...]]:
    """An agent may tell of one twice when others came or went between two pages."""
    query = {"kind": kind, "glob": glob, "tenant": life.tenant}
    pages = yield from _pages(life, "/v1/list", query)
    found = [parse_standing(data) for page in pages for data in page.get("resources", [])]
    return tuple({(one.kind, one.name): one for one in found}.values())


def agents(life: Life) -> Steps[tuple[AgentView, ...]]:
    pages = yield from _pages(life, "/v1/agents", {})
    return tuple({one.agent: one for page in pages for one in parse_agents(page)}.values())


def _pages(life: Life, target: str, query: Mapping[str, str | None]) -> Steps[list[Json]]:
    found: list[Json] = []
    cursor: str | None = None
    while True:
        page = yield from life.get(target, {**query, "limit": PAGE_LIMIT, "cursor": cursor})
        found.append(page)
        following = page.get("cursor")
        if following is None or following == cursor:
            return found
        cursor = following
