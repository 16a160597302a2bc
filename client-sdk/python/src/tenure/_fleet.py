"""What may be asked and said about resources of the whole fleet, whoever holds them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ._effects import Steps
from ._kinds import Duration, Want, given, milliseconds
from ._life import Life
from .events import HistoryEntry, Revoked, Standing, parse_history, parse_revoked, parse_standing

Json = dict[str, Any]

LIST_LIMIT = "100"
"""Resources that are asked for at once."""


def history(life: Life, want: Want) -> Steps[tuple[HistoryEntry, ...]]:
    return parse_history((yield from life.get("/v1/history", life.resource(want))))


def revoke(
    life: Life, want: Want, reason: str | None, barred_for: Duration | None, token: int | None
) -> Steps[Revoked]:
    asked = given(**life.resource(want), reason=reason, for_ms=milliseconds(barred_for), token=token)
    # Without a token a second try could hit the next holder.
    return parse_revoked((yield from life.post("/v1/revoke", asked, repeat=token is not None)))


def listed(life: Life, kind: str | None, glob: str | None) -> Steps[tuple[Standing, ...]]:
    """Page by page; an agent may tell of one twice when others came or went between two pages."""
    found: dict[tuple[str, str], Standing] = {}
    cursor: str | None = None
    while True:
        query: Mapping[str, str | None] = {
            "kind": kind, "glob": glob, "tenant": life.tenant, "limit": LIST_LIMIT, "cursor": cursor
        }
        page = yield from life.get("/v1/list", query)
        for standing in map(parse_standing, page.get("resources", [])):
            found[standing.kind, standing.name] = standing
        following = page.get("cursor")
        if following is None or following == cursor:
            return tuple(found.values())
        cursor = following
