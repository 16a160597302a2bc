"""Calls to the agent, as steps: connections, repetition, deadlines and refusals."""

from __future__ import annotations

import json
import math
import random
import socket
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any, cast
from urllib.parse import urlencode

from . import _http, _sse
from ._effects import Connect, Pause, Receive, Send, Steps
from ._socket import unreachable
from .errors import AgentUnavailable, Busy, Refused, SessionGone, TenureError, UpstreamUnavailable, WaitTimeout
from .events import parse_holder

Json = dict[str, Any]

CALL_DEADLINE = 30.0
"""How long a call waits for its answer, seconds; a wait for a grant has its own time on top."""
TRY_DEADLINE = 5.0
"""How long a call that does not wait for its turn waits for its answer, seconds: a sound agent needs far less."""
STREAM_OPEN_DEADLINE = 10.0
"""How long opening an event stream may take, seconds."""
CONNECT_PATIENCE = 4.0
"""How long a call waits while too many others wait to be taken, seconds."""
RESTART_PATIENCE = 1.0
"""How long a call waits for an agent that is being restarted, seconds."""
_PACE = 0.02
# How often a wait looks whether it would wait for itself, seconds: at first, and at last.
LOOK_FIRST, LOOK_LAST = 0.02, 1.0
# Shorter than the 5 s after which the agent closes an idle connection.
_IDLE = 4.0
_IDLE_CONNECTIONS_MAX = 32


class Stopping(AgentUnavailable):
    """The agent is stopping."""


class HoldLost(TenureError):
    """A repeated request whose hold is gone."""


class InVain(TenureError):
    """The caller would wait for itself."""


class Unsent(AgentUnavailable):
    """The agent cannot have seen the call."""


# A traceback names the error that programs catch.
Unsent.__qualname__, Unsent.__module__ = AgentUnavailable.__qualname__, AgentUnavailable.__module__


class NoAnswer(AgentUnavailable):
    """The agent took the call, but gave no answer in time."""


class Backoff:
    """10 ms, doubled each time up to 1 s. Without jitter: the agent is on this host."""

    def __init__(self) -> None:
        self._next = 0.01

    def step(self) -> float:
        step, self._next = self._next, min(1.0, self._next * 2)
        return step


class RequestIds:
    """Names for requests, so that one may be sent again. Each session has a generator of its own: asking the kernel each
    time costs more than the rest of the request."""

    def __init__(self) -> None:
        self._random = random.Random()

    def next(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))


