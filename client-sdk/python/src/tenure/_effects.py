"""Protocol steps that do no input or output themselves.

A step is a generator: it yields what it wants done and is sent the outcome. One driver blocks the
thread (`_blocking.py`), the other awaits (`aio.py`), so that everything between a program and the agent
is written once.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, Union

from ._actors import Actor

T = TypeVar("T")


class Signal(Protocol):
    """Something to wait for. Set from any thread, also more than once."""

    def set(self) -> None: ...

    def clear(self) -> None: ...

    def is_set(self) -> bool: ...

    def wait(self, timeout: float | None = None) -> Any:
        """Blocks the thread, or returns an awaitable."""


@dataclass(frozen=True)
class Connect:
    """Sent back: a connected socket."""

    path: str
    timeout: float | None


@dataclass(frozen=True)
class Send:
    socket: socket.socket
    data: bytes
    timeout: float | None


@dataclass(frozen=True)
class Receive:
    """Sent back: bytes; none at the end of the connection."""

    socket: socket.socket
    timeout: float | None


@dataclass(frozen=True)
class Pause:
    seconds: float


@dataclass(frozen=True)
class WaitFor:
    """Sent back: False when the time was over first."""

    signal: Signal
    timeout: float | None


@dataclass(frozen=True)
class Enter:
    """Locks the session's opening; `Io.leave` unlocks."""


Effect = Union[Connect, Send, Receive, Pause, WaitFor, Enter]
Steps = Generator[Effect, Any, T]


class Io(Protocol):
    """What steps need of their driver besides their effects. Nothing of it blocks."""

    def signal(self) -> Signal: ...

    def leave(self) -> None: ...

    def actor(self) -> Actor:
        """What runs the steps."""
        ...

    def forked(self) -> None:
        """Runs in a child: no lock is held by a thread that is not here."""

    def is_over(self) -> bool:
        """True once nothing can run in it: its event loop is closed, or is the parent's of a forked process."""
        ...

    def spawn(self, steps: Steps[None], name: str, then: Callable[[], None] | None = None) -> None:
        """Runs the steps beside the caller. They end by themselves. `then` follows them, also where they are cancelled."""
