"""What a program may ask of the whole fleet, and say about what is held there; in threads and in asyncio."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import tenure
from conformance_script import Redis, until
from tenure.testing import Agent

DEADLINE = 30.0


@pytest.fixture(autouse=True)
def _agent(tenure_agent: Agent) -> None:
    pass


def test_a_hold_is_kept_from_others_as_long_as_it_was_asked_for() -> None:
    with tenure.session("first") as first, tenure.session("second") as second:
        first.leader("job", hold_at_least=3600).acquire(0).release()
        with pytest.raises(tenure.Busy) as busy:
            second.leader("job").acquire(0)
        assert busy.value.holder is not None and (busy.value.holder.kept_ms or 0) > 3_000_000
        with pytest.raises(tenure.Refused) as refused:
            first.lease("job", hold_at_least=25 * 3600).acquire(0)
        assert refused.value.field == "hold_at_least_ms"


def test_whoever_revokes_says_why_and_keeps_the_one_who_loses_it_away() -> None:
    with tenure.session("first") as first, tenure.session("second") as second:
        hold = first.leader("moved").acquire()
        told = second.leader("moved").revoke("upgrade of hostb", barred_for=3600, token=hold.token)
        assert [(holder.name, holder.pid) for holder in told.holders] == [("first", os.getpid())]
        assert told.revoked == 1
        assert hold.wait_until_over(DEADLINE)
        with pytest.raises(tenure.Lost, match="revoked by .* on .*: upgrade of hostb; stop") as lost:
            hold.release()
        assert lost.value.detail == "upgrade of hostb"
        with pytest.raises(tenure.TenureError):
            first.leader("moved").acquire(0)
        second.leader("moved").acquire(0).release()


def test_the_history_says_who_had_it_and_how_each_end_came() -> None:
    with tenure.session("first") as first, tenure.session("second") as second:
        one = first.leader("past").acquire()
        one.release()
        two = second.leader("past").acquire()
        first.leader("past").revoke("enough")
        deadline = time.monotonic() + DEADLINE
        while len(changes := first.leader("past").history()) < 4:
            # The agent writes it down a little later.
            assert time.monotonic() < deadline, changes
            time.sleep(0.01)
        assert [(change.what, change.token, change.name) for change in changes] == [
            ("lost", two.token, "second"),
            ("granted", two.token, "second"),
            ("released", one.token, "first"),
            ("granted", one.token, "first"),
        ]
        assert (changes[0].reason, changes[0].pid) == ("revoked", os.getpid())


def test_why_says_who_has_it_who_waits_and_how_it_came_to_that() -> None:
    with tenure.session("first") as first, tenure.session("second") as second, first.leader("asked").acquire() as hold:
        waiter = threading.Thread(target=lambda: second.leader("asked").acquire().release())
        waiter.start()
        until(lambda: first.leader("asked").standing().waiting, "the second waits", DEADLINE)
        why = until(lambda: (told := first.leader("asked").why()).history and told, "the agent writes it down", DEADLINE)
        standing = why.standing
        assert [(one.name, one.token) for one in standing.holders] == [("first", hold.token)]
        assert [(one.name, one.position, one.pid) for one in standing.waiters] == [("second", 1, os.getpid())]
        assert (standing.holding, standing.waiting, why.unknown) == (1, 1, None)
        assert [(change.what, change.token) for change in why.history] == [("granted", hold.token)]
        hold.release()
        waiter.join(DEADLINE)


def test_the_agents_of_a_store(tmp_path: Path) -> None:
    redis = Redis(tmp_path / "redis")
    redis.start()
    url = f"redis://127.0.0.1:{redis.port}/0"
    try:
        with Agent(tmp_path / "a", {"host_name": "a"}, url) as one, Agent(tmp_path / "b", {"host_name": "b"}, url), tenure.session(socket=one.socket) as session:
            agents = until(lambda: len(found := session.agents()) == 2 and found, "they know each other", DEADLINE)
            assert [(agent.host, agent.this, agent.seen) for agent in agents] == [("a", True, True), ("b", False, True)]
    finally:
        redis.close()


def test_a_hold_of_the_whole_fleet_says_why_there_is_none() -> None:
    way_out = "keeps holds on this host alone .*; name the store that they share in its setting upstream"
    with pytest.raises(tenure.Refused, match=f"leader/r: .*{way_out}") as refused, tenure.leader("r", fleet=True):
        pass
    assert refused.value.code == "forbidden"

    ran: list[int] = []
    for decorate in (tenure.leader_only("r", fleet=True), tenure.limited("r", 2, fleet=True)):
        with pytest.raises(tenure.Refused, match=way_out):
            decorate(lambda: ran.append(1))()
    with pytest.raises(tenure.Refused, match=way_out):
        next(tenure.campaign("r", fleet=True))

    async def main() -> None:
        async def work() -> None:
            ran.append(1)

        for decorate in (tenure.aio.leader_only("r", fleet=True), tenure.aio.limited("r", 2, fleet=True)):
            with pytest.raises(tenure.Refused, match=way_out):
                await decorate(work)()
        with pytest.raises(tenure.Refused, match=way_out):
            await anext(tenure.aio.campaign("r", fleet=True))

    asyncio.run(main())
    assert ran == []


def test_a_list_of_more_than_a_page_is_whole() -> None:
    names = {f"many-{number}" for number in range(110)}
    with tenure.session(holds=110) as session:
        holds = [session.leader(name).acquire() for name in names]
        assert {standing.name for standing in session.list("leader", "many-*")} == names
        assert session.list("semaphore", "many-*") == ()
        assert all(hold.is_held() for hold in holds)


def test_the_same_for_asyncio() -> None:
    async def main() -> None:
        async with tenure.aio.session("first") as first, tenure.aio.session("second") as second:
            hold = await first.leader("r").acquire()
            assert [standing.name for standing in await second.list("leader")] == ["r"]
            told: Any = await second.leader("r").revoke("enough")
            assert told.revoked == 1 and await hold.wait_until_over(DEADLINE)
            assert hold.lost is not None and hold.lost.detail == "enough"
            await (await first.leader("r", hold_at_least=3600).acquire(0)).release()
            with pytest.raises(tenure.Busy):
                await second.leader("r").acquire(0)
            assert await second.leader("nobody").history() == ()
            why = await second.leader("nobody").why()
            assert (why.standing.holders, why.history) == ((), ())
            assert [agent.this for agent in await first.agents()] == [True]

    asyncio.run(main())


def test_without_an_agent_there_is_no_fleet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_SOLO", "1")
    with tenure.session() as session, session.leader("r", hold_at_least=1):
        assert session.leader("r").history() == () and session.list() == ()
        assert [holder.pid for holder in session.leader("r").standing().holders] == [os.getpid()]
        assert session.leader("other").standing().holders == () and session.agents() == ()
        assert session.leader("r").revoke().revoked == 0
        with pytest.raises(tenure.Refused, match="leader/q: TENURE_SOLO keeps .*; unset TENURE_SOLO") as refused:
            session.leader("q", fleet=True).acquire()
        assert refused.value.code == "forbidden"
