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
import weakref
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import tenure
from tenure._calls import Calls
from tenure._effects import Receive
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


@contextlib.contextmanager
def held_elsewhere(session: tenure.Session) -> Iterator[tenure.Hold]:
    """By a thread that is over: nothing here waits for itself."""
    with ThreadPoolExecutor() as threads:
        hold = threads.submit(session.leader("r").acquire).result()
    yield hold
    hold.release()


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


def wait_until(condition: Any) -> None:
    run(until(condition))


def waiting(name: str) -> int:
    return tenure.leader(name).standing().waiting


def tokens_of(name: str) -> list[int]:
    return [holder.token for holder in tenure.leader(name).standing().holders if holder.token is not None]


def test_a_campaign_stands_in_line_while_the_work_of_a_lost_term_ends(tenure_agent: Agent) -> None:
    with tenure.session() as session, tenure.session() as other, ThreadPoolExecutor() as one, ThreadPoolExecutor() as two:
        campaign = session.leader("line").campaign()
        lost = next(campaign)
        second = one.submit(other.leader("line").acquire)
        wait_until(lambda: waiting("line") == 1)
        tenure_agent.revoke("leader", "line")
        holder = second.result()
        # The work goes on: nobody asks for the next term.
        wait_until(lambda: waiting("line") == 1)
        later = two.submit(other.leader("line").acquire)
        wait_until(lambda: waiting("line") == 2)
        holder.release()
        wait_until(lambda: tokens_of("line") > [holder.token])
        granted = tokens_of("line")
        term = next(campaign)
        assert [term.token] == granted and term.token > lost.token
        assert term.is_held() and not later.done()
        term.release()
        later.result().release()


def test_a_task_stands_in_line_while_the_work_of_a_lost_term_ends(tenure_agent: Agent) -> None:
    async def main() -> None:
        async with tenure.aio.session() as session, tenure.aio.session() as other:
            campaign = session.leader("task").campaign()
            lost = await anext(campaign)
            second = asyncio.ensure_future(other.leader("task").acquire().__aenter__())
            await until(lambda: waiting("task") == 1)
            tenure_agent.revoke("leader", "task")
            holder = await second
            await until(lambda: waiting("task") == 1)
            later = asyncio.ensure_future(other.leader("task").acquire().__aenter__())
            await until(lambda: waiting("task") == 2)
            await holder.release()
            await until(lambda: tokens_of("task") > [holder.token])
            term = await anext(campaign)
            assert [term.token] == tokens_of("task") and term.token > lost.token
            assert term.is_held() and not later.done()
            await term.release()
            await (await later).release()

    run(main())


def test_work_that_does_not_end_keeps_the_next_term_from_others_for_one_ttl(tenure_agent: Agent) -> None:
    with tenure.session() as session, tenure.session() as other, ThreadPoolExecutor(1) as threads:
        campaign = session.leader("endless", ttl=2).campaign()
        lost = next(campaign)
        tenure_agent.revoke("leader", "endless")
        wait_until(lambda: tokens_of("endless") > [lost.token])
        with other.leader("endless"):
            assert waiting("endless") == 0, "it stands once"
            later = threads.submit(next, campaign)
            wait_until(lambda: waiting("endless") == 1)
        term = later.result()
        assert term.is_held()
        term.release()


def test_a_campaign_that_is_dropped_leaves_the_line(tenure_agent: Agent) -> None:
    with tenure.session() as session, tenure.session() as other, ThreadPoolExecutor(1) as threads:
        campaign = session.leader("dropped").campaign()
        lost = next(campaign)
        second = threads.submit(other.leader("dropped").acquire)
        wait_until(lambda: waiting("dropped") == 1)
        tenure_agent.revoke("leader", "dropped")
        with second.result():
            wait_until(lambda: waiting("dropped") == 1)
            del campaign
            wait_until(lambda: waiting("dropped") == 0)
        # A term that was granted to it is given back as well.
        campaign = session.leader("dropped").campaign()
        lost = next(campaign)
        tenure_agent.revoke("leader", "dropped")
        wait_until(lambda: tokens_of("dropped") > [lost.token])
        del campaign
        wait_until(lambda: tokens_of("dropped") == [])


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


def test_solo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_SOLO", "1")
    monkeypatch.setenv("TENURE_SOCKET", "/nowhere")
    with tenure.session() as session:
        with session.leader("r", wait=0) as hold:
            assert hold.is_held()
            with pytest.raises(tenure.Busy):
                session.leader("r", wait=0).acquire()
            with ThreadPoolExecutor() as threads, pytest.raises(tenure.WaitTimeout):
                threads.submit(session.leader("r", wait=0.01).acquire).result()
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