class Calls:
    """The way to one agent, with its idle connections. For any number of threads, or one event loop."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._idle: list[tuple[float, socket.socket]] = []
        self._keeps = True

    def get(self, target: str, query: Mapping[str, str | None]) -> Steps[Json]:
        given = {key: value for key, value in query.items() if value is not None}
        request = _http.request("GET", f"{target}?{urlencode(given)}")
        _, reply = yield from self._call(request, repeat=True, deadline=CALL_DEADLINE)
        return reply

    def post(
        self,
        target: str,
        body: Json,
        *,
        repeat: bool = True,
        deadline: float | None = CALL_DEADLINE,
        is_vain: Callable[[], bool] | None = None,
    ) -> Steps[Json]:
        """The reply; a refusal is raised. `repeat`: twice does the same as once. Without a deadline it
        waits for ever. `is_vain` is asked now and then, and ends the wait by `InVain`."""
        request = _http.request("POST", target, body)
        _, reply = yield from self._call(request, repeat=repeat, deadline=deadline, is_vain=is_vain)
        return reply

    def open_events(self, session: str, last_event_id: int | None) -> Steps[EventStream]:
        """Opens the session's event stream, on a connection of its own. With the number of the last event
        seen only the missed ones are told again; else the first event is a snapshot."""
        target = f"/v1/events?{urlencode({'session': session})}"
        request = _http.request("GET", target, last_event_id=last_event_id)
        return (yield from self._open(request))

    def observe(self, kind: str, name: str, tenant: str | None) -> Steps[EventStream]:
        """Opens a stream of a resource's standing."""
        query = {"kind": kind, "name": name, **({"tenant": tenant} if tenant else {})}
        return (yield from self._open(_http.request("GET", f"/v1/observe?{urlencode(query)}")))

    def close(self) -> None:
        """Closes the idle connections, and those of later calls after each."""
        self._keeps = False
        idle, self._idle = self._idle, []
        for _, connection in idle:
            connection.close()

    def _call(
        self, request: bytes, *, repeat: bool, deadline: float | None, is_vain: Callable[[], bool] | None = None
    ) -> Steps[tuple[int, Json]]:
        until = _Until(self.path, deadline)
        # At first all of the time: a connection keeps its time-out from one call to the next.
        is_first = True
        while True:
            connection = self._take() if repeat else None
            fresh = connection is None
            if connection is None:
                connection = yield from self._connect(until)
            response = _http.Response()
            try:
                left = deadline if is_first else until.left()
                is_first = False
                yield Send(connection, request, CALL_DEADLINE)
                if is_vain is None:
                    response.feed((yield Receive(connection, left)))
                else:
                    response.feed((yield from _receive_unless(is_vain, connection, until)))
                while not response.complete:
                    response.feed((yield Receive(connection, until.left())))
            except TimeoutError:
                connection.close()
                raise until.timed_out() from None
            except OSError as error:
                connection.close()
                # The agent closed a connection that it found idle while this call was on its way.
                if fresh or not repeat:
                    raise unreachable(self.path, error) from error
                continue
            except _http.NotHttp as error:
                connection.close()
                raise self._foreign(str(error)) from error
            except BaseException:
                # The caller gives up: a closed connection cancels a wait.
                connection.close()
                raise
            self._give(connection, response)
            refusal: TenureError
            try:
                if response.status < 300:
                    return response.status, self._parse(response)
                refusal = refused(self._parse(response))
            except (ValueError, KeyError, TypeError) as error:
                excerpt = bytes(response.body[:200])
                raise self._foreign(f"status {response.status} with {excerpt!r}") from error
            if not isinstance(refusal, Stopping) or not until.is_patient(RESTART_PATIENCE):
                raise refusal
            yield Pause(_PACE)

    def _open(self, request: bytes) -> Steps[EventStream]:
        until = _Until(self.path, STREAM_OPEN_DEADLINE)
        while True:
            connection = yield from self._connect(until)
            response = _http.Response()
            try:
                yield Send(connection, request, until.left())
                while not response.status or (response.status >= 300 and not response.complete):
                    response.feed((yield Receive(connection, until.left())))
                if response.status < 300:
                    kind = response.headers.get("content-type", "")
                    if not kind.startswith("text/event-stream"):
                        raise self._foreign(f"its event stream is a {kind!r}")
                    return EventStream(self.path, connection, response)
                refusal = refused(self._parse(response))
            except TimeoutError:
                connection.close()
                raise until.timed_out() from None
            except OSError as error:
                connection.close()
                raise unreachable(self.path, error) from error
            except (ValueError, KeyError, TypeError) as error:
                connection.close()
                raise self._foreign(str(error)) from error
            except BaseException:
                connection.close()
                raise
            connection.close()
            if not isinstance(refusal, Stopping) or not until.is_patient(RESTART_PATIENCE):
                raise refusal
            yield Pause(_PACE)

    def _connect(self, until: _Until) -> Steps[socket.socket]:
        while True:
            try:
                connection: socket.socket = yield Connect(self.path, until.left())
                return connection
            except TimeoutError:
                raise until.timed_out() from None
            except OSError as error:
                patience = CONNECT_PATIENCE if isinstance(error, BlockingIOError) else RESTART_PATIENCE
                is_passing = isinstance(error, (BlockingIOError, ConnectionRefusedError))
                if not is_passing or not until.is_patient(patience):
                    raise Unsent(str(unreachable(self.path, error))) from error
            yield Pause(_PACE)

    def _take(self) -> socket.socket | None:
        now = time.monotonic()
        while True:
            try:
                since, connection = self._idle.pop()
            except IndexError:
                return None
            if now - since < _IDLE:
                return connection
            connection.close()

    def _give(self, connection: socket.socket, response: _http.Response) -> None:
        is_kept = self._keeps and response.headers.get("connection", "").lower() != "close"
        if is_kept and len(self._idle) < _IDLE_CONNECTIONS_MAX:
            self._idle.append((time.monotonic(), connection))
        else:
            connection.close()

    @staticmethod
    def _parse(response: _http.Response) -> Json:
        parsed: Any = json.loads(response.body.decode()) if response.body else {}
        if not isinstance(parsed, dict):
            raise TypeError("its reply is no object")
        return cast(Json, parsed)

    def _foreign(self, what: str) -> AgentUnavailable:
        return AgentUnavailable(
            f"{self.path} does not answer like an agent: {what}; is it the socket of another program?"
        )


