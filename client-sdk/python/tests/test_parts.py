"""The parts without an agent."""

from __future__ import annotations

import asyncio
import json
import queue
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
import tenure
from tenure import _http, _socket, _sse, events, page
from tenure._awaiting import AsyncIo, within
from tenure._blocking import BlockingIo
from tenure._calls import Calls
from tenure._core import Core
from tenure._effects import Io
from tenure._life import Life


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        ("", []),
        ("id: 7\nevent: granted\ndata: {}\n\n", [(7, "granted", "{}")]),
        ("id: 7\r\nevent: granted\r\ndata: {}\r\n\r\n", [(7, "granted", "{}")]),
        ("event: a\ndata: 1\n\nevent: b\ndata: 2\n\n", [(None, "a", "1"), (None, "b", "2")]),
        ("data:1\ndata: 2\ndata\n\n", [(None, "", "1\n2\n")]),
        (": keep-alive\n\ndata: {}\n: in between\n\n", [(None, "", "{}")]),
        ("id: 9\nevent: unfinished\ndata: {}\n", []),
        ("event: without data\n\ndata: x\n\n", [(None, "", "x")]),
        ("id: none\nretry: 10\nfuture: y\ndata: x\n\n", [(None, "", "x")]),
        ("id: 1\ndata: grüße\n\n", [(1, "", "grüße")]),
    ],
)
def test_frames(size: int, stream: str, expected: list[tuple[int | None, str, str]]) -> None:
    parser, content = _sse.Parser(), stream.encode()
    frames = [frame for at in range(0, len(content), size) for frame in parser.feed(content[at : at + size])]
    assert [(frame.id, frame.event, frame.data) for frame in frames] == expected


