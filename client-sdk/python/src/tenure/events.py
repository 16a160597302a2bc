"""Events of a session, in the order in which the agent numbered them. For `match`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar, Union

from .errors import Holder, Lost, Reason

Json = dict[str, Any]
F = TypeVar("F", "HistoryEntry", "AgentView", "Waiter")


@dataclass(frozen=True)
class HoldView:
    """A hold as the agent sees it."""

    hold: str
    kind: str
    name: str
    state: str
    """`waiting`, `held`, `jeopardy`, `released` or `lost`."""
    slot: int
    token: int | None
    valid_ms: int
    valid_until_boottime_ns: int
    position: int | None
    limit: int | None

    @classmethod
    def parse(cls, data: Mapping[str, Any]) -> HoldView:
        return cls(
            hold=data["hold"],
            kind=data["kind"],
            name=data["name"],
            state=data.get("state", "held"),
            slot=data["slot"],
            token=data.get("token"),
            valid_ms=data["valid_ms"],
            valid_until_boottime_ns=data["valid_until_boottime_ns"],
            position=data.get("position"),
            limit=data.get("limit"),
        )


@dataclass(frozen=True)
class Snapshot:
    """Everything that the session holds or waits for: the first event of a fresh stream."""

    role: str
    """`master`, `peer` or `none`."""
    holds: tuple[HoldView, ...]


@dataclass(frozen=True)
class Queued:
    """The place of a wait changed; 1 is next."""

    hold: str
    kind: str
    name: str
    position: int


@dataclass(frozen=True)
class Granted:
    """A hold was granted."""

    view: HoldView

    @property
    def hold(self) -> str:
        return self.view.hold

    @property
    def token(self) -> int | None:
        return self.view.token


@dataclass(frozen=True)
class Jeopardy:
    """A renewal is unknown: the hold is valid, but not for long."""

    hold: str
    kind: str
    name: str
    token: int
    cause: str
    valid_for: float
    """How long it is valid from now on unless renewed, seconds."""


@dataclass(frozen=True)
class Safe:
    """A hold is out of danger again."""

    view: HoldView

    @property
    def hold(self) -> str:
        return self.view.hold


@dataclass(frozen=True)
class Released:
    """A hold was given back, or a wait ended without a grant."""

    hold: str
    kind: str
    name: str
    token: int | None
    cause: str
    """`client`, `wait_timeout` or `session_ended`."""


@dataclass(frozen=True)
class Waiter:
    """A place in the queue for a resource."""

    host: str
    name: str
    position: int
    """1 is next."""
    since_ms: int = 0
    """How long it has waited, ms."""
    pid: int | None = None
    """The process, when it is on this host."""


@dataclass(frozen=True)
class Standing:
    """Who has a resource and who waits for it. As an event: the project's master, or a watched resource, changed."""

    kind: str
    name: str
    holders: tuple[Holder, ...]
    """The oldest grant first; the first 100."""
    limit: int | None
    raw: Json = field(repr=False)
    """All that the agent says."""
    waiters: tuple[Waiter, ...] = ()
    """The next one first; the first 100."""
    holding: int = 0
    """How many have it, listed or not."""
    waiting: int = 0
    """How many wait, listed or not."""


@dataclass(frozen=True)
class HistoryEntry:
    """One change of who holds a resource."""

    ago_ms: int
    """How long ago it happened, ms."""
    what: str
    """`granted`, `released` or `lost`."""
    token: int
    host: str
    name: str
    """The name of the holder's session."""
    pid: int | None = None
    user: str | None = None
    command: str | None = None
    held_ms: int | None = None
    """How long it had been held at its end, ms."""
    reason: str | None = None
    """Why it ended: `released`, `session_ended`, `wait_timeout`, or the reason of a loss."""
    detail: str | None = None
    """The same in more words, such as `its process ended`."""
    exit_status: int | None = None
    by: str | None = None
    """The user and host that took it away."""


@dataclass(frozen=True)
class Why:
    """Who has a resource and who waits for it, and how it came to that."""

    standing: Standing
    history: tuple[HistoryEntry, ...]
    unknown: str | None = None
    """Why the history is not known."""


