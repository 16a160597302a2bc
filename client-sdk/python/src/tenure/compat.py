"""Drop-in classes for programs that come from other packages.

Redis keys are the same: a `redis.lock.Lock` named `leader:NAME` and the leader NAME exclude each other
while the agents use that Redis, so that programs can move one by one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from . import aio
from ._sync import Hold, Session, leader, session
from ._hold import HoldFacts
from .errors import Busy, Lost, TenureError

_PREFIX = "leader:"


class LockError(TenureError):
    """As redis-py's."""


class LockNotOwnedError(LockError):
    """As redis-py's: the lock was lost."""


class Lock:
    """The signature of `redis.lock.Lock`. The first argument may be a Redis client, which is not used.

    `timeout` is how long the lock outlives its last heartbeat, as the key's expiry is there; but the agent
    sends heartbeats for as long as the program lives, so that `extend` has nothing to do. A name that
    begins with `leader:` is taken without it. `sleep` and `thread_local` are accepted
    and mean nothing: nobody polls, and a token belongs to its lock object.
    """

    def __init__(
        self,
        redis: Any,
        name: str,
        timeout: float | None = None,
        sleep: float = 0.1,
        blocking: bool = True,
        blocking_timeout: float | None = None,
        thread_local: bool = True,
        raise_on_release_error: bool = True,
    ) -> None:
        self.name = name
        self.timeout = timeout
        self.blocking = blocking
        self.blocking_timeout = blocking_timeout
        self.raise_on_release_error = raise_on_release_error
        self._hold: Hold | None = None
        # Its own, since two locks of one program exclude each other.
        self._session: Session | None = None

    def acquire(
        self,
        sleep: float | None = None,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: str | None = None,
    ) -> bool:
        """True once it is held, False if it was not free in time."""
        blocks = self.blocking if blocking is None else blocking
        patience = self.blocking_timeout if blocking_timeout is None else blocking_timeout
        own = session()
        try:
            name = self.name.removeprefix(_PREFIX)
            hold = own.leader(name, wait=patience if blocks else 0, ttl=self.timeout).acquire()
        except BaseException as error:
            own.close()
            if isinstance(error, Busy):
                return False
            raise
        self._hold, self._session = hold, own
        return True

    def release(self) -> None:
        hold, self._hold = self._hold, None
        own, self._session = self._session, None
        if hold is None or own is None:
            if self.raise_on_release_error:
                raise LockError("Cannot release an unlocked lock")
            return
        try:
            hold.release()
        except Lost as lost:
            if self.raise_on_release_error:
                raise LockNotOwnedError(str(lost)) from lost
        finally:
            own.close()

    def locked(self) -> bool:
        """True if anybody has it."""
        return bool(leader(self.name.removeprefix(_PREFIX)).standing().holders)

    def owned(self) -> bool:
        """True if this object has it."""
        return self._hold is not None and self._hold.is_held()

    def extend(self, additional_time: float, replace_ttl: bool = False) -> bool:
        """True if it is held: the agent renews it by itself."""
        return self._owned_or_raise()

    def reacquire(self) -> bool:
        """True if it is held: the agent renews it by itself."""
        return self._owned_or_raise()

    def _owned_or_raise(self) -> bool:
        if self._hold is None:
            raise LockError("Cannot extend an unlocked lock")
        try:
            self._hold.check()
        except Lost as lost:
            raise LockNotOwnedError(str(lost)) from lost
        return True

    def __enter__(self) -> Lock:
        if self.acquire():
            return self
        raise LockError("Unable to acquire lock within the time specified")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class LeaderElection:
    """Continuous or one-shot election for asyncio.

        election = LeaderElection("cleanup-worker")       async with LeaderElection("daily-report") as election:
        await election.start()                                if election.is_leader:
        while running:                                            await generate_report()
            if election.is_leader:
                await do_cleanup()
        await election.stop()

    `async with` tries once; `start` stands for it until `stop`.
    """

    def __init__(self, role: str, redis: Any = None, lease_ttl: float | None = None, **ignored: Any) -> None:
        self.role = role
        self._lease_ttl = lease_ttl
        # Its own, since two elections of one program are rivals.
        self._session: aio.Session | None = None
        self._hold: HoldFacts | None = None
        self._one_shot: aio.Hold | None = None
        self._campaign: asyncio.Task[None] | None = None
        self.on_elected: Callable[[], Awaitable[object]] | None = None
        self.on_lost: Callable[[], Awaitable[object]] | None = None

    @property
    def is_leader(self) -> bool:
        """By the clock, at this instant."""
        return self._hold is not None and self._hold.is_held()

    @property
    def token(self) -> int | None:
        """The fencing token of the term."""
        return self._hold.token if self._hold is not None and self.is_leader else None

    async def start(self) -> None:
        """Begins to stand for it in the background."""
        if self._campaign is None:
            self._campaign = asyncio.create_task(self._stand())

    async def stop(self) -> None:
        """Resigns."""
        campaign, self._campaign = self._campaign, None
        if campaign is not None:
            campaign.cancel()
            await asyncio.wait([campaign])
        hold, self._one_shot, self._hold = self._one_shot, None, None
        if hold is not None:
            try:
                await hold.release()
            except Lost:
                pass
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _resource(self) -> aio.Resource:
        self._session = self._session or aio.session()
        return self._session.leader(self.role, wait=0, ttl=self._lease_ttl)

    async def _stand(self) -> None:
        async for term in self._resource().campaign():
            self._hold = term
            try:
                if self.on_elected is not None:
                    await self.on_elected()
                await term.wait_until_over()
            finally:
                self._hold = None
                if not term.lost:
                    await term.release()
            if self.on_lost is not None:
                await self.on_lost()

    async def __aenter__(self) -> LeaderElection:
        try:
            self._one_shot = await self._resource().acquire()
        except Busy:
            return self
        self._hold = self._one_shot
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()


