"""The package for asyncio; the twin of what `tenure` has for threads.

A lost hold cancels the task that runs its `async with` block, and the block raises `Lost`. A
cancellation from elsewhere stays one.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import sys
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from . import _fleet
from ._awaiting import AsyncIo
from ._cell import Cell
from ._effects import Steps
from ._feed import Feed
from ._hold import HoldFacts
from ._kinds import Duration, Kinds, Module, Want, given, seconds
from ._life import AnyCore, Life
from ._standby import Standby
from ._watch import UNTOLD_MAX
from .errors import Busy, Lost, WrongLoop
from .events import AgentView, Event, HistoryEntry, Revoked, Standing, Why

P = ParamSpec("P")
R = TypeVar("R")
Ending = Callable[[], Coroutine[Any, Any, bool]]
"""Waits for the end of a hold."""


class _Held(HoldFacts):
    __slots__ = ("_cancelled", "_cancelling", "_life", "_task")

    def __init__(self, life: Life, core: AnyCore, cell: Cell) -> None:
        super().__init__(core, cell)
        self._life = life
        self._task: asyncio.Task[Any] | None = None
        self._cancelled = False
        self._cancelling = 0

    @property
    def lost(self) -> Lost | None:
        """How it was lost; None while it is held, when it was released, and where the page shows it as over
        before a reason has come."""
        self._life.end_with_loop()
        return super().lost

    async def release(self) -> None:
        """Gives it back, so that the next waiter anywhere has it at once. Stop the guarded work before.
        Raises `Lost` when it had been lost. An agent that cannot be asked is told in the background."""
        loss = await self._give_back()
        if loss is not None:
            raise loss

    async def _give_back(self) -> Lost | None:
        """Gives it back; returns how it was lost before."""
        _check_loop(self._life)
        cell = self._cell
        if not cell.released and not self.is_held():
            # What was done after valid-until was not guarded.
            await self._wait_for_word()
        await _run(self._life, self._core.release(cell))
        return None if cell.released else cell.loss()

    async def wait_until_over(self, timeout: Duration | None = None) -> bool:
        """Waits until it is lost or released; False when the time was over first."""
        return await _over(self._life, self._cell, seconds(timeout))

    async def _enter(self) -> None:
        _check_loop(self._life)
        task = asyncio.current_task()
        assert task is not None, "a coroutine runs in a task"
        self._task = task
        # Another task may have asked for the hold, such as that of a time-out.
        self._cell.actor = self._life.io.actor()
        self._cancelled = False
        if sys.version_info >= (3, 11):
            self._cancelling = task.cancelling()
        loop = asyncio.get_running_loop()
        # Not at once: `check` may notice the loss in this very task.

        def lost(_: Lost) -> None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._cancel)

        self.on_lost(lost)

    async def _leave(self, error: BaseException | None) -> Lost | None:
        """Gives it back at the end of a block; returns how it was lost if that is how the block ended."""
        task, self._task = self._task, None
        is_our_cancel = False
        if self._cancelled and task is not None:
            is_our_cancel = isinstance(error, asyncio.CancelledError)
            if sys.version_info >= (3, 11) and task.uncancel() > self._cancelling:
                # Somebody else wants the task to end, too.
                is_our_cancel = False
        loss = await self._give_back()
        if loss is not None and isinstance(error, Lost) and error.hold == self.id:
            error.reason, error.by, error.word = loss.reason, loss.by, loss.word
            return error
        return loss if error is None or is_our_cancel else None

    def _cancel(self) -> None:
        if self._task is not None and not self._cancelled:
            self._cancelled = True
            self._task.cancel(f"{self._cell.what} was lost")

    async def _wait_for_word(self) -> None:
        if self._core.connected and self._cell.awaits_word():
            # The event with the agent's reason is on its way.
            await self._cell.explained.wait(UNTOLD_MAX)

    def _loss(self) -> Lost:
        self._life.end_with_loop()
        return super()._loss()

    def __del__(self) -> None:
        cell = self._cell
        if not cell.is_over() and not sys.is_finalizing():
            self._core.release_in_background(cell)


class Hold(_Held):
    """With `async with` the block is cancelled at the loss, raises `Lost`, and releases at its end."""

    __slots__ = ()

    async def __aenter__(self) -> Hold:
        await self._enter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        loss = await self._leave(error)
        if loss is not None and loss is not error:
            raise loss from None


class Term(_Held):
    """A hold of a campaign: its block is cancelled at the loss and ends quietly, and the next term follows."""

    __slots__ = ()

    async def __aenter__(self) -> Term:
        await self._enter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return await self._leave(error) is not None


class Acquisition:
    """Await it for a hold, or use it as `async with`."""

    def __init__(self, begin: Callable[[], Coroutine[Any, Any, Hold]]) -> None:
        self._begin = begin
        self._hold: Hold | None = None

    def __await__(self) -> Generator[Any, None, Hold]:
        return self._begin().__await__()

    async def __aenter__(self) -> Hold:
        self._hold = await self._begin()
        return await self._hold.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._hold is not None, "it was entered"
        await self._hold.__aexit__(kind, error, trace)


class Resource:
    """Something that may be acquired. With `async with` it is acquired at the beginning and released at
    the end of the block, which is cancelled at the loss and then raises `Lost`."""

    def __init__(self, life: Callable[[Want], Life], want: Want) -> None:
        self._find_life = life
        self._want = want
        self._entered: dict[asyncio.Task[Any] | None, list[Acquisition]] = {}

    if not TYPE_CHECKING:

        def __enter__(self) -> None:
            raise TypeError("tenure.aio is for coroutines: write `async with`, or `with tenure.leader(…)` in threads")

        def __exit__(self, *_: object) -> None: ...

    def acquire(self, timeout: Duration | None = None) -> Acquisition:
        """Waits for it: None for as long as the resource says, 0 to try once. Raises `Busy`, and at once where this task
        has it, or one that awaits this one. A wait behind what cannot be known, such as a future of an executor, goes on."""
        wait = self._want.wait if timeout is None else seconds(timeout)
        return Acquisition(lambda: self._acquire(wait))

    def campaign(self) -> Campaign:
        """Term after term; see `tenure.aio.campaign`."""
        return Campaign(self._term)

    async def standing(self) -> Standing:
        """Its holders and waiters, across the fleet."""
        life = self._find_life(self._want)
        return await _run(life, life.standing(self._want))

    async def history(self) -> tuple[HistoryEntry, ...]:
        """The last changes of who held it, across the fleet, newest first: 50 at most, of the last 7 days."""
        life = self._find_life(self._want)
        return await _run(life, _fleet.history(life, self._want))

    async def why(self) -> Why:
        """Who has it, who waits for it, and how it came to that."""
        life = self._find_life(self._want)
        return await _run(life, _fleet.why(life, self._want))

    async def revoke(
        self, reason: str | None = None, *, barred_for: Duration | None = None, token: int | None = None
    ) -> Revoked:
        """Takes it away from its holders, or from the one with that token; for root and the agent's own user.
        `reason` is told to those who lose it; for `barred_for` they may not have it again."""
        life = self._find_life(self._want)
        return await _run(life, _fleet.revoke(life, self._want, reason, barred_for, token))

    async def _acquire(self, wait: float | None) -> Hold:
        life = self._find_life(self._want)
        return Hold(life, *await _run(life, life.acquire(self._want, wait)))

    async def _term(self, standby: Standby | None) -> tuple[Term, Ending, Standby]:
        life = self._find_life(self._want)
        core, cell = await _run(life, life.acquire(self._want, None, standby))
        # Without the term itself: one that nobody keeps is given back.
        return Term(life, core, cell), functools.partial(_over, life, cell), Standby(core, cell, self._want)

    async def __aenter__(self) -> Hold:
        acquisition = self.acquire()
        hold = await acquisition.__aenter__()
        self._entered.setdefault(asyncio.current_task(), []).append(acquisition)
        return hold

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task = asyncio.current_task()
        acquisition = self._entered[task].pop()
        if not self._entered[task]:
            del self._entered[task]
        await acquisition.__aexit__(kind, error, trace)

    def __repr__(self) -> str:
        return f"<{self._want.what}>"


class Campaign:
    """An iterator over terms, each a hold of its own with a token of its own. It waits for the end of a
    term before it begins the next one. A term's `async with` block is cancelled when the term is
    lost, and ends quietly.

    While the work of a lost term still ends, it stands in line for the next one already: its place in the queue is
    not lost. A grant that comes meanwhile is kept for one ttl at most. It is given back then, and the campaign stands
    in line again once the work has ended."""

    def __init__(self, begin: Callable[[Standby | None], Coroutine[Any, Any, tuple[Term, Ending, Standby]]]) -> None:
        self._begin = begin
        self._end_of_last: Ending | None = None
        self._standby: Standby | None = None

    def __aiter__(self) -> AsyncIterator[Term]:
        return self

    async def __anext__(self) -> Term:
        if self._end_of_last is not None:
            await self._end_of_last()
        standby, self._standby = self._standby, None
        try:
            term, self._end_of_last, self._standby = await self._begin(standby)
        except BaseException:
            if standby is not None:
                standby.give_up()
            raise
        return term

    def __del__(self) -> None:
        standby = self.__dict__.get("_standby")
        if standby is not None and not sys.is_finalizing():
            standby.give_up()


class Session(Kinds[Resource]):
    """A registration with the agent, for the event loop of its first use. Begun then, and anew when the agent
    has ended it or that loop is closed; the holds of before are then lost, and say so. In another loop than an
    open one it raises `WrongLoop`."""

    def __init__(self, socket: str | os.PathLike[str] | None, register: dict[str, Any]) -> None:
        self._socket = socket
        self._register = register
        self._opened: Life | None = None

    async def open(self) -> Session:
        """Registers now, not at first use."""
        await _run(self._life, self._life.live())
        return self

    async def close(self) -> None:
        """Ends it, and releases all its holds."""
        await _run(self._life, self._life.close())

    async def beat(self) -> None:
        """Says that the program gets on; only needed where `progress` was promised."""
        await _run(self._life, self._life.call("/v1/beat"))

    async def checkpoint(self) -> dict[str, Any]:
        """Renews everything of the session now; returns the agent's answer."""
        return await _run(self._life, self._life.call("/v1/checkpoint"))

    async def list(self, kind: str | None = None, glob: str | None = None) -> tuple[Standing, ...]:
        """All that is held or waited for in the fleet: of a kind, with a name that a glob matches. What comes or
        goes meanwhile may be missed."""
        return await _run(self._life, _fleet.listed(self._life, kind, glob))

    async def agents(self) -> tuple[AgentView, ...]:
        """The agents of the same store, this one first. Where rules of the agent bound the caller, this one alone."""
        return await _run(self._life, _fleet.agents(self._life))

    def events(self) -> AsyncGenerator[Event, None]:
        """What happens from now on, until the session ends; before it is opened, from the first `anext` on."""
        life = self._life
        _check_loop(life)
        core = life.core
        return self._take(life, core, core.subscribe() if core is not None else None)

    async def _take(self, life: Life, core: AnyCore | None, feed: Feed | None) -> AsyncGenerator[Event, None]:
        if core is None or feed is None:
            life = self._life
            core = await _run(life, life.live())
            feed = core.subscribe()
        try:
            while (event := await _run(life, feed.next())) is not None:
                yield event
        finally:
            core.unsubscribe(feed)

    @property
    def _life(self) -> Life:
        life = self._opened
        if life is None or (life.io.is_over() and not life.closed):
            # Here, where the loop is known.
            io = AsyncIo(asyncio.get_running_loop())
            life = self._opened = Life(io, self._socket, self._register, [life] if life else [])
        return life

    def _resource(self, want: Want) -> Resource:
        return Resource(lambda _: self._life, want)

    async def __aenter__(self) -> Session:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __del__(self) -> None:
        life = self.__dict__.get("_opened")
        if life is not None and not sys.is_finalizing():
            life.drop()