def test_the_loss_to_a_stopped_agent_is_raised_without_asking_it(
    tenure_agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Longer than this test lasts.
    monkeypatch.setattr("tenure._debts.TRY_DEADLINE", 600.0)
    told: list[tenure.Lost] = []

    def thread() -> None:
        with pytest.raises(tenure.Lost) as lost, session.leader("thread", ttl=1) as hold:
            tenure_agent.freeze()
            assert hold.wait_until_over(PATIENCE)
        told.append(lost.value)

    async def main() -> None:
        async with tenure.aio.session() as other:
            with pytest.raises(tenure.Lost) as lost:
                async with other.leader("task", ttl=1):
                    tenure_agent.freeze()
                    await asyncio.Event().wait()
            told.append(lost.value)
            tenure_agent.thaw()

    with tenure.session() as session:
        worker = threading.Thread(target=thread, daemon=True)
        worker.start()
        worker.join(3 * PATIENCE)
        tenure_agent.thaw()
        run(main())
    assert [lost.reason for lost in told] == [tenure.Reason.EXPIRED] * 2


def test_a_single_try_with_a_stopped_agent_is_short(tenure_agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenure._core.TRY_DEADLINE", 0.5)
    tenure.leader("r").acquire().release()
    tenure_agent.freeze()
    with pytest.raises(tenure.AgentUnavailable, match="no answer within 0.5 s: it may be stopped"):
        tenure.leader("r", wait=0).acquire()
    session = tenure.session()
    with pytest.raises(tenure.AgentUnavailable, match="no answer within 0.5 s: it may be stopped"):
        session.leader("r", wait=0).acquire()
    tenure_agent.thaw()


def test_a_first_wait_outlasts_a_stopped_agent(tenure_agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenure._core.CALL_DEADLINE", 0.5)
    registered: list[str] = []
    post = Calls.post

    def noting(calls: Calls, target: str, *args: Any, **kwargs: Any) -> Any:
        registered.append(target)
        return post(calls, target, *args, **kwargs)

    monkeypatch.setattr(Calls, "post", noting)
    tenure_agent.freeze()
    threaded: list[tenure.Hold] = []

    async def main() -> None:
        session = tenure.aio.session()
        waits = [session.leader("first").acquire(), session.leader("second", wait=60).acquire()]
        waiting = [asyncio.ensure_future(wait) for wait in waits]
        await until(lambda: registered.count("/v1/register") >= 5)
        assert not any(wait.done() for wait in waiting)
        tenure_agent.thaw()
        for wait in waiting:
            await (await wait).release()
        await session.close()

    session = tenure.session()
    worker = threading.Thread(target=lambda: threaded.append(session.leader("third").acquire()), daemon=True)
    worker.start()
    run(main())
    worker.join(3 * PATIENCE)
    assert threaded[0].is_held()
    session.close()


def test_default_sessions_do_not_keep_closed_loops() -> None:
    async def main() -> weakref.ref[asyncio.AbstractEventLoop]:
        async with tenure.aio.leader("r"):
            return weakref.ref(asyncio.get_running_loop())

    loops = [run(main()) for _ in range(4)]
    gc.collect()
    assert [loop() for loop in loops[:-1]] == [None] * 3


def test_who_acquires_waits_for_no_thread_of_the_session(tenure_agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    woken: list[str] = []
    parse = tenure.events.parse
    monkeypatch.setattr(tenure.events, "parse", lambda name, text: (parsed.append(name), parse(name, text))[1])
    with tenure.session() as session:
        kept = session.leader("kept").acquire()
        watch = session._life.core._watch
        asyncio.run(until(lambda: watch._due is not None))
        watch.wake = lambda: woken.append("watch")
        watch._wake.set = watch.wake
        for _ in range(20):
            session.leader("r").acquire().release()
        # Events come in order.
        tenure_agent.revoke("leader", "kept")
        assert kept.wait_until_over(PATIENCE)
        del watch._wake.set, watch.wake
    assert "lost" in parsed and not {"granted", "released"} & set(parsed), parsed
    assert woken == []


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
        with tenure.session() as other, held_elsewhere(other) as hold:
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

    with tenure.session() as other, held_elsewhere(other):
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
