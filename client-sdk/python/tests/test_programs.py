"""Programs of several processes: replicas that take over, and a move from redis-py step by step."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import tenure
from conformance_script import Redis, until
from tenure.testing import Agent, program

EXAMPLES = Path(__file__).parents[1] / "examples"
# How often a program and an agent are killed; some seconds with 6, minutes with 100.
ROUNDS = int(os.environ.get("TENURE_SDK_ROUNDS", "6"))


class Program:
    """A program whose lines are read when it has ended, or as they come."""

    def __init__(self, directory: Path, name: str, arguments: list[str], **environment: str) -> None:
        self.path = directory / f"{name}.out"
        with open(self.path, "wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, *arguments], stdout=output, stderr=output, env={**os.environ, **environment}
            )

    def lines(self) -> list[str]:
        return self.path.read_text().splitlines()

    def when(self, what: str) -> int | None:
        """The instant of the last such line."""
        found = [line for line in self.lines() if what in line]
        return int(found[-1].split()[0]) if found else None

    def end(self, number: int = signal.SIGTERM) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)
        self.process.wait(30)


@pytest.fixture(params=["on one host", "on three hosts"])
def sockets(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[str]]:
    """Those of the agents of three replicas."""
    with ExitStack() as stack:
        if request.param == "on one host":
            yield [stack.enter_context(Agent(tmp_path / "agent")).socket] * 3
            return
        redis = Redis(tmp_path / "redis")
        redis.start()
        stack.callback(redis.close)
        url = f"redis://127.0.0.1:{redis.port}/0"
        agents = [Agent(tmp_path / f"agent-{number}", {"host_name": f"host-{number}"}, url) for number in range(3)]
        yield [stack.enter_context(agent).socket for agent in agents]


def test_replicas_take_over(tmp_path: Path, sockets: list[str]) -> None:
    program = [str(EXAMPLES / "replica.py")]
    replicas = [Program(tmp_path, f"replica-{number}", program, TENURE_SOCKET=socket) for number, socket in enumerate(sockets)]
    tokens = []
    try:
        while True:
            leader = until(lambda: next((one for one in replicas if one.when("leads")), None), "somebody leads", 30)
            until(lambda: leader.when("watch works") and leader.when("reconcile works"), "both loops run")
            tokens.append(int(next(line for line in leader.lines() if "leads" in line).split()[-1]))
            assert not any(one.when("works") for one in replicas if one is not leader), "one of them works"
            replicas.remove(leader)
            # Asked to go, or killed.
            leader.end(signal.SIGKILL if len(replicas) == 1 else signal.SIGTERM)
            if not replicas:
                break
            next_one = until(lambda: next((one for one in replicas if one.when("leads")), None), "the next leads", 30)
            if leader.process.returncode == 0:
                stopped = [leader.when("watch stopped"), leader.when("reconcile stopped")]
                led = next_one.when("leads")
                assert led is not None and all(one is not None and one < led for one in stopped), leader.lines()
                print(f"took over {(led - max(one or 0 for one in stopped)) / 1e6:.1f} ms after the stop")
    finally:
        for one in replicas:
            one.end(signal.SIGKILL)
    assert tokens == sorted(tokens)


def test_a_single_replica_needs_no_agent(tmp_path: Path) -> None:
    one = Program(tmp_path, "solo", [str(EXAMPLES / "replica.py")], TENURE_SOLO="1", TENURE_SOCKET="/nowhere")
    try:
        until(lambda: one.when("reconcile works"), "it works", 30)
    finally:
        one.end()
    assert one.when("resigned"), one.lines()


def test_a_late_writer_is_refused(tmp_path: Path, tenure_agent: Agent) -> None:
    one = Program(tmp_path, "fenced", [str(EXAMPLES / "fenced.py")])
    assert one.process.wait(30) == 0, one.lines()
    assert "a greater token" in one.lines()[0] and one.lines()[1] == "the second"


# Whoever is inside locks a file of the kernel's, which unlocks it at a killed program's death.
WORKER = """
import asyncio, fcntl, os, signal, sys, threading, time
sort, path, limit = sys.argv[1], sys.argv[2], int(sys.argv[3])
stopping = []
signal.signal(signal.SIGTERM, lambda *_: stopping.append(1))