def _receive_unless(is_vain: Callable[[], bool], connection: socket.socket, until: _Until) -> Steps[bytes]:
    """What the caller waits for may begin to wait for the caller only after that has begun to wait."""
    pause = LOOK_FIRST
    while True:
        left = until.left()
        is_last = left is not None and left <= pause
        try:
            received: bytes = yield Receive(connection, left if is_last else pause)
            return received
        except TimeoutError:
            if is_last:
                raise
        if is_vain():
            raise InVain
        pause = min(2 * pause, LOOK_LAST)


class _Until:
    """When a call began, and until when it may last."""

    def __init__(self, path: str, seconds: float | None) -> None:
        self._path = path
        self._seconds = seconds
        self._since = time.monotonic()

    def left(self) -> float | None:
        if self._seconds is None:
            return None
        left = self._since + self._seconds - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left

    def is_patient(self, patience: float) -> bool:
        if self._seconds is not None:
            patience = min(patience, self._seconds)
        return time.monotonic() - self._since < patience

    def timed_out(self) -> AgentUnavailable:
        return NoAnswer(
            f"the agent at {self._path} gave no answer within {self._seconds:g} s: it may be stopped; "
            "see `tenure doctor`"
        )


class EventStream:
    """An open event stream."""

    def __init__(self, path: str, connection: socket.socket, response: _http.Response) -> None:
        self._path = path
        self._connection = connection
        self._response = response
        self._parser = _sse.Parser()

    def next(self) -> Steps[list[_sse.Frame] | None]:
        """The next events; None at the stream's end. Raises `FrameTooLarge` or `NotHttp` for what is
        no stream of an agent."""
        while True:
            body = self._response.take_body()
            if body:
                frames = self._parser.feed(body)
                if frames:
                    return frames
            if self._response.complete:
                return None
            try:
                # Without a timeout: silence says nothing. The page tells when a hold ends.
                self._response.feed((yield Receive(self._connection, None)))
            except OSError:
                return None

    def wake(self) -> None:
        """Ends the stream for whoever reads it."""
        try:
            self._connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def close(self) -> None:
        """Closes this process' copy of the connection; one that a fork left elsewhere stays open."""
        self._connection.close()


def waiting(wait: float | None, left: float | None) -> Json:
    """How the agent is told how long an acquire waits."""
    if wait == 0:
        return {"wait": "none"}
    return {"wait": "block"} if left is None else {"wait": "block", "timeout_ms": max(1, math.ceil(left * 1000))}


def refused(problem: Json) -> TenureError:
    """The error for a problem of the agent."""
    code: str = problem["code"]
    text: str = problem["detail"]
    retry_after_ms = problem.get("retry_after_ms")
    retry_after = None if retry_after_ms is None else retry_after_ms / 1000
    if code in ("contended", "wait_timeout"):
        holder = problem.get("holder")
        return (Busy if code == "contended" else WaitTimeout)(text, holder and parse_holder(holder))
    if code == "upstream_unavailable":
        return UpstreamUnavailable(text, retry_after)
    if code == "stopping":
        return Stopping(text)
    if code in ("session_unknown", "session_lost"):
        return SessionGone(text)
    if code == "hold_lost":
        return HoldLost(text)
    return Refused(code, text, problem.get("field"), retry_after)