def test_an_endless_event_is_refused() -> None:
    with pytest.raises(_sse.FrameTooLarge):
        _sse.Parser().feed(b"x" * (_sse.FRAME_SIZE_MAX + 1))
    parser = _sse.Parser()
    with pytest.raises(_sse.FrameTooLarge):
        for _ in range(3):
            parser.feed(b"data: " + b"x" * (_sse.FRAME_SIZE_MAX // 2) + b"\n")


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize(
    ("content", "body"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", b"hello"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\na: b\r\n\r\n", b"hello"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", b""),
    ],
)
def test_responses(size: int, content: bytes, body: bytes) -> None:
    response = _http.Response()
    for at in range(0, len(content), size):
        assert not response.complete
        response.feed(content[at : at + size])
    assert response.complete
    assert bytes(response.body) == body


@pytest.mark.parametrize("content", [b"SSH-2.0-OpenSSH_9\r\n", b"HTTP/1.1 abc\r\n\r\n", b"x" * 70000])
def test_what_is_no_http_is_refused(content: bytes) -> None:
    with pytest.raises(_http.NotHttp):
        _http.Response().feed(content)


def test_a_connection_that_ends_early_is_an_error() -> None:
    response = _http.Response()
    response.feed(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhe")
    with pytest.raises(ConnectionResetError):
        response.feed(b"")


OWN = "/run/user/1000/tenured/api.sock"
SERVICE = _socket.SERVICE_SOCKET


@pytest.mark.parametrize(
    ("explicit", "environment", "existing", "found"),
    [
        ("/b.sock", {"TENURE_SOCKET": "/a.sock"}, [OWN], "/b.sock"),
        (None, {"TENURE_SOCKET": "/a.sock", "XDG_RUNTIME_DIR": "/run/user/1000"}, [OWN], "/a.sock"),
        (None, {"TENURE_SOCKET": "", "XDG_RUNTIME_DIR": "/run/user/1000"}, [OWN, SERVICE], OWN),
        (None, {"XDG_RUNTIME_DIR": "/run/user/1000"}, [SERVICE], SERVICE),
        (None, {"XDG_RUNTIME_DIR": "/run/user/1000"}, [], OWN),
        (None, {}, [], SERVICE),
        (None, {}, ["/tmp/tenured-1000/api.sock"], "/tmp/tenured-1000/api.sock"),
        (None, {}, [OWN, SERVICE], OWN),
        (None, {"XDG_RUNTIME_DIR": "/run/user/0"}, [OWN, SERVICE], OWN),
        ("unix:/a.sock", {}, [], "/a.sock"),
        ("unix:///a.sock", {}, [], "/a.sock"),
    ],
)
def test_the_nearest_socket_wins(explicit: str | None, environment: dict[str, str], existing: list[str], found: str) -> None:
    assert _socket.find_in(explicit, environment, 1000, existing.__contains__) == found


@pytest.mark.parametrize(
    ("value", "rule"),
    [("unix://host/a", "has no host"), ("http://host/", "only scheme"), ("unix:", "not be empty"), ("/" * 108, "shorter")],
)
def test_what_names_no_socket_is_refused(value: str, rule: str) -> None:
    with pytest.raises(tenure.AgentUnavailable, match=rule):
        _socket.find(value)


def test_a_missing_agent_is_said_with_the_way_out() -> None:
    with pytest.raises(tenure.AgentUnavailable, match="start the agent with `tenured`"):
        tenure.session(socket="/nowhere/api.sock").open()


class PageFile:
    """A page as an agent writes it."""

    def __init__(self, path: Path, slots: int = 3) -> None:
        self.path, self.session, self.boot = path, str(uuid.uuid4()), str(uuid.uuid4())
        self.content = bytearray(64 * (slots + 1))
        self.content[:16] = b"TENUREP1" + (1).to_bytes(4, "little") + slots.to_bytes(4, "little")
        self.content[16:48] = uuid.UUID(self.session).bytes + uuid.UUID(self.boot).bytes
        self.write()

    def write(self) -> None:
        # In place: the reader has it mapped.
        with open(self.path, "r+b" if self.path.exists() else "wb") as file:
            file.write(self.content)

    def slot(self, slot: int, hold: str, valid_until: int, token: int = 7) -> None:
        words = uuid.UUID(hold).bytes + token.to_bytes(8, "little") + valid_until.to_bytes(8, "little")
        self.content[64 * (slot + 1) : 64 * (slot + 1) + 32] = words
        self.write()

    def open(self) -> page.Page:
        return page.Page(str(self.path), self.session, self.boot)


def test_a_page_shows_what_is_held_now(tmp_path: Path) -> None:
    file, hold, other = PageFile(tmp_path / "page"), str(uuid.uuid4()), str(uuid.uuid4())
    opened = file.open()
    view = opened.view(1, hold)
    assert not page.is_held(view)
    until = page.boottime_ns() + 10**10
    file.slot(1, hold, until)
    assert page.is_held(view) and page.valid_until_ns(view) == until and opened.token(1, hold) == 7
    file.slot(1, other, until)
    assert not page.is_held(view) and page.valid_until_ns(view) == 0 and opened.token(1, hold) is None
    file.slot(1, hold, page.boottime_ns() - 1)
    assert not page.is_held(view)
    file.slot(1, other, until)
    file.slot(2, hold, until)
    assert (opened.find(hold, 1), opened.find(hold, 2), opened.find(other, 0)) == (2, 2, 1)
    assert not page.is_held(opened.view(3, hold)) and not page.is_held(page.dead_view())


@pytest.mark.parametrize(
    ("at", "content", "difference"),
    [(0, b"X", "begins with"), (8, b"\2", "version 2"), (12, b"\4", "4 slots"), (16, b"\0\0\0\0\0", "session"), (32, b"\0\0\0\0\0", "boot")],
)
def test_another_page_is_refused(tmp_path: Path, at: int, content: bytes, difference: str) -> None:
    file = PageFile(tmp_path / "page")
    file.content[at : at + len(content)] = content
    file.write()
    with pytest.raises(tenure.PageError, match=difference):
        file.open()


def test_a_page_that_is_short_or_missing_is_refused(tmp_path: Path) -> None:
    (tmp_path / "short").write_bytes(b"TENUREP1")
    for name in ("short", "missing"):
        with pytest.raises(tenure.PageError):
            page.Page(str(tmp_path / name), str(uuid.uuid4()), str(uuid.uuid4()))


def test_a_page_in_the_place_of_another_is_noticed(tmp_path: Path) -> None:
    file = PageFile(tmp_path / "page")
    opened = file.open()
    assert opened.is_at(str(file.path))
    (tmp_path / "new").write_bytes(file.content)
    (tmp_path / "new").rename(file.path)
    assert not opened.is_at(str(file.path))


def test_another_clock_is_told_from_a_slow_answer() -> None:
    second, now = 10**9, page.boottime_ns()
    page.check_clock(now - second, 30_000, now + 30 * second)
    page.check_clock(now - 2 * second, 30_000, now + 29 * second)
    page.check_clock(now, 0, now - second)
    with pytest.raises(tenure.ClocksDiffer, match="behind the agent's: a time namespace"):
        page.check_clock(now, 30_000, now + 330 * second)
    with pytest.raises(tenure.ClocksDiffer, match="300.0 s ahead of"):
        page.check_clock(now, 30_000, now - 270 * second)


def test_the_clock_is_that_of_uptime() -> None:
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    assert abs(page.boottime_ns() / 1e9 - uptime) < 1
    assert time.CLOCK_BOOTTIME == page.BOOTTIME


class Granted:
    """A hold whose session has no agent, and a watch only where a test begins it."""

    def __init__(self, directory: Path, io: Io | None = None) -> None:
        self.file, hold = PageFile(directory / "page"), str(uuid.uuid4())
        until = page.boottime_ns() + 10**10
        self.file.slot(0, hold, until)
        self.io = io or BlockingIo()
        registered = {"session": self.file.session, "page": str(self.file.path), "boot_id": self.file.boot}
        self.core = Core(self.io, Calls("/nowhere"), registered, self.file.open())
        self.core.connected = False
        self.answer = {"hold": hold, "kind": "leader", "name": "r", "token": 7, "ttl_ms": 30_000, "slot": 0}
        self.answer |= {"valid_ms": 10_000, "valid_until_boottime_ns": until}
        self.cell = BlockingIo().run(self.core._granted(self.answer, until - 10**10))
        self.life = Life(self.io, "/nowhere", {})

    def turns(self, valid_until: int, slot: int = 0) -> None:
        self.file.slot(slot, self.cell.id, valid_until)

    def watches(self) -> None:
        self.io.spawn(self.core._watch.run(), "watch")

    def tell(self, reason: str) -> None:
        data = {"hold": self.cell.id, "kind": "leader", "name": "r", "token": 7, "reason": reason}
        told = events.parse("lost", json.dumps(data))
        assert isinstance(told, tenure.Lost)
        self.core._apply(told, self.core.streams)


def checks(hold: tenure.Hold) -> None:
    with pytest.raises(tenure.Lost) as lost:
        hold.check()
    assert lost.value.reason is tenure.Reason.EXPIRED
    assert "was lost: expired: no agent has answered at /nowhere for " in str(lost.value)


def releases(hold: tenure.Hold) -> None:
    with pytest.raises(tenure.Lost) as lost:
        hold.release()
    assert lost.value.reason is tenure.Reason.EXPIRED


def leaves_a_block(hold: tenure.Hold) -> None:
    with pytest.raises(tenure.Lost) as lost, hold:
        hold.check()
    assert lost.value.reason is tenure.Reason.EXPIRED


def asks(hold: tenure.Hold) -> None:
    assert hold.lost is not None


@pytest.mark.parametrize("notices", [checks, releases, leaves_a_block, asks])
def test_a_thread_that_notices_the_end_before_the_watch_does_records_it(
    notices: Callable[[tenure.Hold], None], tmp_path: Path
) -> None:
    granted, told, mutex = Granted(tmp_path), queue.Queue[tenure.Reason](), threading.Lock()
    hold = tenure.Hold(granted.life, granted.core, granted.cell)

    def callback(lost: tenure.Lost) -> None:
        if mutex.acquire(blocking=False):
            told.put(lost.reason)
            mutex.release()

    hold.on_lost(callback)
    assert hold.lost is None
    granted.turns(page.boottime_ns() - 1)
    with mutex:
        notices(hold)
    assert hold.lost is not None and hold.lost.reason is tenure.Reason.EXPIRED
    granted.watches()
    assert told.get(timeout=60) is tenure.Reason.EXPIRED and hold.wait_until_over(0)
    # It stays lost, and the agent's reason is better.
    granted.turns(page.boottime_ns() + 10**10)
    assert not hold.is_held()
    granted.tell("max_hold")
    assert hold.lost.reason is tenure.Reason.MAX_HOLD
    with pytest.raises(tenure.Lost, match="max_hold"):
        hold.release()
    granted.core.end("the test is over")
    assert told.empty()


@pytest.mark.parametrize("in_executor", [True, False])
def test_a_task_that_notices_the_end_before_the_watch_does_records_it(in_executor: bool, tmp_path: Path) -> None:
    async def main() -> None:
        granted = Granted(tmp_path, AsyncIo(asyncio.get_running_loop()))
        hold = tenure.aio.Hold(granted.life, granted.core, granted.cell)
        told = list[tuple[tenure.Reason, int]]()
        hold.on_lost(lambda lost: told.append((lost.reason, threading.get_ident())))
        with pytest.raises(tenure.Lost):
            async with hold:
                granted.turns(page.boottime_ns() - 1)
                if in_executor:
                    await asyncio.to_thread(hold.check)
        assert hold.lost is not None and hold.lost.reason is tenure.Reason.EXPIRED
        granted.watches()
        while not told:
            await asyncio.sleep(0)
        granted.core.end("the test is over")
        assert told == [(tenure.Reason.EXPIRED, threading.get_ident())]

    asyncio.run(main())


@pytest.mark.parametrize("makes_a_page", [True, False])
@pytest.mark.parametrize("looks", [tenure.Hold.check, tenure.Hold.release, lambda hold: hold._core._watch.take(hold._cell)])
def test_a_hold_that_a_restarted_agent_renewed_elsewhere_is_held(
    looks: Callable[[tenure.Hold], None], makes_a_page: bool, tmp_path: Path
) -> None:
    granted, told = Granted(tmp_path), list[tenure.Lost]()
    hold = tenure.Hold(granted.life, granted.core, granted.cell)
    hold.on_lost(told.append)
    granted.turns(page.boottime_ns() - 1)
    granted.cell.seen_valid_until = page.boottime_ns() - 1
    if makes_a_page:
        granted.file.path.unlink()
    granted.turns(0)
    granted.turns(page.boottime_ns() + 10**10, slot=2)
    assert not hold.is_held()
    looks(hold)
    assert hold.lost is None and hold.is_held() is not granted.cell.released
    granted.core.end("the test is over")
    assert [one.reason for one in told] == [tenure.Reason.SESSION_GONE] * (not granted.cell.released)


def test_a_hold_that_was_given_up_before_its_reason_came_is_lost(tmp_path: Path) -> None:
    granted, told = Granted(tmp_path), list[tenure.Lost]()
    hold = tenure.Hold(granted.life, granted.core, granted.cell)
    hold.on_lost(told.append)
    granted.core.connected = True
    # As an agent ends it.
    granted.turns(0)
    with pytest.raises(tenure.Lost) as lost:
        hold.check()
    # A restarted agent may have given it another slot.
    assert lost.value.reason is tenure.Reason.UNTOLD and hold.lost is None
    with pytest.raises(tenure.Lost):
        hold.release()
    assert hold.lost is not None and hold.lost.reason is tenure.Reason.UNTOLD
    granted.tell("revoked")
    assert hold.lost.reason is tenure.Reason.REVOKED
    granted.core.end("the test is over")
    assert [one.reason for one in told] == [tenure.Reason.REVOKED]


def test_a_hold_that_an_absent_agent_may_have_elsewhere_is_given_back(tmp_path: Path) -> None:
    granted, told = Granted(tmp_path), list[tenure.Lost]()
    hold = tenure.Hold(granted.life, granted.core, granted.cell)
    hold.on_lost(told.append)
    granted.turns(0)
    hold.release()
    granted.core.end("the test is over")
    assert hold.lost is None and not told


def test_a_hold_that_was_given_back_is_not_lost(tmp_path: Path) -> None:
    granted, told = Granted(tmp_path), list[tenure.Lost]()
    hold = tenure.Hold(granted.life, granted.core, granted.cell)
    hold.on_lost(told.append)
    hold.release()
    granted.turns(0)
    granted.tell("expired")
    hold.release()
    assert hold.lost is None and not told
    granted.core.end("the test is over")


def test_a_grant_that_overtakes_an_older_snapshot_is_kept(tmp_path: Path) -> None:
    granted = Granted(tmp_path)
    core, cell = granted.core, granted.cell
    view = {**granted.answer, "state": "waiting", "valid_ms": 0, "valid_until_boottime_ns": 0}

    def snapshot(*views: dict[str, object]) -> events.Snapshot:
        return events.Snapshot("none", tuple(events.HoldView.parse(one) for one in views))

    # Asked for before the hold was there; on the stream of its time; on a later one that was slow.
    core._apply(snapshot(), core.streams)
    core._apply(snapshot(view), core.streams + 1)
    assert not cell.is_over() and page.is_held(cell.view)
    core._apply(snapshot(), core.streams + 1)
    assert cell.lost is not None and cell.lost.reason is tenure.Reason.FORGOTTEN


@pytest.mark.parametrize("turns", range(6))
def test_a_cancellation_that_meets_a_result_stays_one(turns: int) -> None:
    async def main() -> None:
        result: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        async def work() -> int:
            return await result

        task = asyncio.create_task(within(work(), 60))
        for _ in range(10):
            await asyncio.sleep(0)
        result.set_result(7)
        for _ in range(turns):
            await asyncio.sleep(0)
        if task.cancel():
            with pytest.raises(asyncio.CancelledError):
                await task
        else:
            assert await task == 7

    asyncio.run(main())


def test_work_that_is_late_is_ended() -> None:
    async def main() -> None:
        ended = asyncio.Event()

        async def work() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        with pytest.raises(TimeoutError):
            await within(work(), 0.001)
        assert ended.is_set()

    asyncio.run(main())