class _Default(Module[Resource, Session]):
    """The sessions of a program that names none: one for each project in each event loop."""

    def __init__(self) -> None:
        self._lives: dict[asyncio.AbstractEventLoop, dict[str | None, Life]] = {}
        self._lock = threading.Lock()

    def _resource(self, want: Want) -> Resource:
        return Resource(self._find, want)

    def _session(self, socket: str | os.PathLike[str] | None, register: dict[str, Any]) -> Session:
        return Session(socket, register)

    def _find(self, want: Want) -> Life:
        loop, closed = asyncio.get_running_loop(), list[Life]()
        lives = self._lives.get(loop)
        if lives is None:
            with self._lock:
                # A session refers to its loop, so that no weak reference would let a closed one go.
                for one in [one for one in self._lives if one.is_closed()]:
                    closed += self._lives.pop(one).values()
                lives = self._lives[loop] = {}
        if want.project not in lives:
            lives[want.project] = Life(AsyncIo(loop), None, given(tether="connection", project=want.project), closed)
        return lives[want.project]

    def forked(self) -> None:
        # A thread that is not here may have held it.
        self._lock = threading.Lock()


_default = _Default()
leader = _default.leader
lease = _default.lease
semaphore = _default.semaphore
master = _default.master
session = _default.session
os.register_at_fork(after_in_child=_default.forked)


