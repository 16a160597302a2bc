"""The classes for programs that come from other packages, and the three patterns of an election."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine
from typing import Any

import pytest
import tenure
from conformance_script import until as until_blocking
from tenure.compat import LeaderElection, Lock, LockError, LockNotOwnedError, RedisSemaphore, leader_only
from tenure.testing import Agent

pytestmark = pytest.mark.usefixtures("tenure_agent")
PATIENCE = 30.0


async def until(condition: Any) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        await asyncio.sleep(0.005)


def run(main: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(main, 60))


def test_continuous_election() -> None:
    async def main() -> None:
        done: list[str] = []
        running = True

        async def worker(name: str) -> None:
            # As ADR-0004 writes it.
            election = LeaderElection("cleanup-worker")
            await election.start()
            while running and name not in stopping:
                if election.is_leader:
                    done.append(name)
                await asyncio.sleep(0.005)
            await election.stop()
            assert not election.is_leader

        stopping: set[str] = set()
        workers = {name: asyncio.create_task(worker(name)) for name in ("one", "two")}
        await until(lambda: len(done) >= 3)
        first = done[0]
        assert set(done) == {first}
        stopping.add(first)
        await workers[first]
        done.clear()
        await until(lambda: len(done) >= 3)
        assert set(done) == set(workers) - {first}
        running = False
        await asyncio.gather(*workers.values())

    run(main())


def test_one_shot_election() -> None:
    async def main() -> None:
        reports = 0

        async def cron_job() -> None:
            nonlocal reports
            # As ADR-0004 writes it.
            async with LeaderElection("daily-report") as election:
                if election.is_leader:
                    assert election.token
                    reports += 1
                    await others.wait()

        others = asyncio.Event()
        jobs = {asyncio.create_task(cron_job()) for _ in range(3)}
        _, pending = await asyncio.wait(jobs, return_when=asyncio.FIRST_COMPLETED, timeout=PATIENCE)
        await until(lambda: sum(job.done() for job in jobs) == 2)
        assert reports == 1
        others.set()
        await asyncio.gather(*jobs)
        # It was given back.
        await cron_job()
        assert reports == 2

    run(main())


def test_decorated_election() -> None:
    async def main() -> None:
        inside, go_on = asyncio.Event(), asyncio.Event()

        # As ADR-0004 writes it.
        @leader_only("aggregation")
        async def aggregate_metrics() -> str:
            inside.set()
            await go_on.wait()
            return "done"

        async with tenure.aio.session() as elsewhere:
            leading = asyncio.create_task(aggregate_metrics())
            await inside.wait()
            with pytest.raises(tenure.Busy):
                await elsewhere.leader("aggregation", wait=0).acquire()
            go_on.set()
            assert await leading == "done"
            async with elsewhere.leader("aggregation", wait=0):
                assert await aggregate_metrics() is None

    run(main())


def test_callbacks_that_fail_end_no_election(tenure_agent: Agent, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        election = LeaderElection("worker")
        tokens: set[int | None] = set()

        async def fail() -> None:
            tokens.add(election.token)
            raise KeyError("mine")

        election.on_elected = election.on_lost = fail
        await election.start()
        await until(lambda: election.is_leader and tokens)
        first = election.token
        tenure_agent.revoke("leader", "worker")
        await until(lambda: election.is_leader and election.token != first)
        await election.stop()

    run(main())
    assert "on_elected of the election of worker failed" in caplog.text
    assert "on_lost of the election of worker failed" in caplog.text


def test_an_election_outlasts_a_time_without_an_agent(tenure_agent: Agent, caplog: pytest.LogCaptureFixture) -> None:
    tenure_agent.stop()

    async def main() -> None:
        election = LeaderElection("worker")
        await election.start()
        await until(lambda: "the election of worker goes on: " in caplog.text)
        assert not election.is_leader
        await asyncio.to_thread(tenure_agent.start)
        await until(lambda: election.is_leader)
        await election.stop()

    run(main())


def test_errors_are_those_of_redis_py() -> None:
    exceptions = pytest.importorskip("redis").exceptions
    lock = Lock(None, "nightly")
    with pytest.raises(exceptions.LockError, match="already unlocked"):
        lock.release()
    assert issubclass(LockNotOwnedError, exceptions.LockNotOwnedError) and issubclass(LockNotOwnedError, LockError)
    assert issubclass(LockError, tenure.TenureError) and not issubclass(LockError, exceptions.LockNotOwnedError)


@pytest.mark.parametrize("timeout", [0, 0.001, 1, 10.0, 10**9])
def test_any_name_and_timeout_of_redis_py(timeout: float) -> None:
    with Lock(None, b"leader:nightly", timeout=timeout) as lock:
        assert lock.owned() and lock.name == b"leader:nightly"
        assert not Lock(None, "nightly").acquire(blocking_timeout=-1)


def test_a_thread_cannot_release_the_lock_of_another() -> None:
    lock, shared = Lock(None, "one"), Lock(None, "two", thread_local=False)
    assert lock.acquire() and shared.acquire()
    told: list[type[BaseException] | None] = []

    def work() -> None:
        for one in (lock, shared):
            try:
                one.release()
                told.append(None)
            except LockError as error:
                told.append(type(error))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert told == [LockError, None]
    assert lock.owned() and not shared.locked()
    lock.release()


def test_a_release_that_fails_at_the_end_of_a_block(tenure_agent: Agent, caplog: pytest.LogCaptureFixture) -> None:
    for strict in (True, False):
        lock = Lock(None, "nightly", raise_on_release_error=strict)
        assert lock.acquire()
        tenure_agent.revoke("leader", "nightly")
        until_blocking(lambda: not lock.owned(), "the loss")
        if strict:
            with pytest.raises(LockNotOwnedError):
                lock.__exit__(None, None, None)
        else:
            lock.__exit__(None, None, None)
    assert "leader/nightly" in caplog.text


def test_locks_in_turn_share_a_session() -> None:
    for name in ("one", "two", "one"):
        with Lock(None, name):
            pass
    with Lock(None, "one") as lock:
        (entry,) = tenure.leader("one").standing().holders
        assert lock.owned() and entry.token
    with tenure.session() as session:
        (agent,) = session.agents()
    # This one, and the one that asks who has it.
    assert agent.sessions <= 3


def test_the_lock_of_redis_py() -> None:
    lock = Lock(None, "leader:nightly", timeout=10, blocking_timeout=0.1)
    with lock:
        assert lock.owned() and lock.locked() and lock.extend(5) and lock.reacquire()
        other = Lock(None, "nightly", blocking=False)
        assert not other.acquire()
        with tenure.session() as elsewhere, pytest.raises(tenure.Busy):
            elsewhere.leader("nightly", wait=0).acquire()
    assert not lock.owned() and not lock.locked()
    with pytest.raises(LockError):
        lock.release()


def test_locks_of_one_program_wait_for_each_other() -> None:
    inside, most, done = 0, 0, 0

    def work() -> None:
        nonlocal inside, most, done
        for _ in range(5):
            with Lock(None, "nightly", timeout=10):
                inside += 1
                most = max(most, inside)
                time.sleep(0.002)
                inside -= 1
                done += 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert (most, done) == (1, 20)


def test_elections_of_one_program_are_rivals() -> None:
    async def main() -> None:
        first, second = LeaderElection("worker"), LeaderElection("worker")
        await first.start()
        await until(lambda: first.is_leader)
        await second.start()
        async with tenure.aio.session() as elsewhere:
            deadline = time.monotonic() + PATIENCE
            while (await elsewhere.leader("worker").standing()).raw["waiting"] != 1:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.005)
        assert not second.is_leader
        await first.stop()
        await until(lambda: second.is_leader)
        await second.stop()

    run(main())


def test_a_lock_that_was_lost(tenure_agent: Agent) -> None:
    lock = Lock(None, "nightly")
    assert lock.acquire()
    tenure_agent.revoke("leader", "nightly")
    deadline = time.monotonic() + PATIENCE
    while lock.owned() and time.monotonic() < deadline:
        time.sleep(0.005)
    with pytest.raises(LockNotOwnedError):
        lock.reacquire()
    with pytest.raises(LockNotOwnedError):
        lock.release()


def test_the_semaphore_of_asyncio_advanced_semaphores() -> None:
    async def main() -> None:
        semaphore = RedisSemaphore(name="s", value=2, max_acquire_time=0.1, ttl=60)
        result = await semaphore.acquire()
        async with semaphore.cm():
            assert await semaphore.locked()
            with pytest.raises(TimeoutError):
                await semaphore.acquire()
        assert not await semaphore.locked()
        await semaphore.release(result.acquisition_id)

    run(main())
