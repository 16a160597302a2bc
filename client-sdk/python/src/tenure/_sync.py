"""The package for threads; `aio.py` is its twin."""

from __future__ import annotations

import functools
import inspect
import os
import sys
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, cast

from . import _fleet
from ._blocking import BlockingIo
from ._cell import Cell
from ._effects import Signal, Steps
from ._hold import HoldFacts
from ._kinds import Duration, Kinds, Module, Want, given, seconds
from ._life import AnyCore, Life
from ._standby import Standby
from ._watch import UNTOLD_MAX
from .errors import Busy, Lost
from .events import AgentView, Event, HistoryEntry, Revoked, Standing, Why

P = ParamSpec("P")
R = TypeVar("R")


class _Held(HoldFacts):
    __slots__ = ("_life",)

    def __init__(self, life: Life, core: AnyCore, cell: Cell) -> None:
        super().__init__(core, cell)
        self._life = life

    def release(self) -> None:
        """Gives it back, so that the next waiter anywhere has it at once. Stop the guarded work before.
        Raises `Lost` when it had been lost. An agent that cannot be asked is told in the background."""
        loss = self._give_back()
        if loss is not None:
            raise loss

    def wait_until_over(self, timeout: Duration | None = None) -> bool:
        """Waits until it is lost or released; False when the time was over first."""
        return bool(self._cell.over.wait(seconds(timeout)))

    def _enter(self) -> None:
        # Another thread may have asked for the hold.
        self._cell.actor = self._life.io.actor()

    def _give_back(self) -> Lost | None:
        """Gives it back; returns how it was lost before."""
        cell = self._cell
        if not cell.released and not self.is_held():
            # What was done after valid-until was not guarded.
            self._loss()
        _run(self._life, self._core.release(cell))
        return None if cell.released else cell.loss()

    def _loss(self) -> Lost:
        if self._core.connected and self._cell.awaits_word():
            # The event with the agent's reason is on its way.
            self._cell.explained.wait(UNTOLD_MAX)
        return super()._loss()

    def __del__(self) -> None:
        cell = self._cell
        if not cell.is_over() and not sys.is_finalizing():
            self._core.release_in_background(cell)


class Hold(_Held):
    """As a context manager it is released at the end of the block, which raises `Lost` if it was lost."""

    __slots__ = ()

    def __enter__(self) -> Hold:
        self._enter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        loss = self._give_back()
        if error is None and loss is not None:
            raise loss


class Term(_Held):
    """A hold of a campaign: the end of its block is quiet about a loss, and the next term follows."""

    __slots__ = ()

    def __enter__(self) -> Term:
        self._enter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._give_back()
        return isinstance(error, Lost) and error.hold == self.id