@dataclass(frozen=True)
class AgentView:
    """An agent of the same store, as it made itself known last."""

    agent: str
    """Its id: the same until it is stopped."""
    host: str
    version: str
    seen: bool
    """False if it has not been seen for so long that it is down, stopped, or cut off from the store."""
    last_seen_ms: int
    """How long ago it was seen, ms."""
    up_ms: int
    """How long it had been up then, ms."""
    sessions: int
    held: int
    """What these held."""
    waiting: int
    """What these waited for."""
    principal: str | None = None
    """The principal of its key, behind a gateway."""
    this: bool = False
    """True of the agent on this host, which was asked."""


@dataclass(frozen=True)
class Revoked:
    """What was taken away."""

    revoked: int
    """How many grants."""
    kept_ms: int | None = None
    """Guarded work may go on: how much longer, at most, such grants are kept from others, ms."""
    holders: tuple[Holder, ...] = ()
    """Those who had them; the first 100."""


@dataclass(frozen=True)
class Message:
    """A broadcast to the project, or a push to this session."""

    project: str
    direct: bool
    payload: Any


@dataclass(frozen=True)
class Shutdown:
    """The agent ended the stream: `stopping`, `restarting`, `session_ended` or `lagged`. The session
    reconnects by itself unless it has ended."""

    cause: str


@dataclass(frozen=True)
class Missed:
    """So many events were dropped here because nobody took them."""

    count: int


Event = Union[
    Snapshot, Queued, Granted, Jeopardy, Safe, Lost, Released, Standing, Message, Shutdown, Missed
]


def parse_holder(data: Mapping[str, Any]) -> Holder:
    return Holder(
        host=data.get("host", ""),
        name=data.get("name", ""),
        since_ms=data.get("since_ms", 0),
        token=data.get("token", 0),
        pid=data.get("pid"),
        uid=data.get("uid"),
        hold=data.get("hold"),
        user=data.get("user"),
        command=data.get("command"),
        kept_ms=data.get("kept_ms"),
        ended_ms=data.get("ended_ms"),
    )


def _parse_fields(sort: type[F], data: Json) -> F:
    """The fields that this version knows."""
    return sort(**{one.name: data[one.name] for one in fields(sort) if one.name in data})


def parse_history(data: Json) -> tuple[HistoryEntry, ...]:
    return tuple(_parse_fields(HistoryEntry, change) for change in data.get("changes", []))


def parse_agents(data: Json) -> tuple[AgentView, ...]:
    return tuple(_parse_fields(AgentView, agent) for agent in data.get("agents", []))


def parse_revoked(data: Json) -> Revoked:
    return Revoked(data["revoked"], data.get("kept_ms"), tuple(parse_holder(holder) for holder in data.get("from", [])))


def parse_standing(data: Json) -> Standing:
    holders = tuple(parse_holder(holder) for holder in data.get("holders", []))
    waiters = tuple(_parse_fields(Waiter, waiter) for waiter in data.get("waiters", []))
    holding, waiting = data.get("holding", len(holders)), data.get("waiting", len(waiters))
    return Standing(data["kind"], data["name"], holders, data.get("limit"), data, waiters, holding, waiting)


def parse(name: str, text: str) -> Event | None:
    """Reads an event; None for a name that this version does not know. Raises ValueError, KeyError or
    TypeError when the data is not what the name promises."""
    data: Json = json.loads(text)
    if name == "snapshot":
        return Snapshot(data["role"], tuple(HoldView.parse(view) for view in data["holds"]))
    if name == "granted":
        return Granted(HoldView.parse(data))
    if name == "safe":
        return Safe(HoldView.parse(data))
    if name == "standing":
        return parse_standing(data)
    if name == "message":
        return Message(data["project"], data["direct"], data["payload"])
    if name == "shutdown":
        return Shutdown(data["cause"])
    if name not in ("queued", "jeopardy", "lost", "released"):
        return None
    of: tuple[str, str, str] = data["hold"], data["kind"], data["name"]
    if name == "queued":
        return Queued(*of, data["position"])
    if name == "jeopardy":
        return Jeopardy(*of, data["token"], data["cause"], data["valid_ms"] / 1000)
    if name == "lost":
        word: str = data["reason"]
        what = f"{data['kind']}/{data['name']}"
        return Lost(Reason.parse(word), data["token"], what, _by(data.get("by")), word, data["hold"], data.get("detail"))
    return Released(*of, data.get("token"), data["cause"])


def _by(by: Any) -> str | None:
    return by if by is None or isinstance(by, str) else json.dumps(by)
