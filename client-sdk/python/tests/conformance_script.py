"""Runs one scenario of client-sdk/conformance; its README says what each step means."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import tenure
from tenure.testing import Agent

SCRIPTS = Path(__file__).parents[2] / "conformance"
PATIENCE = 10.0
Json = dict[str, Any]
EVENTS = {
    tenure.Snapshot: "snapshot",
    tenure.Queued: "queued",
    tenure.Granted: "granted",
    tenure.Jeopardy: "jeopardy",
    tenure.Safe: "safe",
    tenure.Lost: "lost",
    tenure.Released: "released",
    tenure.Standing: "standing",
    tenure.Message: "message",
    tenure.Shutdown: "shutdown",
    tenure.Missed: "missed",
}


def scenarios() -> list[Json]:
    found: list[Json] = []
    for path in sorted(SCRIPTS.glob("*.json")):
        found += json.loads(path.read_text())["scenarios"]
    return found


class Threads:
    """The package as threads use it."""

    abilities = {"fork"}

    def session(self, socket: str, **options: Any) -> tenure.Session:
        return tenure.session(socket=socket, **options).open()

    def record(self, session: tenure.Session, events: list[Any]) -> None:
        feed = session.events()
        threading.Thread(target=lambda: events.extend(iter_into(feed, events)), daemon=True).start()

    def call(self, work: Callable[[], Any]) -> Any:
        return work()

    def begin(self, work: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()

        def run() -> None:
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=run, daemon=True).start()
        return future

    def guard(self, hold: Any) -> Future[Any]:
        def work() -> None:
            with hold:
                while True:
                    hold.check()
                    time.sleep(0.002)

        return self.begin(work)

    def block(self, work: Callable[[], None]) -> None:
        work()

    def close(self) -> None:
        pass


def iter_into(feed: Iterator[Any], events: list[Any]) -> list[Any]:
    for event in feed:
        events.append(event)
    return []


class Loop:
    """The package as asyncio uses it; the loop runs in a thread of its own."""

    abilities = {"cancel"}

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def session(self, socket: str, **options: Any) -> tenure.aio.Session:
        return self.call(lambda: tenure.aio.session(socket=socket, **options).open())

    def record(self, session: tenure.aio.Session, events: list[Any]) -> None:
        begun = threading.Event()

        async def take() -> None:
            feed = session.events()
            following = asyncio.ensure_future(anext_of(feed))
            # One turn, so that the subscription is there.
            await asyncio.sleep(0)
            begun.set()
            with contextlib.suppress(StopAsyncIteration):
                while True:
                    events.append(await following)
                    following = asyncio.ensure_future(anext_of(feed))

        self.begin(take)
        begun.wait()

    def call(self, work: Callable[[], Any]) -> Any:
        return self.begin(work).result()

    def begin(self, work: Callable[[], Any]) -> Future[Any]:
        async def run() -> Any:
            result = work()
            return await result if hasattr(result, "__await__") else result

        return asyncio.run_coroutine_threadsafe(run(), self.loop)

    def guard(self, hold: Any) -> Future[Any]:
        entered = threading.Event()

        async def work() -> None:
            async with hold:
                entered.set()
                await asyncio.Event().wait()

        future = self.begin(work)
        entered.wait(PATIENCE)
        return future

    def block(self, work: Callable[[], None]) -> None:
        self.call(work)

    def close(self) -> None:
        async def end() -> None:
            tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        self.call(end)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


def anext_of(feed: Any) -> Coroutine[Any, Any, Any]:
    # `anext` is of Python 3.10; its result is no coroutine.
    return feed.__anext__()


class Redis:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.directory.mkdir(exist_ok=True)
        arguments = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        arguments += ["--jemalloc-bg-thread", "no"]
        self.process = subprocess.Popen(
            ["redis-server", *arguments], cwd=self.directory, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )

        def answers() -> bool:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(16).startswith(b"+PONG")
            return False

        until(answers, "Redis answers")

    def act(self, action: str) -> None:
        if action == "start":
            return self.start()
        assert self.process is not None
        self.process.send_signal({"freeze": signal.SIGSTOP, "thaw": signal.SIGCONT, "kill": signal.SIGKILL}[action])
        if action == "kill":
            self.process.wait()

    def close(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()


def until(condition: Callable[[], Any], what: str, patience: float = PATIENCE) -> Any:
    deadline = time.monotonic() + patience
    while not (outcome := condition()):
        assert time.monotonic() < deadline, f"not within {patience} s: {what}"
        time.sleep(0.003)
    return outcome


class Run:
    """One scenario with one twin of the package."""

    def __init__(self, scenario: Json, twin: Threads | Loop, directory: Path) -> None:
        self.scenario, self.twin = scenario, twin
        self.redis = Redis(directory / "redis") if scenario.get("redis") else None
        upstream = f"redis://127.0.0.1:{self.redis.port}/0" if self.redis else None
        self.agent = Agent(directory / "agent", scenario.get("agent"), upstream)
        self.sessions: dict[str, Any] = {}
        self.events: dict[str, list[Any]] = {}
        self.seen: dict[str, int] = {}
        self.holds: dict[str, Any] = {}
        self.begun: dict[str, Future[Any]] = {}
        self.guarded: dict[str, tuple[str, Future[Any]]] = {}

    def run(self) -> None:
        try:
            if self.redis:
                self.redis.start()
            with self.agent:
                self.steps(self.scenario["steps"])
                for session in self.sessions.values():
                    self.twin.call(session.close)
        finally:
            if self.redis:
                self.redis.close()

    def steps(self, steps: list[Json]) -> None:
        for number, step in enumerate(steps, 1):
            fields = {key.replace("as", "label") if key == "as" else key: value for key, value in step.items()}
            verb = fields.pop("do")
            if "is" in fields:
                fields["state"] = fields.pop("is")
            try:
                getattr(self, f"do_{verb}")(**fields)
            except Exception as error:
                raise AssertionError(f"step {number}, {step}: {error!r}\n{self.agent.log()[-1500:]}") from error

    def do_session(self, label: str, options: Json | None = None) -> None:
        options = {key.removesuffix("_ms"): in_seconds(key, value) for key, value in (options or {}).items()}
        session = self.sessions[label] = self.twin.session(self.agent.socket, **options)
        self.events[label], self.seen[label] = [], 0
        self.twin.record(session, self.events[label])

    def resource(self, session: str, kind: str, name: str | None = None, wait_ms: int | None = None, **options: Any) -> Any:
        options = {key.removesuffix("_ms"): in_seconds(key, value) for key, value in options.items()}
        names = [] if kind == "master" else [name]
        wait = None if wait_ms is None else wait_ms / 1000
        return getattr(self.sessions[session], kind)(*names, wait=wait, **options)

    def do_acquire(self, label: str, expect: str = "held", code: str = "", holder: str = "", **want: Any) -> None:
        self.outcome(label, self.start(want), expect, code, holder)

    def do_begin(self, label: str, **want: Any) -> None:
        self.begun[label] = self.start(want)

    def do_end(self, of: str, expect: str = "held", code: str = "", holder: str = "") -> None:
        self.outcome(of, self.begun.pop(of), expect, code, holder)

    def start(self, want: Json) -> Future[Any]:
        resource = self.resource(**want)
        return self.twin.begin(resource.acquire)

    def outcome(self, label: str, begun: Future[Any], expect: str, code: str, holder: str) -> None:
        try:
            self.holds[label] = begun.result(30)
            found = "held"
        except tenure.WaitTimeout:
            found = "wait_timeout"
        except tenure.Busy as busy:
            found = "busy"
            if holder:
                assert busy.holder is not None and busy.holder.name == holder, busy.holder
        except tenure.Refused as refused:
            found = "refused"
            assert refused.code == code, refused
        except tenure.AgentUnavailable:
            found = "agent_unavailable"
        except tenure.UpstreamUnavailable:
            found = "upstream_unavailable"
        assert found == expect, found

    def do_cancel(self, of: str) -> None:
        begun = self.begun.pop(of)
        begun.cancel()
        self.twin.call(lambda: asyncio.sleep(0.05))

    def standing(self, session: str, kind: str, name: str) -> Any:
        return self.twin.call(getattr(self.sessions[session], kind)(name).standing).raw

    def do_waiting(self, session: str, kind: str, name: str, count: int) -> None:
        until(lambda: self.standing(session, kind, name)["waiting"] == count, f"{count} wait")

    def do_holding(self, session: str, kind: str, name: str, count: int) -> None:
        until(lambda: self.standing(session, kind, name)["holding"] == count, f"{count} hold")

    def do_release(self, hold: str, expect: str = "released", reason: str = "") -> None:
        try:
            self.twin.call(self.holds[hold].release)
            found = "released"
        except tenure.Lost as lost:
            found = "lost"
            assert lost.reason.value == reason, lost
        assert found == expect, found

    def is_held(self, hold: str) -> bool:
        found = self.holds[hold]
        held = found.is_held()
        try:
            found.check()
        except tenure.Lost:
            assert not held or not found.is_held()
        else:
            assert held
        return held

    def do_held(self, hold: str, state: bool) -> None:
        until(lambda: self.is_held(hold) == state, f"held is {state}")

    def do_steadily(self, hold: str, ms: int) -> None:
        end = time.monotonic() + ms / 1000
        while time.monotonic() < end:
            assert self.holds[hold].is_held(), self.holds[hold].lost
            time.sleep(0.002)

    def do_guard(self, hold: str, label: str) -> None:
        self.guarded[label] = hold, self.twin.guard(self.holds[hold])

    def do_ended(self, of: str, reason: str) -> None:
        hold, future = self.guarded.pop(of)
        error = future.exception(PATIENCE)
        assert isinstance(error, tenure.Lost), error
        if error.reason == tenure.Reason.EXPIRED:
            # The agent's word comes later than the package waits for it, on a busy machine.
            until(lambda: self.reason(hold) == reason, f"the reason is {reason}")
        else:
            assert error.reason.value == reason, error

    def reason(self, hold: str) -> str | None:
        lost = self.holds[hold].lost
        return lost and lost.reason.value

    def do_token(self, hold: str, above: str) -> None:
        assert self.holds[hold].token > self.holds[above].token

    def do_slots(self, session: str, count: int) -> None:
        registered = self.sessions[session]._life.core.registered
        page = tenure.page.Page(registered["page"], registered["session"], registered["boot_id"])
        words = page.words
        now = tenure.page.boottime_ns()
        held = sum(words[8 * (slot + 1) + 3] > now for slot in range(page.slots))
        assert held == count, held

    def do_event(self, session: str, event: str, hold: str = "", **fields: Any) -> None:
        events = self.events[session]

        def find() -> bool:
            for at in range(self.seen[session], len(events)):
                found = events[at]
                if EVENTS[type(found)] != event or (hold and found.hold != self.holds[hold].id):
                    continue
                if all(str(getattr(found, key)) == value for key, value in fields.items()):
                    self.seen[session] = at + 1
                    return True
            return False

        until(find, f"an event {event} among {events[self.seen[session]:]}")

    def do_none(self, session: str, event: str) -> None:
        found = [one for one in self.events[session][self.seen[session] :] if EVENTS[type(one)] == event]
        assert not found, found

    def do_revoke(self, kind: str, name: str) -> None:
        self.agent.revoke(kind, name)

    def do_agent(self, action: str) -> None:
        if action == "kill":
            self.agent.stop(signal.SIGKILL)
        else:
            getattr(self.agent, action)()

    def do_redis(self, action: str) -> None:
        assert self.redis is not None
        self.redis.act(action)

    def do_block(self, ms: int, kind: str = "", name: str = "", held: str = "", over: str = "") -> None:
        def work() -> None:
            if kind:
                self.agent.revoke(kind, name)
            time.sleep(ms / 1000)
            assert not held or self.holds[held].is_held(), "it ended meanwhile"
            assert not over or not self.holds[over].is_held(), "it was revoked meanwhile"

        self.twin.block(work)

    def do_beat(self, session: str) -> None:
        self.twin.call(self.sessions[session].beat)

    def do_close(self, session: str) -> None:
        self.twin.call(self.sessions.pop(session).close)

    def do_pause(self, ms: int) -> None:
        time.sleep(ms / 1000)

    def do_sessions(self, count: int, kind: str, name: str, limit: int) -> None:
        sessions = [self.twin.session(self.agent.socket) for _ in range(count)]
        begun = [self.twin.begin(getattr(session, kind)(name, limit).acquire) for session in sessions]
        holds = [one.result(30) for one in begun]
        assert all(hold.is_held() for hold in holds)
        assert len({hold.token for hold in holds}) == count
        for session in sessions:
            self.twin.call(session.close)
        assert not any(hold.is_held() for hold in holds)

    def do_fork(self, steps: list[Json]) -> None:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                self.steps(steps)
                status = 0
            except BaseException as error:
                print(f"in the child: {error}", flush=True)
            finally:
                os._exit(status)
        _, status = os.waitpid(child, 0)
        assert status == 0, f"the child ended with {status}"


def in_seconds(key: str, value: Any) -> Any:
    return value / 1000 if key.endswith("_ms") else value