def campaign(
    name: str, *, ttl: Duration | None = None, max_hold: Duration | None = None, fleet: bool = False
) -> Campaign:
    """Stands for leadership for good: `async for term in campaign(…): async with term: …`. Breaking out
    resigns."""
    return leader(name, ttl=ttl, max_hold=max_hold, fleet=fleet).campaign()


def leader_only(
    name: str, *, wait: Duration | None = 0, fleet: bool = False
) -> Callable[[Callable[P, Coroutine[Any, Any, R]]], Callable[P, Coroutine[Any, Any, R | None]]]:
    """Runs the coroutine function as leader; returns None without running it when somebody else leads."""

    def decorate(function: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R | None]]:
        @functools.wraps(function)
        async def only(*args: P.args, **kwargs: P.kwargs) -> R | None:
            try:
                hold = await leader(name, wait=wait, fleet=fleet).acquire()
            except Busy:
                return None
            async with hold:
                return await function(*args, **kwargs)

        return only

    return decorate


def limited(
    name: str, limit: int | None = None, *, wait: Duration | None = None, fleet: bool = False
) -> Callable[[Callable[P, Coroutine[Any, Any, R]]], Callable[P, Coroutine[Any, Any, R]]]:
    """Runs the coroutine function with a permit of that semaphore. Raises `Busy` when none is free in
    time."""

    def decorate(function: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, Coroutine[Any, Any, R]]:
        @functools.wraps(function)
        async def one(*args: P.args, **kwargs: P.kwargs) -> R:
            async with semaphore(name, limit, wait=wait, fleet=fleet):
                return await function(*args, **kwargs)

        return one

    return decorate


def _check_loop(life: Life) -> None:
    """Raises `WrongLoop` in another loop than the session's; ends the session where its own is closed."""
    loop = cast(AsyncIo, life.io).loop
    if asyncio._get_running_loop() is loop:
        return
    if not life.io.is_over():
        session = f"the session {life.name!r}" if life.name else "the session"
        raise WrongLoop(
            f"{session} belongs to another event loop, {loop}: a session is for one loop until that is closed; "
            "make one with `tenure.aio.session()` in each loop, or `tenure.session()` for threads"
        )
    life.end_with_loop()


async def _over(life: Life, cell: Cell, timeout: float | None = None) -> bool:
    _check_loop(life)
    return bool(await cell.over.wait(timeout))


async def _run(life: Life, steps: Steps[R]) -> R:
    _check_loop(life)
    return await cast(AsyncIo, life.io).run(steps)
