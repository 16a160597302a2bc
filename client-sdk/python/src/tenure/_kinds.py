"""What may be asked for: the four kinds with their options, said once for sessions and modules, for
threads and asyncio."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, TypeVar, Union

Json = dict[str, Any]
R = TypeVar("R")
S = TypeVar("S")

Duration = Union[float, int, timedelta]
"""Seconds, or a timedelta."""


def seconds(duration: Duration | None) -> float | None:
    if duration is None:
        return None
    value = duration.total_seconds() if isinstance(duration, timedelta) else float(duration)
    if value < 0:
        raise ValueError(f"{duration!r} is less than nothing: give seconds, or a timedelta")
    return value


def milliseconds(duration: Duration | None) -> int | None:
    value = seconds(duration)
    return None if value is None else round(value * 1000)


def given(**fields: Any) -> Json:
    """The fields that are not None."""
    return {key: value for key, value in fields.items() if value is not None}


@dataclass(frozen=True)
class Want:
    """A resource, and how it is asked for."""

    kind: str
    name: str | None
    project: str | None
    fields: Json
    wait: float | None
    """Seconds to wait; 0 to try once, None for ever."""

    @property
    def what(self) -> str:
        return f"{self.kind}/{self.name or self.project or 'default'}"

    def body(self) -> Json:
        return given(kind=self.kind, name=self.name, **self.fields)


class Kinds(ABC, Generic[R]):
    """`wait` is how long to wait: None for ever, 0 to try once. `ttl` is how long the hold outlives its
    last heartbeat, which the agent sends; `max_hold` how long it may last in all. `hold_at_least` keeps it
    from others for so long after its grant, whatever becomes of the program: 24 hours at most. With `fleet`
    it is `Refused` where the agent's store is this host's alone, so that other hosts could hold it, too."""

    @abstractmethod
    def _resource(self, want: Want) -> R: ...

    def leader(
        self,
        name: str,
        *,
        wait: Duration | None = None,
        ttl: Duration | None = None,
        max_hold: Duration | None = None,
        hold_at_least: Duration | None = None,
        fleet: bool = False,
    ) -> R:
        """One holder per name: a lock, also among the threads and tasks of one program."""
        return self._want("leader", name, wait, ttl, max_hold, hold_at_least, fleet)

    def semaphore(
        self,
        name: str,
        limit: int | None = None,
        *,
        wait: Duration | None = None,
        ttl: Duration | None = None,
        max_hold: Duration | None = None,
        hold_at_least: Duration | None = None,
        fleet: bool = False,
    ) -> R:
        """As many permits as the limit says, first come first served. A limit other than the one in force
        changes it for everybody; None takes the one in force."""
        return self._want("semaphore", name, wait, ttl, max_hold, hold_at_least, fleet, limit=limit)

    def lease(
        self,
        name: str,
        *,
        wait: Duration | None = None,
        ttl: Duration | None = None,
        max_hold: Duration | None = None,
        hold_at_least: Duration | None = None,
        fleet: bool = False,
        grace: Duration | None = None,
        address: str | None = None,
        proxy_id: str | None = None,
        partition: int | None = None,
        status: str | None = None,
    ) -> R:
        """One holder with an address, listed in the routing table. During `grace` after expiry only the
        former holder may have it."""
        attributes = given(address=address, proxy_id=proxy_id, partition=partition, status=status)
        return self._want(
            "lease", name, wait, ttl, max_hold, hold_at_least, fleet, grace_ms=milliseconds(grace), attributes=attributes or None
        )

    def master(
        self,
        *,
        project: str | None = None,
        priority: int | None = None,
        wait: Duration | None = None,
        ttl: Duration | None = None,
        max_hold: Duration | None = None,
        hold_at_least: Duration | None = None,
        fleet: bool = False,
    ) -> R:
        """The master of the session's project. A higher priority takes it from a lower one."""
        return self._want("master", None, wait, ttl, max_hold, hold_at_least, fleet, project=project, priority=priority)

    def _want(
        self,
        kind: str,
        name: str | None,
        wait: Duration | None,
        ttl: Duration | None,
        max_hold: Duration | None,
        hold_at_least: Duration | None,
        fleet: bool,
        *,
        project: str | None = None,
        **fields: Any,
    ) -> R:
        terms = given(
            ttl_ms=milliseconds(ttl),
            max_hold_ms=milliseconds(max_hold),
            hold_at_least_ms=milliseconds(hold_at_least),
            # Agents of earlier versions do not know the field.
            fleet=fleet or None,
            **fields,
        )
        return self._resource(Want(kind, name, project, terms, seconds(wait)))


class Module(Kinds[R], Generic[R, S]):
    """What a module offers to programs that name no session, and to those that want one of their own."""

    @abstractmethod
    def _session(self, socket: str | os.PathLike[str] | None, register: Json) -> S: ...

    def session(
        self,
        name: str | None = None,
        *,
        socket: str | os.PathLike[str] | None = None,
        surface: str | None = None,
        tenant: str | None = None,
        project: str | None = None,
        progress: Duration | None = None,
        linger: Duration | None = None,
        ttl: Duration | None = None,
        holds: int | None = None,
    ) -> S:
        """A session of one's own. `progress` promises to call `beat()` at least that often; `holds` is how
        many it may have at once (63 unless said otherwise)."""
        register = given(
            # No heartbeat is the program's.
            tether="connection",
            name=name,
            surface=surface,
            tenant=tenant,
            project=project,
            progress_ms=milliseconds(progress),
            linger_ms=milliseconds(linger),
            ttl_ms=milliseconds(ttl),
            holds=holds,
        )
        return self._session(socket, register)