class Resource:
    """Something that may be acquired. As a context manager it is acquired at the beginning and released at
    the end of the block; the end raises `Lost` if it was lost meanwhile."""

    def __init__(self, life: Callable[[Want], Life], want: Want) -> None:
        self._find_life = life
        self._want = want
        self._entered: list[tuple[int, Hold]] = []
        """By the thread that entered."""

    def acquire(self, timeout: Duration | None = None) -> Hold:
        """Waits for it: None for as long as the resource says, 0 to try once. Raises `Busy`, and at once where this thread
        has it, or one that joins this one. A wait behind what cannot be known, such as a future of an executor, goes on."""
        return self._acquire(self._want.wait if timeout is None else seconds(timeout))

    def campaign(self) -> Campaign:
        """Term after term; see `tenure.campaign`."""
        return Campaign(self._term)

    def standing(self) -> Standing:
        """Its holders and waiters, across the fleet."""
        life, want = self._find_life(self._want), self._want
        return _run(life, life.standing(want))

    def history(self) -> tuple[HistoryEntry, ...]:
        """The last changes of who held it, across the fleet, newest first: 50 at most, of the last 7 days."""
        life = self._find_life(self._want)
        return _run(life, _fleet.history(life, self._want))

    def why(self) -> Why:
        """Who has it, who waits for it, and how it came to that."""
        life = self._find_life(self._want)
        return _run(life, _fleet.why(life, self._want))

    def revoke(
        self, reason: str | None = None, *, barred_for: Duration | None = None, token: int | None = None
    ) -> Revoked:
        """Takes it away from its holders, or from the one with that token; for root and the agent's own user.
        `reason` is told to those who lose it; for `barred_for` they may not have it again."""
        life = self._find_life(self._want)
        return _run(life, _fleet.revoke(life, self._want, reason, barred_for, token))

    def _acquire(self, wait: float | None) -> Hold:
        life = self._find_life(self._want)
        return Hold(life, *_run(life, life.acquire(self._want, wait)))

    def _term(self, standby: Standby | None) -> tuple[Term, Signal, Standby]:
        life = self._find_life(self._want)
        core, cell = _run(life, life.acquire(self._want, None, standby))
        return Term(life, core, cell), cell.over, Standby(core, cell, self._want)

    def __enter__(self) -> Hold:
        hold = self._acquire(self._want.wait)
        self._entered.append((threading.get_ident(), hold))
        return hold

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        entered = list(self._entered)
        mine = [one for one in entered if one[0] == threading.get_ident()]
        if not mine and len(entered) != 1:
            raise RuntimeError(f"this thread has not entered {self!r}: use `with resource.acquire() as hold`")
        # A generator may be entered by one thread and left by another, as a dependency of FastAPI is.
        one = mine[-1] if mine else entered[0]
        self._entered.remove(one)
        one[1].__exit__(kind, error, trace)

    def __repr__(self) -> str:
        return f"<{self._want.what}>"


class Campaign:
    """An iterator over terms, each a hold of its own with a token of its own. It waits for the end of a
    term before it begins the next one. A term's `with` block ends quietly when the term is lost.

    While the work of a lost term still ends, it stands in line for the next one already: its place in the queue is
    not lost. A grant that comes meanwhile is kept for one ttl at most. It is given back then, and the campaign stands
    in line again once the work has ended."""

    def __init__(self, begin: Callable[[Standby | None], tuple[Term, Signal, Standby]]) -> None:
        self._begin = begin
        # Not the term itself: one that nobody keeps is given back.
        self._previous: Signal | None = None
        self._standby: Standby | None = None

    def __iter__(self) -> Iterator[Term]:
        return self

    def __next__(self) -> Term:
        if self._previous is not None:
            self._previous.wait()
        standby, self._standby = self._standby, None
        try:
            term, self._previous, self._standby = self._begin(standby)
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
    """A registration with the agent, for any number of threads. Begun at first use, and anew after a fork
    or when the agent has ended it; the holds of before are then lost, and say so."""

    def __init__(
        self, socket: str | os.PathLike[str] | None, register: dict[str, Any], *, knows_actors: bool = True
    ) -> None:
        self._life = Life(BlockingIo(), socket, register, knows_actors=knows_actors)

    @property
    def id(self) -> str:
        return _run(self._life, self._life.live()).id

    def open(self) -> Session:
        """Registers now, not at first use."""
        _run(self._life, self._life.live())
        return self

    def close(self) -> None:
        """Ends it, and releases all its holds."""
        _run(self._life, self._life.close())

    def beat(self) -> None:
        """Says that the program gets on; only needed where `progress` was promised."""
        _run(self._life, self._life.call("/v1/beat"))

    def checkpoint(self) -> dict[str, Any]:
        """Renews everything of the session now; returns the agent's answer."""
        return _run(self._life, self._life.call("/v1/checkpoint"))

    def list(self, kind: str | None = None, glob: str | None = None) -> tuple[Standing, ...]:
        """All that is held or waited for in the fleet: of a kind, with a name that a glob matches. What comes or
        goes meanwhile may be missed."""
        return _run(self._life, _fleet.listed(self._life, kind, glob))

    def agents(self) -> tuple[AgentView, ...]:
        """The agents of the same store, this one first. Where rules of the agent bound the caller, this one alone."""
        return _run(self._life, _fleet.agents(self._life))

    def events(self) -> Iterator[Event]:
        """What happens from now on, until the session ends."""
        core = _run(self._life, self._life.live())
        # Here, not at the first `next`: an event in between would be missed.
        feed = core.subscribe()

        def take() -> Iterator[Event]:
            try:
                while (event := _run(self._life, feed.next())) is not None:
                    yield event
            finally:
                core.unsubscribe(feed)

        return take()

    def _resource(self, want: Want) -> Resource:
        return Resource(lambda _: self._life, want)

    def __enter__(self) -> Session:
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        life = self.__dict__.get("_life")
        if life is not None and not sys.is_finalizing():
            life.drop()


