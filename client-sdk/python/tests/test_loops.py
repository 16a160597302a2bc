"""Event loops that end, follow each other, or stand side by side."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import stat
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
import tenure
from tenure.compat import LeaderElection
from tenure.testing import Agent

pytestmark = pytest.mark.usefixtures("tenure_agent")
PATIENCE = 10.0
GONE = tenure.Reason.SESSION_GONE


@pytest.fixture(params=["with an agent", "solo"])
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "solo":
        monkeypatch.setenv("TENURE_SOLO", "1")


def run(main: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(main, 30))


def run_untidily(main: Coroutine[Any, Any, Any]) -> Any:
    """In a loop that is closed with the tasks in it neither ended nor cancelled."""
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(asyncio.wait_for(main, 30))
    finally:
        loop.close()


EITHER = pytest.mark.usefixtures("either")
def is_socket(fd: int) -> bool:
    try:
        return stat.S_ISSOCK(os.fstat(fd).st_mode)
    except OSError:
        return False


RUNNERS = pytest.mark.parametrize("first", [run, run_untidily])


@EITHER
@RUNNERS
def test_a_session_begins_anew_in_the_loop_after_a_closed_one(first: Any) -> None:
    session = tenure.aio.session("one")
    told: list[tenure.Lost] = []

    async def hold() -> tenure.aio.Hold:
        kept = await session.leader("r", wait=PATIENCE).acquire()
        kept.on_lost(told.append)
        return kept

    old = first(hold())
    # Nothing has to be asked of the session before.
    assert old.lost is not None and old.lost.reason is GONE and not old.is_held()
    assert [lost.reason for lost in told] == [GONE]

    async def main() -> None:
        assert await old.wait_until_over(PATIENCE)
        with pytest.raises(tenure.Lost, match="session_gone"):
            await old.release()
        with pytest.raises(tenure.Lost, match="session_gone"):
            async with old:
                await asyncio.sleep(PATIENCE)
        # At once: the agent need not find out by itself that the loop is closed.
        async with session.leader("r", wait=0) as new:
            assert new.is_held() and new.token > old.token
        await session.close()
        with pytest.raises(tenure.SessionGone, match="it was closed; open a new one"):
            await session.open()

    run(main())
    # Closed is closed, in whichever loop.
    with pytest.raises(tenure.SessionGone, match="it was closed; open a new one"):
        run(session.open())
    run(session.close())


@EITHER
@RUNNERS
def test_a_hold_of_a_closed_loop_is_seen_as_lost_by_whoever_has_it_alone(first: Any) -> None:
    async def hold() -> tenure.aio.Hold:
        return await tenure.aio.session().leader("r").acquire()

    async def hold_by_default() -> tenure.aio.Hold:
        return await tenure.aio.leader("default", wait=0).acquire()

    for make in (hold, hold_by_default, hold_by_default):
        kept = first(make())
        assert run(kept.wait_until_over(PATIENCE))
        with pytest.raises(tenure.Lost, match="session_gone"):
            kept.check()
        assert kept.lost is not None and kept.lost.reason is GONE


@EITHER
@RUNNERS
def test_a_campaign_and_the_events_of_a_closed_loop(first: Any) -> None:
    session = tenure.aio.session()
    unopened = tenure.aio.session()
    campaign = session.leader("r").campaign()
    terms: list[tenure.aio.Term] = []

    async def stand() -> Any:
        terms.append(await campaign.__anext__())
        return session.events(), unopened.events()

    events, later = first(stand())

    async def main() -> None:
        # They end.
        assert not any([isinstance(event, tenure.Lost) async for event in events])
        async for term in campaign:
            terms.append(term)
            break
        waiting = asyncio.ensure_future(later.__anext__())
        await asyncio.sleep(0.05)
        await unopened.close()
        with contextlib.suppress(StopAsyncIteration):
            assert isinstance(await waiting, tenure.Snapshot)
        assert terms[1].is_held() and not terms[0].is_held() and terms[1].token > terms[0].token
        await session.close()

    run(main())


@EITHER
@RUNNERS
def test_an_election_of_a_closed_loop_can_be_started_again(first: Any) -> None:
    election = LeaderElection("r")

    async def stand() -> None:
        await election.start()
        deadline = time.monotonic() + PATIENCE
        while not election.is_leader:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.005)

    async def stand_and_stop() -> None:
        await stand()
        await election.stop()
        assert not election.is_leader

    first(stand())
    run(stand_and_stop())
    first(stand())
    run(election.stop())


@EITHER
def test_a_session_of_a_loop_that_is_open_is_refused_in_another() -> None:
    session = tenure.aio.session("one")
    opened, done = threading.Event(), threading.Event()
    has: list[Any] = []

    async def other() -> None:
        hold = await session.leader("r").acquire()
        campaign = session.leader("campaign").campaign()
        has.extend([hold, campaign, await campaign.__anext__(), session.events()])
        opened.set()
        while not done.is_set():
            await asyncio.sleep(0.01)
        assert hold.is_held() and hold.lost is None
        await session.close()

    async def main() -> None:
        hold, campaign, term, events = has
        uses = [session.open, session.close, session.leader("other").acquire, session.leader("r").standing]
        uses += [hold.release, hold.wait_until_over, hold.__aenter__, campaign.__anext__, term.__aenter__, events.__anext__]
        for use in uses:
            with pytest.raises(tenure.WrongLoop, match="'one' belongs to another event loop, <.* make one with") as wrong:
                await use()
            assert isinstance(wrong.value, (tenure.TenureError, RuntimeError))
        with pytest.raises(tenure.WrongLoop):
            session.events()
        # Asking the page is for every thread and loop.
        hold.check()
        assert hold.is_held() and hold.lost is None

    worker = threading.Thread(target=run, args=(other(),))
    worker.start()
    try:
        assert opened.wait(PATIENCE)
        run(main())
    finally:
        done.set()
        worker.join(PATIENCE)
    assert has[0].lost.reason is GONE


@EITHER
def test_a_session_that_no_loop_has_used_is_for_the_first_that_does() -> None:
    session = tenure.aio.session()
    role = session.leader("r", wait=PATIENCE)
    for _ in range(2):
        assert isinstance(run(role.standing()), tenure.Standing)


def test_a_closed_loop_leaves_nothing_open(tenure_agent: Agent) -> None:
    sessions = [tenure.aio.session(), tenure.aio.session(), tenure.aio.session()]

    async def main() -> None:
        await asyncio.gather(*(session.leader(str(at)).standing() for at, session in enumerate(sessions)))
        # The last one's tasks have no turn before they are cancelled.
        sessions.append(tenure.aio.session())
        await sessions[-1].open()

    def sockets() -> list[int]:
        gc.collect()
        return [fd for fd in range(256) if is_socket(fd)]

    before = sockets()
    for _ in range(3):
        run(main())
        assert sockets() == before


def test_a_session_whose_tasks_were_cancelled_begins_anew() -> None:
    async def main() -> None:
        async with tenure.aio.session() as session:
            old = await session.leader("r").acquire()
            # As some programs do at SIGTERM.
            for task in asyncio.all_tasks():
                if task.get_name().startswith("tenure-"):
                    task.cancel()
            while old.is_held():
                await asyncio.sleep(0.005)
            new = await session.leader("r").acquire(PATIENCE)
            assert new.is_held() and old.lost is not None and old.lost.reason is GONE

    run(main())


def test_a_forked_child_has_loops_of_its_own(tenure_agent: Agent) -> None:
    async def main() -> None:
        session = tenure.aio.session()
        hold = await session.leader("r").acquire()

        async def in_child() -> int:
            async with session.leader("other", wait=0) as own:
                assert own.is_held() and not hold.is_held() and hold.lost is not None
                return 0 if hold.lost.reason is tenure.Reason.FORKED else 1

        child = os.fork()
        if child == 0:
            status = 1
            try:
                status = asyncio.run(in_child())
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        assert hold.is_held()
        tenure_agent.revoke("leader", "r")
        assert await hold.wait_until_over(PATIENCE)
        assert hold.lost is not None and hold.lost.reason is tenure.Reason.REVOKED
        await session.close()

    run(main())


PROGRAMS = {
    "two loops": """
        session = tenure.aio.session()
        async def main():
            async with session.leader("r", wait=10), tenure.aio.leader("default", wait=10):
                pass
        for _ in range(2):
            asyncio.run(main())
            gc.collect()
        """,
    "closed in between": """
        async def main():
            async with tenure.aio.session() as session:
                async with session.leader("r", wait=10):
                    pass
        for _ in range(2):
            asyncio.run(main())
            gc.collect()
        """,
    "open at the end": """
        async def main():
            session = tenure.aio.session()
            hold = await session.leader("r").acquire()
            await tenure.aio.leader("default").acquire()
        asyncio.run(main())
        """,
    "closed untidily": """
        kept = tenure.aio.session()
        async def main():
            session = tenure.aio.session()
            hold = await session.leader("r").acquire()
            kept_hold = await kept.leader("kept").acquire()
        loop = asyncio.new_event_loop()
        loop.run_until_complete(main())
        loop.close()
        gc.collect()
        """,
    "a loop that ends among waits": """
        session, other = tenure.aio.session(), tenure.aio.session()
        async def main():
            hold = await other.leader("r").acquire()
            waits = [asyncio.ensure_future(session.leader("r").acquire().__aenter__()) for _ in range(3)]
            await asyncio.sleep(0.1)
        asyncio.run(main())
        gc.collect()
        """,
    "never awaited": """
        async def main():
            async with tenure.aio.session() as session:
                session.events()
                session.leader("r").acquire()
                session.leader("r").campaign()
                async for event in session.events():
                    break
                async for term in session.leader("r").campaign():
                    break
        asyncio.run(main())
        gc.collect()
        """,
    "given up": """
        async def main():
            async with tenure.aio.session() as session, tenure.aio.session() as other:
                # The holder is a task that is over, so that this task would not wait for itself.
                hold = await asyncio.create_task(other.leader("r").acquire().__aenter__())
                for wait in (0.0, 0.001, 0.02, 0.1):
                    try:
                        await asyncio.wait_for(session.leader("r").acquire().__aenter__(), wait)
                    except asyncio.TimeoutError:
                        pass
                while (await session.leader("r").standing()).waiting:
                    await asyncio.sleep(0.005)
                await hold.release()
                async with other.leader("r", wait=10):
                    pass
        asyncio.run(main())
        gc.collect()
        """,
}


@pytest.mark.parametrize("what", PROGRAMS)
def test_no_warning_of_what_is_open(what: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import asyncio, gc, tenure\n" + textwrap.dedent(PROGRAMS[what]) + "print('done')\n")
    command = [sys.executable, "-X", "dev", "-W", "error", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr, done.returncode) == ("done\n", "", 0)
