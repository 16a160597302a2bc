"""Threads and tasks of one program that want the same: they wait for each other, and never for themselves."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
import tenure
import tenure.compat
from tenure._calls import Calls
from tenure.testing import Agent

PATIENCE = 20.0


@pytest.fixture(params=["agent", "solo"])
def tenancy(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Everything here holds without an agent, too."""
    if request.param == "agent":
        request.getfixturevalue("tenure_agent")
    else:
        monkeypatch.setenv("TENURE_SOLO", "1")
    return str(request.param)


@pytest.fixture
def session(tenancy: str) -> Iterator[tenure.Session]:
    with tenure.session() as session:
        yield session


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any]]]:
    """What the agent is asked, but for the registrations."""
    calls: list[tuple[str, dict[str, Any]]] = []
    post = Calls.post

    def noting(self: Calls, target: str, body: dict[str, Any], **options: Any) -> Any:
        if target != "/v1/register":
            calls.append((target, body))
        return post(self, target, body, **options)

    monkeypatch.setattr(Calls, "post", noting)
    return calls


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.005)


async def until_async(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        await asyncio.sleep(0.005)


def waiting(session: tenure.Session) -> int:
    return int(session.leader("r").standing().waiting)


async def until_waiting(session: tenure.aio.Session, number: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while (await session.leader("r").standing()).waiting != number:
        assert time.monotonic() < deadline, "not in time"
        await asyncio.sleep(0.005)


def begin(work: Callable[[], Any]) -> Future[Any]:
    """Runs the work in a thread of its own, which ends no process that waits in vain."""
    outcome: Future[Any] = Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return outcome


def run(main: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(main, 3 * PATIENCE))


class Room:
    """Where one may be at a time."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self._lock = threading.Lock()

    def enter(self, hold: Any) -> None:
        assert self._lock.acquire(blocking=False), "there are two"
        self.tokens.append(hold.token)

    def leave(self) -> None:
        self._lock.release()

    def check(self, times: int) -> None:
        assert len(self.tokens) == times and self.tokens == sorted(set(self.tokens)), self.tokens


def test_eight_threads_have_it_one_at_a_time(session: tenure.Session) -> None:
    room, together = Room(), threading.Barrier(8)

    def work() -> None:
        together.wait()
        for _ in range(5):
            with session.leader("r") as hold:
                room.enter(hold)
                time.sleep(0.001)
                room.leave()

    for thread in [begin(work) for _ in range(8)]:
        thread.result(PATIENCE)
    room.check(40)


@pytest.mark.parametrize("kind", ["leader", "lease", "master"])
def test_eight_tasks_have_it_one_at_a_time(kind: str, tenancy: str) -> None:
    room = Room()

    async def main() -> None:
        async with tenure.aio.session(project="r") as session:
            resource = session.master() if kind == "master" else getattr(session, kind)("r")

            async def work() -> None:
                for _ in range(5):
                    async with resource as hold:
                        room.enter(hold)
                        await asyncio.sleep(0.001)
                        room.leave()

            await asyncio.gather(*(work() for _ in range(8)))

    run(main())
    room.check(40)


def test_threads_and_tasks_of_two_sessions_have_it_one_at_a_time(session: tenure.Session) -> None:
    room = Room()

    def work() -> None:
        for _ in range(5):
            with session.leader("r") as hold:
                room.enter(hold)
                room.leave()

    async def main() -> None:
        async with tenure.aio.session() as other:

            async def work() -> None:
                for _ in range(5):
                    async with other.leader("r") as hold:
                        room.enter(hold)
                        await asyncio.sleep(0.001)
                        room.leave()

            await asyncio.gather(*(work() for _ in range(4)))

    threads = [begin(work) for _ in range(4)]
    run(main())
    for thread in threads:
        thread.result(PATIENCE)
    room.check(40)


def test_threads_have_it_in_the_order_of_their_calls(session: tenure.Session) -> None:
    order: list[int] = []

    def work(number: int) -> None:
        with session.leader("r"):
            order.append(number)

    threads = []
    with session.leader("r"):
        for number in range(8):
            threads.append(begin(lambda number=number: work(number)))
            until(lambda: waiting(session) == number + 1)
    for thread in threads:
        thread.result(PATIENCE)
    assert order == list(range(8))


def test_tasks_have_it_in_the_order_of_their_calls(tenancy: str) -> None:
    async def main() -> list[int]:
        order: list[int] = []
        async with tenure.aio.session() as session:

            async def work(number: int) -> None:
                async with session.leader("r"):
                    order.append(number)

            tasks = []
            async with session.leader("r"):
                for number in range(8):
                    tasks.append(asyncio.create_task(work(number)))
                    await until_waiting(session, number + 1)
            await asyncio.gather(*tasks)
        return order

    assert run(main()) == list(range(8))


def test_a_hand_over_is_a_release_and_an_acquire(tenure_agent: Agent, asked: list[tuple[str, dict[str, Any]]]) -> None:
    with tenure.session() as session:
        with session.leader("r"):
            threads = [begin(lambda: session.leader("r").acquire().release()) for _ in range(4)]
            until(lambda: waiting(session) == 4)
        for thread in threads:
            thread.result(PATIENCE)
        with session.leader("other"), session.leader("r"):
            pass
    acquires = [body for target, body in asked if target == "/v1/acquire"]
    assert [body.get("behind_own", False) for body in acquires] == [False] + [True] * 4 + [False] * 2, asked
    assert len([1 for target, body in asked if target == "/v1/release" and "hold" in body]) == 7


def test_what_the_agent_names_as_the_sessions_own_is_waited_for(
    tenure_agent: Agent, asked: list[tuple[str, dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    # So it is while the grant of another thread is on its way.
    monkeypatch.setattr("tenure._actors.Turn.held", lambda turn: None)
    with tenure.session() as session:
        with session.leader("r") as first:
            thread = begin(lambda: session.leader("r").acquire())
            until(lambda: waiting(session) == 1)
        assert thread.result(PATIENCE).token > first.token
    assert [body.get("behind_own", False) for target, body in asked if target == "/v1/acquire"] == [False, False, True]


def test_an_older_agent_refuses_at_once(tenure_agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    post = Calls.post

    def older(self: Calls, target: str, body: dict[str, Any], **options: Any) -> Any:
        if "behind_own" in body:
            raise tenure.Refused("invalid", "unknown field `behind_own`, expected one of `session`, `kind`")
        return post(self, target, body, **options)

    monkeypatch.setattr(Calls, "post", older)
    with tenure.session() as session, session.leader("r"):
        for _ in range(2):
            with pytest.raises(tenure.Busy, match="itself") as busy:
                begin(lambda: session.leader("r").acquire()).result(PATIENCE)
            assert type(busy.value) is tenure.Busy and not busy.value.held_by_self


def test_a_second_thread_waits_as_long_as_it_says(session: tenure.Session) -> None:
    with session.leader("r"):
        for wait, error in [(0.05, tenure.WaitTimeout), (0, tenure.Busy)]:
            with pytest.raises(tenure.Busy) as busy:
                begin(lambda wait=wait: session.leader("r", wait=wait).acquire()).result(PATIENCE)
            assert type(busy.value) is error and not busy.value.held_by_self
        # The waiter has left its place.
        until(lambda: waiting(session) == 0)
        thread = begin(lambda: session.leader("r").acquire())
        until(lambda: waiting(session) == 1)
    assert thread.result(PATIENCE).is_held()


def test_a_task_that_is_cancelled_leaves_its_place(tenancy: str) -> None:
    async def main() -> None:
        async with tenure.aio.session() as session:

            async def work() -> int:
                async with session.leader("r") as hold:
                    return hold.token

            hold = await session.leader("r").acquire()
            tasks = []
            for number in range(3):
                tasks.append(asyncio.create_task(work()))
                await until_waiting(session, number + 1)
            tasks[0].cancel()
            await until_waiting(session, 2)
            await hold.release()
            assert hold.token < await tasks[1] < await tasks[2]
            assert tasks[0].cancelled()

    run(main())


@pytest.mark.parametrize("wait", [None, PATIENCE, 0])
@pytest.mark.parametrize("through", ["the same session", "another session", "a session that names the tenant"])
def test_a_thread_never_waits_for_itself(wait: float | None, through: str, session: tenure.Session) -> None:
    with tenure.session(tenant="default" if "tenant" in through else None) as other:
        asks = session if through == "the same session" else other

        def twice() -> None:
            with session.leader("r") as hold:
                with pytest.raises(tenure.Busy, match=f"by this thread itself, with token {hold.token}") as busy:
                    asks.leader("r", wait=wait).acquire()
                assert type(busy.value) is tenure.Busy and busy.value.held_by_self and busy.value.holder
                assert hold.is_held() and waiting(session) == 0
            with asks.leader("r", wait=wait) as again:
                assert again.token > hold.token

        begin(twice).result(PATIENCE)


@pytest.mark.parametrize("wait", [None, PATIENCE, 0])
@pytest.mark.parametrize("through", ["the same session", "another session", "a session for threads"])
def test_a_task_never_waits_for_itself(wait: float | None, through: str, tenancy: str) -> None:
    async def main() -> None:
        async with tenure.aio.session() as session, tenure.aio.session() as other:
            async with session.leader("r") as hold:
                with pytest.raises(tenure.Busy, match=f"by this task itself, with token {hold.token}") as busy:
                    if through == "a session for threads":
                        tenure.leader("r", wait=wait).acquire()
                    elif through == "another session":
                        await other.leader("r", wait=wait).acquire()
                    else:
                        await session.leader("r", wait=wait).acquire()
                assert type(busy.value) is tenure.Busy and busy.value.held_by_self and busy.value.holder
                assert hold.is_held() and (await session.leader("r").standing()).waiting == 0

    run(main())


def test_a_thread_that_blocks_its_loop_waits_for_none_of_its_tasks(session: tenure.Session) -> None:
    async def main() -> None:
        held = asyncio.Event()

        async def hold_it() -> None:
            with session.leader("r"):
                held.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(hold_it())
        await held.wait()
        with pytest.raises(tenure.Busy) as busy:
            session.leader("r").acquire()
        assert busy.value.held_by_self
        task.cancel()

    def around() -> None:
        async def main() -> None:
            async with tenure.aio.leader("r"):
                pass

        with session.leader("r"), pytest.raises(tenure.Busy, match="by a thread that waits for this task"):
            asyncio.run(main())

    begin(lambda: run(main())).result(PATIENCE)
    begin(around).result(PATIENCE)


async def _awaits(child: asyncio.Task[Any]) -> None:
    await child


async def _gathers(child: asyncio.Task[Any]) -> None:
    await asyncio.gather(asyncio.sleep(0), asyncio.gather(child))


async def _waits(child: asyncio.Task[Any]) -> None:
    await asyncio.wait({child, asyncio.create_task(asyncio.sleep(0))})


async def _waits_for(child: asyncio.Task[Any]) -> None:
    await asyncio.wait_for(child, PATIENCE)


async def _groups(child: asyncio.Task[Any]) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(_awaits(child))


async def _is_two_away(child: asyncio.Task[Any]) -> None:
    await asyncio.create_task(_gathers(child))


PARENTS = [_awaits, _gathers, _waits, _waits_for, _is_two_away, *([_groups] if sys.version_info >= (3, 11) else [])]


@pytest.mark.parametrize("asks", ["before", "after"])
@pytest.mark.parametrize("parent", PARENTS)
def test_a_task_never_waits_for_one_that_awaits_it(parent: Any, asks: str, tenancy: str) -> None:
    async def main() -> None:
        async with tenure.aio.session() as session:

            async def work() -> None:
                with pytest.raises(tenure.Busy, match="by a task that waits for this task") as busy:
                    await session.leader("r").acquire()
                assert type(busy.value) is tenure.Busy and busy.value.held_by_self

            async with session.leader("r") as hold:
                child = asyncio.create_task(work())
                if asks == "before":
                    await until_waiting(session, 1)
                await parent(child)
                await child
                assert hold.is_held()
                await until_waiting(session, 0)

    run(main())


def test_a_task_waits_for_one_that_goes_on(tenancy: str) -> None:
    async def main() -> None:
        async with tenure.aio.session() as session:

            async def work() -> int:
                async with session.leader("r") as hold:
                    return hold.token

            async with session.leader("r") as hold:
                child = asyncio.create_task(work())
                # These threads end before the child does.
                await asyncio.wait({child}, timeout=0.1)
                other = asyncio.create_task(asyncio.sleep(0.1))
                await asyncio.wait({child, other}, return_when=asyncio.FIRST_COMPLETED)
                await until_waiting(session, 1)
            assert await child > hold.token

    run(main())


@pytest.mark.parametrize("asks", ["before", "after"])
@pytest.mark.parametrize("between", [0, 1])
def test_a_thread_never_waits_for_one_that_joins_it(between: int, asks: str, session: tenure.Session) -> None:
    children: list[Future[Any]] = []

    def child() -> None:
        if asks == "after":
            until(lambda: "_wait_for_tstate_lock" in names() or "join" in names())
        session.leader("r").acquire()

    def names() -> list[str]:
        frame, found = sys._current_frames().get(idents[0]), []
        while frame is not None:
            found.append(frame.f_code.co_name)
            frame = frame.f_back
        return found

    def joins(work: Callable[[], Any]) -> None:
        outcome: Future[Any] = Future()
        children.append(outcome)

        def noting() -> None:
            try:
                outcome.set_result(work())
            except BaseException as error:
                outcome.set_exception(error)

        thread = threading.Thread(target=noting, daemon=True)
        thread.start()
        if asks == "before":
            until(lambda: waiting(session) == 1)
        thread.join()

    idents: list[int] = []

    def parent() -> bool:
        idents.append(threading.get_ident())
        with session.leader("r") as hold:
            joins(child if not between else lambda: joins(child))
            return hold.is_held()

    assert begin(parent).result(PATIENCE)
    with pytest.raises(tenure.Busy, match="by a thread that waits for this thread") as busy:
        children[-1].result(PATIENCE)
    assert type(busy.value) is tenure.Busy and busy.value.held_by_self
    until(lambda: waiting(session) == 0)


def test_a_thread_waits_for_one_that_joins_it_for_a_while(session: tenure.Session) -> None:
    tokens: list[int] = []

    def work() -> None:
        with session.leader("r") as hold:
            tokens.append(hold.token)

    child = threading.Thread(target=work, daemon=True)
    with session.leader("r") as hold:
        child.start()
        while waiting(session) == 0:
            child.join(0.05)
        # Long enough for the child to look again.
        child.join(0.1)
    child.join(PATIENCE)
    assert tokens and tokens[0] > hold.token


def test_a_hold_is_of_the_thread_that_enters_it(session: tenure.Session) -> None:
    hold = begin(lambda: session.leader("r").acquire()).result(PATIENCE)
    with hold:
        with pytest.raises(tenure.Busy) as busy:
            session.leader("r").acquire()
        assert busy.value.held_by_self


def test_calls_of_a_worker_thread_are_told_apart(session: tenure.Session) -> None:
    async def main() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        hold = await asyncio.to_thread(lambda: session.leader("r").acquire())
        again = asyncio.create_task(asyncio.to_thread(lambda: session.leader("r").acquire()))
        # The worker is in that call.
        await until_async(lambda: waiting(session) == 1)
        hold.release()
        assert (await again).token > hold.token

    run(main())


def test_a_generator_may_be_left_by_another_thread(session: tenure.Session) -> None:
    @contextlib.contextmanager
    def dependency() -> Iterator[tenure.Hold]:
        with session.leader("r") as hold:
            yield hold

    first, second = dependency(), dependency()
    hold = begin(first.__enter__).result(PATIENCE)
    entering = begin(second.__enter__)
    until(lambda: waiting(session) == 1)
    assert hold.is_held()
    first.__exit__(None, None, None)
    assert entering.result(PATIENCE).token > hold.token and not hold.is_held()
    second.__exit__(None, None, None)
    permits = session.semaphore("s", 2)
    for _ in range(2):
        begin(permits.__enter__).result(PATIENCE)
    with pytest.raises(RuntimeError, match="has not entered <semaphore/s>"):
        permits.__exit__(None, None, None)


def test_waiters_have_what_its_holder_has_lost(tenure_agent: Agent) -> None:
    with tenure.session() as session:
        hold = session.leader("r", ttl=1).acquire()
        first, second = [], []
        for results in (first, second):
            results.append(begin(lambda: session.leader("r", ttl=1).acquire()))
            until(lambda: waiting(session) == len(first) + len(second))
        tenure_agent.revoke("leader", "r")
        taken = first[0].result(PATIENCE)
        assert taken.token > hold.token
        # The reason may come after the page has shown the end.
        until(lambda: hold.lost is not None and hold.lost.reason is tenure.Reason.REVOKED)
        tenure_agent.stop(signal.SIGKILL)
        assert taken.wait_until_over(PATIENCE)
        tenure_agent.start()
        assert second[0].result(PATIENCE).token > taken.token


def test_a_wait_outlasts_the_agent(tenure_agent: Agent) -> None:
    with tenure.session() as session:
        hold = session.leader("r").acquire()
        thread = begin(lambda: session.leader("r").acquire())
        until(lambda: waiting(session) == 1)
        tenure_agent.crash()
        until(lambda: waiting(session) == 1)
        hold.release()
        assert thread.result(PATIENCE).token > hold.token


def test_a_semaphore_may_be_had_twice(session: tenure.Session) -> None:
    with session.semaphore("s", 2), session.semaphore("s", 2):
        with pytest.raises(tenure.WaitTimeout) as busy:
            session.semaphore("s", wait=0.05).acquire()
        assert not busy.value.held_by_self
        with pytest.raises(tenure.Busy) as busy:
            session.semaphore("s", wait=0).acquire()
        assert not busy.value.held_by_self


def test_another_thread_may_give_back_a_lock_of_redis_py(tenure_agent: Agent) -> None:
    first, second = (tenure.compat.Lock(None, "r", thread_local=False) for _ in range(2))
    with tenure.session() as session:

        def work() -> None:
            until(lambda: waiting(session) == 1)
            first.release()

        assert first.acquire() and not second.acquire(blocking_timeout=0.05)
        until(lambda: waiting(session) == 0)
        thread = begin(work)
        assert second.acquire()
        thread.result(PATIENCE)
        second.release()
