"""What a subscriber has yet to take of a session's events."""

from __future__ import annotations

from collections import deque

from . import events
from ._effects import Io, Steps, WaitFor

EVENTS_MAX = 256
"""Events that a subscriber may leave untaken; older ones are dropped, and it is told how many."""


class Feed:
    """One subscriber's events."""

    def __init__(self, io: Io) -> None:
        self.signal = io.signal()
        self.closed = False
        self._events: deque[events.Event] = deque(maxlen=EVENTS_MAX)
        self._missed = 0

    def put(self, event: events.Event) -> None:
        self._missed += len(self._events) == EVENTS_MAX
        self._events.append(event)
        self.signal.set()

    def close(self) -> None:
        self.closed = True
        self.signal.set()

    def next(self) -> Steps[events.Event | None]:
        """The next event; None once the session is over."""
        while True:
            self.signal.clear()
            if self._missed:
                missed, self._missed = self._missed, 0
                return events.Missed(missed)
            if self._events:
                return self._events.popleft()
            if self.closed:
                return None
            yield WaitFor(self.signal, None)