def enter():
    for slot in range(limit):
        file = os.open(f"{path}-{slot}", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        except BlockingIOError:
            os.close(file)
    print("TOO MANY", flush=True)
    os._exit(1)

def work():
    file = enter()
    time.sleep(0.001)
    os.close(file)

def lock():
    if sort == "redis-py":
        from redis import Redis
        from redis.lock import Lock
        return Lock(Redis(port=int(os.environ["REDIS_PORT"])), "leader:move", timeout=5, sleep=0.002)
    import tenure, tenure.compat
    if sort == "compat":
        return tenure.compat.Lock(None, "leader:move", timeout=5)
    return tenure.leader("move") if limit == 1 else tenure.semaphore("move", limit)

async def loop():
    import tenure
    while not stopping:
        async with tenure.aio.leader("move") if limit == 1 else tenure.aio.semaphore("move", limit):
            work()
        print("done", flush=True)
        await asyncio.sleep(0.002)

def repeat():
    while not stopping:
        with lock():
            work()
        print("done", flush=True)
        time.sleep(0.002)

if sort == "once":
    work()
    print("done", flush=True)
elif sort == "asyncio":
    asyncio.run(loop())
elif sort == "crowd":
    threads = [threading.Thread(target=repeat) for _ in range(3)]
    for thread in threads:
        thread.start()
    while not stopping:
        time.sleep(0.01)
    for thread in threads:
        thread.join()
else:
    repeat()
"""


class Fleet:
    """A Redis with two agents, and programs of several sorts that want the same."""

    def __init__(self, directory: Path, limit: int) -> None:
        self.directory, self.limit = directory, limit
        self.redis = Redis(directory / "redis")
        self.redis.start()
        (directory / "worker.py").write_text(WORKER)
        url = f"redis://127.0.0.1:{self.redis.port}/0"
        self.agents = [Agent(directory / f"agent-{number}", {"host_name": f"host-{number}"}, url).start() for number in range(2)]
        self.workers: list[Program] = []
        self.started = 0

    def start(self, sort: str) -> Program:
        agent = self.agents[self.started % 2]
        self.started += 1
        worker = [str(self.directory / "worker.py"), sort, str(self.directory / "slot"), str(self.limit)]
        environment = {"TENURE_SOCKET": agent.socket, "REDIS_PORT": str(self.redis.port)}
        one = Program(self.directory, f"{sort}-{self.started}", worker, **environment)
        self.workers.append(one)
        return one

    def all_get_on(self) -> None:
        before = [len(one.lines()) for one in self.workers]

        def get_on() -> bool:
            for one in self.workers:
                assert one.process.poll() is None and "TOO MANY" not in one.lines(), one.lines()[-20:]
            return all(len(one.lines()) > had + 2 for one, had in zip(self.workers, before))

        until(get_on, "everybody has a turn", 60)

    def close(self) -> None:
        for one in self.workers:
            one.end(signal.SIGKILL)
        for agent in self.agents:
            agent.stop(signal.SIGKILL)
        self.redis.close()


def test_programs_move_from_redis_py_one_by_one(tmp_path: Path) -> None:
    pytest.importorskip("redis")
    fleet = Fleet(tmp_path, 1)
    try:
        for _ in range(3):
            fleet.start("redis-py")
        fleet.all_get_on()
        for _ in range(3):
            old = fleet.workers.pop(0)
            old.end()
            assert old.process.returncode == 0 and "TOO MANY" not in old.lines(), old.lines()[-20:]
            fleet.start("compat")
            fleet.all_get_on()
    finally:
        fleet.close()


@pytest.mark.parametrize("limit", [1, 2])
def test_programs_of_every_sort_contend_while_some_are_killed(limit: int, tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, limit)
    chance = random.Random(limit)
    sorts = ["threads", "asyncio", "crowd", "asyncio", *(["compat"] if limit == 1 else [])]
    try:
        for sort in sorts:
            fleet.start(sort)
        fleet.all_get_on()
        for _ in range(ROUNDS):
            victim = fleet.workers.pop(chance.randrange(len(fleet.workers)))
            victim.end(signal.SIGKILL)
            assert "TOO MANY" not in victim.lines(), victim.lines()[-20:]
            fleet.start(chance.choice(sorts))
            agent = chance.choice(fleet.agents)
            chance.choice([agent.crash, agent.restart])()
            # The command, too.
            held = ["--leader", "move"] if limit == 1 else ["--semaphore", "move", "--limit", str(limit)]
            command = [program("tenure"), "--socket", agent.socket, "run", *held, "--", sys.executable]
            command += [str(tmp_path / "worker.py"), "once", str(tmp_path / "slot"), str(limit)]
            subprocess.run(command, check=True, timeout=60, stdout=subprocess.DEVNULL)
            fleet.all_get_on()
        for one in fleet.workers:
            one.end()
            assert one.process.returncode == 0, one.lines()[-20:]
        with tenure.session(socket=fleet.agents[0].socket) as session:
            kind = session.leader("move") if limit == 1 else session.semaphore("move")
            until(lambda: kind.standing().raw["holding"] == kind.standing().raw["waiting"] == 0, "nothing is left")
    finally:
        fleet.close()