class _Default(Module[Resource, Session]):
    """The sessions of a program that names none: one for each project."""

    def __init__(self) -> None:
        self._lives: dict[str | None, Life] = {}
        self._lock = threading.Lock()

    def _resource(self, want: Want) -> Resource:
        return Resource(self._find, want)

    def _session(self, socket: str | os.PathLike[str] | None, register: dict[str, Any]) -> Session:
        return Session(socket, register)

    def _find(self, want: Want) -> Life:
        with self._lock:
            life = self._lives.get(want.project)
            if life is None:
                register = given(tether="connection", project=want.project)
                life = self._lives[want.project] = Life(BlockingIo(), None, register)
            return life

    def close(self) -> None:
        with self._lock:
            lives = list(self._lives.values())
            self._lives.clear()
        for life in lives:
            _run(life, life.close())

    def forked(self) -> None:
        # Signals and locks of the parent's threads are nobody's here.
        self._lock = threading.Lock()
        self._lives.clear()


_default = _Default()
leader = _default.leader
lease = _default.lease
semaphore = _default.semaphore
master = _default.master
session = _default.session
close_default = _default.close
os.register_at_fork(after_in_child=_default.forked)


def campaign(
    name: str, *, ttl: Duration | None = None, max_hold: Duration | None = None, fleet: bool = False
) -> Campaign:
    """Stands for leadership for good: `for term in campaign(…): with term: …`. Breaking out resigns."""
    return leader(name, ttl=ttl, max_hold=max_hold, fleet=fleet).campaign()


def leader_only(
    name: str, *, wait: Duration | None = 0, fleet: bool = False
) -> Callable[[Callable[P, R]], Callable[P, R | None]]:
    """Runs the function as leader; returns None without running it when somebody else leads."""

    def decorate(function: Callable[P, R]) -> Callable[P, R | None]:
        if inspect.iscoroutinefunction(function):
            raise TypeError(f"{function.__qualname__} is a coroutine function: use tenure.aio.leader_only")

        @functools.wraps(function)
        def only(*args: P.args, **kwargs: P.kwargs) -> R | None:
            try:
                hold = leader(name, wait=wait, fleet=fleet).acquire()
            except Busy:
                return None
            with hold:
                return function(*args, **kwargs)

        return only

    return decorate


def limited(
    name: str, limit: int | None = None, *, wait: Duration | None = None, fleet: bool = False
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Runs the function with a permit of that semaphore; a coroutine function too. Raises `Busy` when
    none is free in time."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        if inspect.iscoroutinefunction(function):
            from . import aio

            return cast("Callable[P, R]", aio.limited(name, limit, wait=wait, fleet=fleet)(function))

        @functools.wraps(function)
        def one(*args: P.args, **kwargs: P.kwargs) -> R:
            with semaphore(name, limit, wait=wait, fleet=fleet):
                return function(*args, **kwargs)

        return one

    return decorate


def _run(life: Life, steps: Steps[R]) -> R:
    return cast(BlockingIo, life.io).run(steps)

