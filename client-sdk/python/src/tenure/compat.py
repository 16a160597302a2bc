"""Drop-in classes for programs that come from other packages.

Redis keys are the same: a `redis.lock.Lock` named `leader:NAME` and the leader NAME exclude each other
while the agents use that Redis, so that programs can move one by one.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from types import SimpleNamespace, TracebackType
from typing import TYPE_CHECKING, Any

from . import aio
from ._calls import Backoff
from ._hold import HoldFacts
from ._sync import Hold, Session, leader
from .aio import leader_only as leader_only
from .errors import Busy, Lost, TenureError

if TYPE_CHECKING:
    from builtins import Exception as _LockError, Exception as _LockNotOwnedError
else:
    # So that what a program catches today still catches it.
    try:
        from redis.exceptions import LockError as _LockError, LockNotOwnedError as _LockNotOwnedError
    except ImportError:
        _LockError = _LockNotOwnedError = Exception

_log = logging.getLogger("tenure")
_PREFIX = "leader:"
# The bounds of the agent for a ttl, seconds.
_TTL_MIN, _TTL_MAX = 0.3, 86_400.0


class LockError(TenureError, _LockError):
    """As redis-py's, and where redis-py is installed one of those."""


class LockNotOwnedError(LockError, _LockNotOwnedError):
    """As redis-py's: the lock was lost."""


_IDLE_SESSIONS_MAX = 4
# Sessions that no lock uses; each thread that wants one takes the latest.
_idle: list[Session] = []


def close_idle() -> None:
    """Ends the sessions that locks of before have left for those to come."""
    while _idle:
        _idle.pop().close()


class Lock:
    """The signature of `redis.lock.Lock`. The first argument may be a Redis client, which is not used.

    `timeout` is how long the lock outlives its last heartbeat, as the key's expiry is there, within the
    agent's bounds of 0.3 s and 24 h; but the agent sends heartbeats for as long as the program lives, so that
    `extend` has nothing to do. A name that begins with `leader:` is taken without it. `sleep` and the `token` of
    `acquire` are accepted and mean nothing: nobody polls, and tokens are the agents'.
    """

    def __init__(
        self,
        redis: Any,
        name: str | bytes,
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
        self.thread_local = thread_local
        self.raise_on_release_error = raise_on_release_error
        text = name.decode() if isinstance(name, bytes) else name
        self._role = text.removeprefix(_PREFIX)
        # As there: what one thread holds another one cannot give back.
        self._mine: Any = threading.local() if thread_local else SimpleNamespace()

    def acquire(
        self,
        sleep: float | None = None,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: str | bytes | None = None,
    ) -> bool:
        """True once it is held, False if it was not free in time."""
        blocks = self.blocking if blocking is None else blocking
        patience = self.blocking_timeout if blocking_timeout is None else blocking_timeout
        wait = 0.0 if not blocks else None if patience is None else max(0.0, patience)
        ttl = min(max(self.timeout, _TTL_MIN), _TTL_MAX) if self.timeout else None
        # Its own while it is held, since two locks of one program exclude each other.
        own = _take_idle()
        try:
            hold = own.leader(self._role, wait=wait, ttl=ttl).acquire()
        except BaseException as error:
            _give_idle(own)
            if isinstance(error, Busy):
                return False
            raise
        self._mine.held = hold, own
        return True

    def release(self) -> None:
        held: tuple[Hold, Session] | None = getattr(self._mine, "held", None)
        if held is None:
            raise LockError("Cannot release a lock that's not owned or is already unlocked.")
        self._mine.held = None
        hold, own = held
        try:
            hold.release()
        except Lost as lost:
            raise LockNotOwnedError(str(lost)) from lost
        finally:
            _give_idle(own)

    def locked(self) -> bool:
        """True if anybody has it."""
        return bool(leader(self._role).standing().holders)

    def owned(self) -> bool:
        """True if this object has it, in this thread."""
        hold = self._hold
        return hold is not None and hold.is_held()

    def extend(self, additional_time: float, replace_ttl: bool = False) -> bool:
        """True if it is held: the agent renews it by itself."""
        return self._owned_or_raise("extend")

    def reacquire(self) -> bool:
        """True if it is held: the agent renews it by itself."""
        return self._owned_or_raise("reacquire")

    @property
    def _hold(self) -> Hold | None:
        held: tuple[Hold, Session] | None = getattr(self._mine, "held", None)
        return held and held[0]

    def _owned_or_raise(self, what: str) -> bool:
        hold = self._hold
        if hold is None:
            raise LockError(f"Cannot {what} an unlocked lock")
        try:
            hold.check()
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
        try:
            self.release()
        except LockError as failure:
            if self.raise_on_release_error:
                raise
            _log.warning("%s", failure)


def _take_idle() -> Session:
    try:
        return _idle.pop()
    except IndexError:
        # As in redis-py, a thread waits even for its own lock: another thread may release it.
        return Session(None, {"tether": "connection"}, knows_actors=False)


def _give_idle(own: Session) -> None:
    if len(_idle) < _IDLE_SESSIONS_MAX:
        _idle.append(own)
    else:
        own.close()


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
        if not self._stands():
            self._campaign = asyncio.create_task(self._stand())

    async def stop(self) -> None:
        """Resigns."""
        campaign = self._campaign if self._stands() else None
        self._campaign = None
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

    def _stands(self) -> bool:
        """False also where its event loop was closed before `stop`."""
        campaign = self._campaign
        return campaign is not None and not campaign.done() and not campaign.get_loop().is_closed()

    def _resource(self) -> aio.Resource:
        self._session = self._session or aio.session()
        return self._session.leader(self.role, wait=0, ttl=self._lease_ttl)

    async def _stand(self) -> None:
        backoff, told = Backoff(), ""
        while True:
            try:
                async for term in self._resource().campaign():
                    backoff, told = Backoff(), ""
                    await self._serve(term)
            except TenureError as error:
                # No agent, or one that refuses: nobody leads here until that is over.
                if str(error) != told:
                    told = str(error)
                    _log.warning("the election of %s goes on: %s", self.role, told)
                await asyncio.sleep(backoff.step())

    async def _serve(self, term: aio.Term) -> None:
        self._hold = term
        try:
            await self._tell("on_elected", self.on_elected)
            await term.wait_until_over()
        finally:
            self._hold = None
            if not term.lost:
                with suppress(Lost):
                    await term.release()
        await self._tell("on_lost", self.on_lost)

    async def _tell(self, name: str, callback: Callable[[], Awaitable[object]] | None) -> None:
        """A callback that fails ends no election."""
        try:
            if callback is not None:
                await callback()
        except Exception:
            _log.exception("%s of the election of %s failed", name, self.role)

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
