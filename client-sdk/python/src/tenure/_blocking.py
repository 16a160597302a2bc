"""Runs steps by blocking the calling thread."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

from ._calls import CONNECT_PATIENCE
from ._effects import Connect, Effect, Enter, Pause, Receive, Send, Signal, Steps, T, WaitFor

_RECEIVE_SIZE = 65536


class BlockingIo:
    def __init__(self) -> None:
        self._lock = threading.Lock()

    def signal(self) -> Signal:
        return threading.Event()

    def leave(self) -> None:
        self._lock.release()

    def forked(self) -> None:
        self._lock = threading.Lock()

    def spawn(self, steps: Steps[None], name: str) -> None:
        def work() -> None:
            try:
                self.run(steps)
            except RuntimeError:
                # The interpreter ends; so does the process, and with it what this was to give back.
                pass

        threading.Thread(target=work, name=f"tenure-{name}", daemon=True).start()

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
            effect.socket.settimeout(effect.timeout)
            return effect.socket.recv(_RECEIVE_SIZE)
        if isinstance(effect, Send):
            effect.socket.settimeout(effect.timeout)
            return effect.socket.sendall(effect.data)
        if isinstance(effect, Connect):
            return _connect(effect)
        if isinstance(effect, Pause):
            return time.sleep(effect.seconds)
        if isinstance(effect, WaitFor):
            return effect.signal.wait(effect.timeout)
        assert isinstance(effect, Enter)
        return self._lock.acquire()


def _connect(effect: Connect) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # With a timeout of any length a full queue of the agent is an error at once.
        connection.settimeout(effect.timeout or CONNECT_PATIENCE)
        connection.connect(effect.path)
    except BaseException:
        connection.close()
        raise
    return connection
