"""Uses the package for threads in greenlets of gevent; run by test_greenlets.py, with an agent's folder and what to do."""

from __future__ import annotations

from gevent import monkey

monkey.patch_all()

import sys
from collections.abc import Callable
from typing import Any

import gevent
import tenure
import tenure._core
from tenure.testing import Agent

PATIENCE = 60


def spawn(work: Callable[[], Any]) -> Any:
    """A greenlet whose error is raised where it is waited for, and printed nowhere."""

    def run() -> tuple[Any, BaseException | None]:
        try:
            return work(), None
        except tenure.TenureError as error:
            return None, error

    return gevent.spawn(run)


def result(greenlet: Any) -> Any:
    value, error = greenlet.get(timeout=PATIENCE)
    if error is not None:
        raise error
    return value


def until(condition: Callable[[], Any]) -> None:
    with gevent.Timeout(PATIENCE):
        while not condition():
            gevent.sleep(0.001)


def share(agent: Agent) -> None:
    inside = most = 0
    with tenure.session(socket=agent.socket) as session:

        def work() -> None:
            nonlocal inside, most
            with session.semaphore("s", 3):
                inside += 1
                most = max(most, inside)
                # Until there were as many as there may be.
                until(lambda: most >= 3)
                inside -= 1

        for greenlet in [spawn(work) for _ in range(10)]:
            result(greenlet)
    assert most == 3, most


def wait(agent: Agent) -> None:
    with tenure.session(socket=agent.socket) as first, tenure.session(socket=agent.socket) as second:
        hold = first.leader("r").acquire()
        waiting = spawn(lambda: second.leader("r").acquire())
        # This greenlet goes on meanwhile, and asks on the same connections.
        until(lambda: first.leader("r").standing().waiting == 1)
        second.leader("other").acquire(0).release()
        first.semaphore("r").acquire(0).release()
        hold.release()
        with result(waiting) as granted:
            assert granted.is_held() and granted.token > hold.token


def turns(agent: Agent) -> None:
    tokens: list[int] = []
    inside: list[int] = []
    with tenure.session(socket=agent.socket) as session:

        def work() -> None:
            with session.leader("r") as hold:
                inside.append(hold.token)
                assert len(inside) == 1, inside
                tokens.append(hold.token)
                gevent.sleep(0.001)
                inside.remove(hold.token)

        with session.leader("r"):
            greenlets = [spawn(work) for _ in range(8)]
            until(lambda: session.leader("r").standing().waiting == 8)
            try:
                session.leader("r").acquire()
            except tenure.Busy as busy:
                assert busy.held_by_self, busy
            else:
                raise AssertionError("a greenlet has it twice")
        for greenlet in greenlets:
            result(greenlet)
    assert len(tokens) == 8 and tokens == sorted(tokens), tokens


def lose(agent: Agent) -> None:
    told: list[tenure.Lost] = []
    with tenure.session(socket=agent.socket) as session:
        hold = session.leader("r").acquire()
        hold.on_lost(told.append)

        def guarded() -> None:
            with hold:
                while True:
                    hold.check()
                    gevent.sleep(0.001)

        work, waiting = spawn(guarded), spawn(hold.wait_until_over)
        session.leader("r").revoke()
        try:
            result(work)
        except tenure.Lost:
            pass
        else:
            raise AssertionError("the loss was not noticed")
        assert result(waiting)
        # The agent's reason may come later.
        until(lambda: hold.lost is not None and hold.lost.reason is tenure.Reason.REVOKED)
        assert len(told) == 1, told


def stopped(agent: Agent) -> None:
    tenure._core.TRY_DEADLINE = 0.2
    with tenure.session(socket=agent.socket) as session:
        hold = session.leader("r", ttl=1).acquire()
        agent.freeze()
        try:
            session.leader("other").acquire(0)
        except tenure.AgentUnavailable:
            pass
        else:
            raise AssertionError("a stopped agent has answered")
        # By the watch, which is a greenlet.
        assert hold.wait_until_over(PATIENCE)
        assert hold.lost is not None and hold.lost.reason is tenure.Reason.EXPIRED, hold.lost
        agent.thaw()


if __name__ == "__main__":
    with Agent(sys.argv[1]) as started:
        globals()[sys.argv[2]](started)
    print("done")
