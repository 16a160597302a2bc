"""Runs steps in an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import sys
from collections.abc import Callable, Coroutine
from socket import socket as Socket
from typing import Any

from ._actors import Actor
from ._effects import Connect, Effect, Enter, Pause, Receive, Send, Signal, Steps, T, WaitFor
from ._socket import Connection

_RECEIVE_SIZE = 65536


class _Signal:
    """An event of the loop that any thread may set."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._event = asyncio.Event()
        # Of its own: nobody can set the event of a loop that is closed.
        self._is_set = False

    def set(self) -> None:
        self._is_set = True
        if asyncio._get_running_loop() is self._loop:
            self._event.set()
        else:
            # A closed loop has nobody who waits.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._event.set)

    def clear(self) -> None:
        self._is_set = False
        self._event.clear()

    def is_set(self) -> bool:
        return self._is_set

    async def wait(self, timeout: float | None = None) -> bool:
        if self._is_set:
            return True
        try:
            return await within(self._event.wait(), timeout)
        except TimeoutError:
            return False


class AsyncIo:
    """Runs steps in one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._lock = asyncio.Lock()
        self._process = os.getpid()
        # A task without a reference may be collected.
        self._tasks: set[asyncio.Task[None]] = set()

    def signal(self) -> Signal:
        return _Signal(self.loop)

    def leave(self) -> None:
        # A closed loop wakes nobody who waits for it.
        if not self.loop.is_closed():
            self._lock.release()

    def actor(self) -> Actor:
        return Actor(blocks=False)

    def is_over(self) -> bool:
        return self.loop.is_closed() or self._process != os.getpid()

    def forked(self) -> None:
        self._lock = asyncio.Lock()
        self._tasks = set()

    def spawn(self, steps: Steps[None], name: str, then: Callable[[], None] | None = None) -> None:
        if asyncio._get_running_loop() is self.loop:
            self._begin(steps, name, then)
        else:
            # A hold that nobody has any more is collected in any thread, and perhaps after the loop.
            with contextlib.suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self._begin, steps, name, then)

    def _begin(self, steps: Steps[None], name: str, then: Callable[[], None] | None) -> None:
        task = self.loop.create_task(self.run(steps), name=f"tenure-{name}")
        _expect_no_end(task)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if then is not None:
            # Not by the steps themselves: a task that is cancelled before its first step takes none.
            task.add_done_callback(lambda _: then())

    async def run(self, steps: Steps[T]) -> T:
        try:
            effect = next(steps)
            while True:
                try:
                    outcome = await self._perform(effect)
                except BaseException as error:
                    effect = steps.throw(error)
                else:
                    effect = steps.send(outcome)
        except StopIteration as done:
            value: T = done.value
            return value

    async def _perform(self, effect: Effect) -> Any:
        if isinstance(effect, Receive):
            return await self._receive(effect.socket, effect.timeout)
        if isinstance(effect, Send):
            # A request nearly always fits at once.
            sent = 0
            with contextlib.suppress(BlockingIOError):
                sent = effect.socket.send(effect.data)
            if sent == len(effect.data):
                return None
            return await within(self.loop.sock_sendall(effect.socket, effect.data[sent:]), effect.timeout)
        if isinstance(effect, Connect):
            return _connect(effect)
        if isinstance(effect, Pause):
            return await asyncio.sleep(effect.seconds)
        if isinstance(effect, WaitFor):
            return await effect.signal.wait(effect.timeout)
        assert isinstance(effect, Enter)
        return await self._lock.acquire()

    async def _receive(self, socket: Socket, timeout: float | None) -> bytes:
        """As the loop's own method with a time-out, for half the price: that tries first, and in vain, to read an answer
        that cannot be there yet."""
        if socket.fileno() < 0:
            raise OSError(errno.EBADF, "the connection is closed")
        received: asyncio.Future[bytes] = self.loop.create_future()
        self.loop.add_reader(socket, _read, socket, received)
        timer = None if timeout is None else self.loop.call_later(timeout, _expire, received)
        try:
            return await received
        finally:
            if timer is not None:
                timer.cancel()
            # A loop that is closed watches nothing.
            with contextlib.suppress(RuntimeError):
                self.loop.remove_reader(socket)


def _read(socket: Socket, received: asyncio.Future[bytes]) -> None:
    if received.done():
        return
    try:
        received.set_result(socket.recv(_RECEIVE_SIZE))
    except (BlockingIOError, InterruptedError):
        # It is told again.
        pass
    except OSError as error:
        received.set_exception(error)


def _expire(received: asyncio.Future[bytes]) -> None:
    if not received.done():
        received.set_exception(TimeoutError())


def _connect(effect: Connect) -> Socket:
    connection = Connection()
    try:
        connection.setblocking(False)
        # At once or not at all; the loop's own method would take a full queue for a connection.
        connection.connect(effect.path)
    except BaseException:
        connection.close()
        raise
    return connection


async def within(work: Coroutine[Any, Any, T], timeout: float | None) -> T:
    # Not `asyncio.wait_for`: until Python 3.12 it drops a cancellation that meets a result.
    if timeout is None:
        return await work
    if sys.version_info >= (3, 11):
        async with asyncio.timeout(timeout):
            return await work
    task = asyncio.ensure_future(work)
    _expect_no_end(task)
    try:
        done, _ = await asyncio.wait({task}, timeout=timeout)
    except asyncio.CancelledError:
        await _end(task)
        raise
    if not done:
        await _end(task)
        raise TimeoutError
    return task.result()


async def _end(task: asyncio.Task[Any]) -> None:
    """Waits, too: the loop watches the task's socket until then."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _expect_no_end(task: asyncio.Task[Any]) -> None:
    """Spares the program a warning for a loop that is closed before the task has ended: the tether gives
    back what the task was to give back."""
    # As `asyncio.gather` does it; there is no public way.
    task._log_destroy_pending = False  # type: ignore[attr-defined]
