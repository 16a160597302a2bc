"""Runs steps by blocking the calling thread."""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any, cast

from ._actors import Actor
from ._calls import CONNECT_PATIENCE
from ._effects import Connect, Effect, Enter, Pause, Receive, Send, Signal, Steps, T, WaitFor
from ._socket import Connection

_RECEIVE_SIZE = 65536
# The step of the kernel's time-outs, of which 0 means none, seconds.
_TIMEOUT_MIN = 1e-6


class BlockingIo:
    def __init__(self) -> None:
        self._lock = threading.Lock()

    def signal(self) -> Signal:
        return threading.Event()

    def leave(self) -> None:
        self._lock.release()

    def actor(self) -> Actor:
        return Actor(blocks=True)

    def forked(self) -> None:
        self._lock = threading.Lock()

    def is_over(self) -> bool:
        return False

    def spawn(self, steps: Steps[None], name: str, then: Callable[[], None] | None = None) -> None:
        def work() -> None:
            try:
                self.run(steps)
                if then is not None:
                    then()
            except RuntimeError:
                # The interpreter ends; so does the process, and with it what this was to give back.
                pass

        try:
            threading.Thread(target=work, name=f"tenure-{name}", daemon=True).start()
        except RuntimeError:
            # Python 3.12 starts none once the main thread has ended. What this was to give back ends with the process; what
            # a session lives by cannot be done without.
            if then is not None or threading.main_thread().is_alive():
                raise

    def run(self, steps: Steps[T]) -> T:
        try:
            effect = next(steps)
            while True:
                try:
                    outcome = self._perform(effect)
                except BaseException as error:
                    effect = steps.throw(error)
                else:
                    effect = steps.send(outcome)
        except StopIteration as done:
            value: T = done.value
            return value

    def _perform(self, effect: Effect) -> Any:
        if isinstance(effect, Receive):
            return cast(_Connection, effect.socket).receive(effect.timeout)
        if isinstance(effect, Send):
            return cast(_Connection, effect.socket).send_all(effect.data, effect.timeout)
        if isinstance(effect, Connect):
            return _connect(effect)
        if isinstance(effect, Pause):
            return time.sleep(effect.seconds)
        if isinstance(effect, WaitFor):
            return effect.signal.wait(effect.timeout)
        assert isinstance(effect, Enter)
        return self._lock.acquire()


class _Connection(Connection):
    """Has the kernel's time-outs: with Python's own, each call would be three, and as many turns with the interpreter's lock.
    A socket of gevent never blocks its thread, so the kernel's time-outs have no effect; gevent's own are used."""

    __slots__ = ("_blocks", "_limits")

    def __init__(self) -> None:
        super().__init__()
        self._limits: dict[int, float] = {socket.SO_RCVTIMEO: 0.0, socket.SO_SNDTIMEO: 0.0}
        self._blocks = os.get_blocking(self.fileno())

    def receive(self, timeout: float | None) -> bytes:
        self._limit(socket.SO_RCVTIMEO, timeout)
        try:
            return self.recv(_RECEIVE_SIZE)
        except BlockingIOError:
            raise TimeoutError from None

    def send_all(self, data: bytes, timeout: float | None) -> None:
        self._limit(socket.SO_SNDTIMEO, timeout)
        try:
            self.sendall(data)
        except BlockingIOError:
            raise TimeoutError from None

    def _limit(self, option: int, timeout: float | None) -> None:
        if not self._blocks:
            return self.settimeout(None if timeout is None else max(timeout, _TIMEOUT_MIN))
        # 0 is for ever.
        seconds = 0.0 if timeout is None else max(timeout, _TIMEOUT_MIN)
        if self._limits[option] != seconds:
            whole = int(seconds)
            self.setsockopt(socket.SOL_SOCKET, option, struct.pack("@ll", whole, int((seconds - whole) * 1e6)))
            self._limits[option] = seconds


def _connect(effect: Connect) -> socket.socket:
    connection = _Connection()
    try:
        # With a timeout of any length a full queue of the agent is an error at once.
        connection.settimeout(effect.timeout or CONNECT_PATIENCE)
        connection.connect(effect.path)
        connection.settimeout(None)
    except BaseException:
        connection.close()
        raise
    return connection
