"""The threads and tasks that ask and hold, and which of them wait for which.

A thread or task waits for what another one of its program holds. It cannot wait for what it holds itself, nor for what is
held by a thread or task that waits for it. These ways to wait are seen, without a call:

- A task waits for those that it awaits: by itself, through `asyncio.gather`, `asyncio.wait_for`, `asyncio.wait` for all of
  them without a time-out, or at the end of an `asyncio.TaskGroup`.
- A thread waits for the one that it joins without a time-out, and for the event loop that runs in it.
- A thread that blocks in an event loop keeps all tasks of that loop waiting.

Other ways, such as for a future of an executor, a lock or a queue, cannot be known: there it waits, as for any lock.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
import weakref
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

from . import page

if TYPE_CHECKING:
    from ._cell import Cell

T = TypeVar("T")
Task = asyncio.Task[Any]
Loop = asyncio.AbstractEventLoop
Key = tuple[str | None, str | None, str, str | None]
"""Socket, tenant, kind and name."""


class _Thread:
    """A thread, or one call of a worker thread that gives each call a context of its own: such a worker may take a hold
    in one call, and serve other calls before that is given back."""

    __slots__ = ("__weakref__", "ident")

    def __init__(self, ident: int) -> None:
        self.ident = ident


_thread: contextvars.ContextVar[_Thread] = contextvars.ContextVar("tenure-thread")


def _this_thread() -> _Thread:
    ident = threading.get_ident()
    thread = _thread.get(None)
    # A context may be copied into another thread.
    if thread is None or thread.ident != ident:
        thread = _Thread(ident)
        _thread.set(thread)
    return thread


class Actor:
    """The task that runs, else the thread. It keeps neither alive."""

    __slots__ = ("_blocked", "_is_task", "_loop", "_task", "_thread")

    def __init__(self, *, blocks: bool) -> None:
        """`blocks`: the thread stands still while it waits, and with it the event loop that runs in it."""
        loop = asyncio._get_running_loop()
        task = asyncio.current_task(loop) if loop is not None else None
        self._is_task = task is not None
        self._task: weakref.ref[Task] | None = None if task is None else weakref.ref(task)
        self._loop: weakref.ref[Loop] | None = None if loop is None else weakref.ref(loop)
        self._thread = weakref.ref(_this_thread())
        self._blocked = self._loop if blocks else None

    @property
    def noun(self) -> str:
        return "task" if self._is_task else "thread"

    def is_same(self, other: Actor) -> bool:
        if self._is_task or other._is_task:
            return _is_one(self._task, other._task)
        return _is_one(self._thread, other._thread)

    def stands_still_for(self, asker: Actor) -> bool:
        """True if it is known that it can give nothing back while `asker`, which runs now, waits."""
        if self.is_same(asker) or _is_one(self._loop, asker._blocked):
            return True
        if not self._is_task:
            # The asker may be a task of the event loop that this thread runs.
            thread = self._thread()
            return thread is not None and (thread is asker._thread() or _joins(thread.ident, threading.get_ident()))
        task, target = _found(self._task), _found(asker._task)
        if task is None or task.done():
            return False
        if target is not None and _awaits(task, target):
            return True
        # A loop need not tell in which thread it runs.
        ident = getattr(task.get_loop(), "_thread_id", None)
        return ident is not None and _joins(ident, threading.get_ident())


def _found(one: weakref.ref[T] | None) -> T | None:
    return None if one is None else one()


def _is_one(one: weakref.ref[Any] | None, other: weakref.ref[Any] | None) -> bool:
    found = _found(one)
    return found is not None and found is _found(other)


def _awaits(task: Task, target: Task) -> bool:
    """True if the task goes on only once the target has ended."""
    seen: set[Task] = set()
    pending = [task]
    while pending:
        one = pending.pop()
        if one in seen:
            continue
        seen.add(one)
        awaited = list(_awaited(one))
        if target in awaited:
            return True
        pending += awaited
    return False


def _awaited(task: Task) -> Iterator[Task]:
    yield from _tasks_of(getattr(task, "_fut_waiter", None))
    # A task may await a future that another task sets; the frames tell of which call.
    step: Any = task.get_coro()
    while step is not None:
        frame = getattr(step, "cr_frame", None) or getattr(step, "gi_frame", None)
        for future in _futures_of(frame) if frame is not None else ():
            yield from _tasks_of(future)
        step = getattr(step, "cr_await", None) or getattr(step, "gi_yieldfrom", None)


def _tasks_of(future: Any) -> Iterator[Task]:
    if isinstance(future, asyncio.Task):
        yield future
    elif isinstance(future, asyncio.tasks._GatheringFuture):  # type: ignore[attr-defined]
        for child in list(future._children):
            yield from _tasks_of(child)


_group: Any = getattr(asyncio, "TaskGroup", None)
_group_end: Any = _group and _group.__aexit__.__code__
_wait_for_all = asyncio.tasks._wait.__code__  # type: ignore[attr-defined]
_wait_for = asyncio.wait_for.__code__
_join = threading.Thread.join.__code__


def _futures_of(frame: FrameType) -> list[Any]:
    """What a function of asyncio waits for to its end."""
    if frame.f_code is _group_end:
        return list(frame.f_locals["self"]._tasks)
    if frame.f_code is _wait_for:
        return [frame.f_locals["fut"]]
    if frame.f_code is _wait_for_all:
        names = frame.f_locals
        if names["timeout"] is None and names["return_when"] == asyncio.ALL_COMPLETED:
            return list(names["fs"])
    return []


def _joins(ident: int, target: int) -> bool:
    """True if the thread goes on only once the target has ended."""
    frames: dict[int, FrameType] = getattr(sys, "_current_frames")()
    seen: set[int] = set()
    one: int | None = ident
    while one is not None and one not in seen:
        seen.add(one)
        one = _joined(frames.get(one))
        if one == target:
            return True
    return False


def _joined(frame: FrameType | None) -> int | None:
    while frame is not None:
        if frame.f_code is _join and frame.f_locals["timeout"] is None:
            ident: int | None = frame.f_locals["self"].ident
            return ident
        frame = frame.f_back
    return None


# The exclusive holds of the sessions of this process.
_held: weakref.WeakValueDictionary[Key, Cell] = weakref.WeakValueDictionary()


class Turn:
    """One acquire of an actor, seen from the other holds of this process."""

    def __init__(self, key: Key, actor: Actor | None) -> None:
        """Without an actor it waits for whatever is held."""
        self.key = key
        self._actor = actor

    def held(self) -> Cell | None:
        """What of this process is in the way."""
        cell = None if self.key[2] == "semaphore" else _held.get(self.key)
        return cell if cell is not None and page.is_held(cell.view) else None

    def is_vain(self) -> bool:
        """True if it would wait for itself: its own actor holds it, or one that waits for that."""
        return self.explain() is not None

    def explain(self) -> str | None:
        """Why it would wait for itself."""
        cell, asker = self.held(), self._actor
        holder = None if cell is None else cell.actor
        if cell is None or holder is None or asker is None or not holder.stands_still_for(asker):
            return None
        by = f"this {asker.noun} itself" if holder.is_same(asker) else f"a {holder.noun} that waits for this {asker.noun}"
        return f"{cell.what} is held by {by}, with token {cell.token}: a wait would never end; release that hold first"

    def take(self, cell: Cell) -> None:
        """It has been granted."""
        cell.actor = self._actor
        if cell.kind != "semaphore":
            _held[self.key] = cell