@dataclass(frozen=True)
class AcquisitionResult:
    acquisition_id: str
    slot_number: int
    """How many permits were taken, this one counted, as far as this object knows."""


class RedisSemaphore:
    """The class of asyncio-advanced-semaphores: `async with semaphore.cm(): …`, or `acquire` and `release`.

    `ttl` is how long a permit may be held in all, as there; the heartbeat is the agent's. `config` is
    accepted and not used: the agent knows its Redis.
    """

    def __init__(
        self,
        name: str,
        value: int,
        max_acquire_time: float | None = None,
        ttl: float | None = None,
        config: Any = None,
        **ignored: Any,
    ) -> None:
        self.name = name
        self.value = value
        self._resource = aio.semaphore(name, value, wait=max_acquire_time, max_hold=ttl)
        self._holds: dict[str, aio.Hold] = {}

    async def acquire(self) -> AcquisitionResult:
        """Waits for a permit. Raises `Busy`, which is a TimeoutError, after `max_acquire_time`."""
        hold = await self._resource.acquire()
        self._holds[hold.id] = hold
        return AcquisitionResult(hold.id, len(self._holds))

    async def release(self, acquisition_id: str) -> None:
        """Gives a permit back; one that was lost is nothing to give back."""
        hold = self._holds.pop(acquisition_id, None)
        if hold is not None:
            try:
                await hold.release()
            except Lost:
                pass

    async def locked(self) -> bool:
        """True if no permit is free."""
        standing = await self._resource.standing()
        return len(standing.holders) >= (standing.limit or self.value)

    @asynccontextmanager
    async def cm(self) -> AsyncGenerator[AcquisitionResult, None]:
        """A permit for a block, which is cancelled if the permit is lost."""
        async with self._resource as hold:
            yield AcquisitionResult(hold.id, len(self._holds) + 1)
