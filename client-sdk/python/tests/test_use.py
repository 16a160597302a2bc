"""The package with a real agent."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Coroutine
from typing import Any

import pytest
import tenure
from tenure._effects import Receive
from tenure.compat import LeaderElection, Lock, LockError, LockNotOwnedError, RedisSemaphore
from tenure.testing import Agent

pytestmark = pytest.mark.usefixtures("tenure_agent")
PATIENCE = 10.0


async def until(condition: Any) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        await asyncio.sleep(0.005)


def run(main: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(main, 30))


def test_a_hold_is_no_truth_value() -> None:
    with tenure.leader("r") as hold, pytest.raises(TypeError, match="is_held"):
        bool(hold)


def test_a_block_for_threads_raises_the_loss_at_its_end(tenure_agent: Agent) -> None:
    told: list[tenure.Lost] = []
    with pytest.raises(tenure.Lost) as lost, tenure.leader("r") as hold:
        hold.on_lost(told.append)
        tenure_agent.revoke("leader", "r")
        assert hold.wait_until_over(PATIENCE)
    assert lost.value.reason is tenure.Reason.REVOKED and lost.value.token == hold.token
    assert [one.reason for one in told] == [tenure.Reason.REVOKED]
    # Its own error is not masked.
    with pytest.raises(KeyError), tenure.leader("r") as hold:
        tenure_agent.revoke("leader", "r")
        assert hold.wait_until_over(PATIENCE)
        raise KeyError


def test_a_hold_that_nobody_keeps_is_given_back() -> None:
    hold = tenure.leader("r").acquire()
    del hold
    gc.collect()
    with tenure.session() as other, other.leader("r", wait=PATIENCE) as mine:
        assert mine.is_held()


def test_threads_share_a_session() -> None:
    inside, most = 0, 0
    lock = threading.Lock()

    def work() -> None:
        nonlocal inside, most
        for _ in range(5):
            with tenure.semaphore("s", 3):
                with lock:
                    inside += 1
                    most = max(most, inside)
                time.sleep(0.001)
                with lock:
                    inside -= 1

    threads = [threading.Thread(target=work) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 1 <= most <= 3


def test_the_body_is_cancelled_at_the_loss(tenure_agent: Agent) -> None:
    async def main() -> None:
        with pytest.raises(tenure.Lost) as lost:
            async with tenure.aio.leader("r"):
                tenure_agent.revoke("leader", "r")
                await asyncio.Event().wait()
        assert lost.value.reason is tenure.Reason.REVOKED
        # Nothing of it is left: the task is not being cancelled.
        await asyncio.sleep(0)
        task = asyncio.current_task()
        assert task is not None and getattr(task, "cancelling", int)() == 0

    run(main())


def test_a_cancellation_from_elsewhere_stays_one() -> None:
    async def main() -> None:
        entered = asyncio.Event()

        async def work() -> None:
            async with tenure.aio.leader("r"):
                entered.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with tenure.aio.leader("r", wait=0) as again:
            assert again.is_held()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(work(), 0.05)

    run(main())


def test_nested_holds_are_told_apart(tenure_agent: Agent) -> None:
    async def main() -> None:
        with pytest.raises(tenure.Lost, match="leader/outer"):
            async with tenure.aio.leader("outer"):
                async with tenure.aio.leader("inner") as inner:
                    tenure_agent.revoke("leader", "outer")
                    await asyncio.Event().wait()
        assert not inner.is_held() and inner.lost is None

    run(main())


def test_a_loss_that_check_notices_first(tenure_agent: Agent) -> None:
    async def main() -> None:
        with pytest.raises(tenure.Lost) as lost:
            async with tenure.aio.leader("r") as hold:
                # In this thread: no event can be read meanwhile.
                tenure_agent.revoke("leader", "r")
                while True:
                    hold.check()
        assert lost.value.reason is tenure.Reason.REVOKED
        await asyncio.sleep(0.05)

    run(main())


def test_terms_follow_each_other(tenure_agent: Agent) -> None:
    async def main() -> None:
        tokens: list[int] = []
        async for term in tenure.aio.campaign("r"):
            async with term:
                tokens.append(term.token)
                if len(tokens) == 3:
                    break
                tenure_agent.revoke("leader", "r")
                await asyncio.Event().wait()
        assert tokens == sorted(set(tokens))
        async with tenure.aio.session() as other:
            assert (await other.leader("r", wait=0).acquire()).is_held()

    run(main())
    tokens: list[int] = []
    for term in tenure.campaign("threads"):
        with term:
            tokens.append(term.token)
            if len(tokens) == 3:
                break
            tenure_agent.revoke("leader", "threads")
            while True:
                term.check()
    assert tokens == sorted(set(tokens))


def test_decorators() -> None:
    @tenure.leader_only("once")
    def once(value: int) -> int:
        return value

    @tenure.limited("some", 2, wait=0)
    def some(value: int) -> int:
        return value

    @tenure.aio.leader_only("once")
    async def once_async(value: int) -> int:
        return value

    @tenure.limited("some", 2, wait=0)
    async def some_async(value: int) -> int:
        return value

    async def both() -> tuple[int | None, int]:
        return await once_async(4), await some_async(5)

    assert (once(1), some(2), run(both())) == (1, 2, (4, 5))
    with tenure.session() as other, other.leader("once"), other.semaphore("some", 2), other.semaphore("some"):
        assert once(1) is None
        with pytest.raises(tenure.Busy):
            some(2)
    with pytest.raises(TypeError, match="aio"):
        tenure.leader_only("x")(once_async)


def test_a_master_of_a_project() -> None:
    with tenure.master(project="one", wait=0) as one, tenure.master(project="two", wait=0) as two:
        assert (one.name, two.name) == ("one", "two")
    with tenure.session(project="one") as session, pytest.raises(ValueError, match="project"):
        session.master(project="two").acquire()


def test_a_semaphore_tells_of_a_changed_limit() -> None:
    with tenure.semaphore("s", 4) as first, tenure.semaphore("s", 2) as second, tenure.semaphore("s", 3) as third:
        assert (first.limit, first.limit_changed) == (4, None)
        assert (second.limit, second.limit_changed) == (2, (4, 2))
        assert (third.limit, third.limit_changed) == (3, (2, 3))


def test_sessions_are_ended_with_their_program(tenure_agent: Agent) -> None:
    async def main() -> None:
        session = await tenure.aio.session().open()
        hold = await session.leader("r").acquire()
        await session.close()
        assert hold.lost is not None and hold.lost.reason is tenure.Reason.SESSION_GONE
        with pytest.raises(tenure.SessionGone, match="closed"):
            await session.leader("r").acquire()

    run(main())
    with tenure.session() as session:
        events = session.events()
        kept = session.leader("r").acquire()
        assert kept.is_held()
    # They end with the session.
    assert not any(isinstance(event, tenure.Lost) for event in events)


def test_leader_election_continuous_one_shot_and_decorated() -> None:
    async def main() -> None:
        election = LeaderElection("worker")
        await election.start()
        await until(lambda: election.is_leader)
        other = LeaderElection("worker")
        async with other:
            assert not other.is_leader
        async with tenure.aio.session() as elsewhere:
            with pytest.raises(tenure.Busy):
                await elsewhere.leader("worker", wait=0).acquire()
            await election.stop()
            assert not election.is_leader
            async with elsewhere.leader("worker", wait=5):
                async with LeaderElection("worker") as late:
                    assert not late.is_leader
        async with LeaderElection("worker") as election:
            assert election.is_leader and election.token

    run(main())


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


def test_solo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_SOLO", "1")
    monkeypatch.setenv("TENURE_SOCKET", "/nowhere")
    with tenure.session() as session:
        with session.leader("r", wait=0) as hold:
            assert hold.is_held()
            with pytest.raises(tenure.Busy):
                session.leader("r", wait=0).acquire()
            with pytest.raises(tenure.WaitTimeout):
                session.leader("r", wait=0.01).acquire()
            with session.semaphore("s", 2), session.semaphore("s"), pytest.raises(tenure.Busy):
                session.semaphore("s", wait=0).acquire()
        with session.leader("r", wait=0) as again:
            assert again.token > hold.token and not hold.is_held()

    async def main() -> None:
        async with tenure.aio.session() as session:
            hold = await session.leader("r").acquire()
            waiting = asyncio.ensure_future(session.leader("r").acquire().__aenter__())
            await asyncio.sleep(0.01)
            await hold.release()
            assert (await waiting).is_held()

    run(main())


def test_asking_the_page_is_cheap() -> None:
    """Prints the figures; the bound is far above them, so that a busy machine does not fail it."""
    with tenure.leader("r") as hold:
        best = {}
        for name in ("is_held", "check"):
            ask, times = getattr(hold, name), []
            for _ in range(20):
                began = time.perf_counter_ns()
                for _ in range(2000):
                    ask()
                times.append((time.perf_counter_ns() - began) / 2000)
            best[name] = min(times)
        print({name: f"{ns:.0f} ns" for name, ns in best.items()})
    with contextlib.suppress(KeyError):
        assert max(best.values()) < 20_000


def test_a_wait_that_a_signal_interrupts_leaves_nothing_behind() -> None:
    class Interrupted(Exception):
        pass

    def interrupt(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with tenure.session() as other, other.leader("r") as hold:
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            with pytest.raises(Interrupted):
                tenure.leader("r").acquire()
            deadline = time.monotonic() + PATIENCE
            while other.leader("r").standing().raw["waiting"]:
                assert time.monotonic() < deadline
                time.sleep(0.005)
            assert hold.is_held()
    finally:
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("wait", [None, PATIENCE, 0])
def test_a_grant_that_its_caller_does_not_hear_of_is_given_back(wait: float | None) -> None:
    with tenure.session() as session, tenure.session() as other:
        core = session._life.core
        steps = core.acquire({"kind": "leader", "name": "r"}, wait)
        effect = next(steps)
        while not isinstance(effect, Receive):
            effect = steps.send(core.io._perform(effect))
        assert b'"token"' in core.io._perform(effect)
        with pytest.raises(KeyboardInterrupt):
            steps.throw(KeyboardInterrupt)
        assert other.leader("r", wait=PATIENCE).acquire().is_held()


def test_a_loop_that_ends_during_a_wait_warns_of_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def wait_in_vain() -> asyncio.Task[Any]:
        session = tenure.aio.session()
        task = asyncio.create_task(session.leader("r").acquire().__aenter__())
        deadline = time.monotonic() + PATIENCE
        while (await session.leader("r").standing()).raw["waiting"] != 1:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.005)
        return task

    with tenure.leader("r"):
        # At its end it cancels what waits.
        assert asyncio.run(wait_in_vain()).cancelled()
        gc.collect()
    assert "pending" not in caplog.text


def test_a_callback_that_fails_ends_nothing_else(tenure_agent: Agent, caplog: pytest.LogCaptureFixture) -> None:
    with tenure.session() as session:
        for name in ("one", "two"):
            hold = session.leader(name).acquire()
            hold.on_lost(lambda lost: 1 / 0)
            tenure_agent.revoke("leader", name)
            assert hold.wait_until_over(PATIENCE)
    assert "a callback for the loss of leader/one failed" in caplog.text


def test_a_forked_child_has_a_default_session_of_its_own() -> None:
    with tenure.leader("r") as hold:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                assert not hold.is_held() and hold.wait_until_over(1)
                with tenure.leader("other", wait=0) as own:
                    assert own.is_held()
                try:
                    tenure.leader("r", wait=0).acquire()
                except tenure.Busy:
                    status = 0
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        assert hold.is_held()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes time namespaces")
@pytest.mark.parametrize("offset", [-300, 300])
def test_another_time_namespace_is_refused(offset: int, tenure_agent: Agent) -> None:
    program = "import tenure\ntry:\n tenure.leader('r').acquire()\nexcept tenure.ClocksDiffer as error: print(error)"
    command = ["unshare", "--time", "--fork", f"--boottime={offset}", sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    if done.returncode and "unshare" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert "a time namespace; run both in the same one" in done.stdout, done
    assert tenure.leader("r", wait=PATIENCE).acquire().is_held()
