"""Measures the package beside others, over one Redis: `python bench.py [PAIRS]`. Needs redis and python-redis-lock.

Prints µs: what an uncontended acquire and release cost together (p50, p99), and a look at the page.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import redis as redis_py
import redis_lock
import tenure
from conformance_script import Redis
from tenure.testing import Agent

PAIRS = int(sys.argv[1]) if len(sys.argv) > 1 else 2000


def row(name: str, times: list[int]) -> None:
    times.sort()
    print(f"{name:<34}{times[len(times) // 2] / 1000:>10.1f}{times[len(times) * 99 // 100] / 1000:>10.1f}")


def pairs(name: str, lock: Callable[[], Any]) -> None:
    times = []
    for _ in range(PAIRS):
        began = time.perf_counter_ns()
        with lock():
            pass
        times.append(time.perf_counter_ns() - began)
    row(name, times[PAIRS // 10 :])


async def async_pairs(name: str, lock: Callable[[], Any]) -> None:
    times = []
    for _ in range(PAIRS):
        began = time.perf_counter_ns()
        async with lock():
            pass
        times.append(time.perf_counter_ns() - began)
    row(name, times[PAIRS // 10 :])


def looks(name: str, look: Callable[[], object]) -> None:
    times = []
    for _ in range(200):
        began = time.perf_counter_ns()
        for _ in range(1000):
            look()
        times.append((time.perf_counter_ns() - began) // 1000)
    row(name, times)


def main() -> None:
    directory = Path(tempfile.mkdtemp())
    redis = Redis(directory / "redis")
    redis.start()
    client = redis_py.Redis(port=redis.port)
    print(f"{'µs, Python ' + sys.version.split()[0]:<34}{'p50':>10}{'p99':>10}")
    try:
        with Agent(directory / "agent", upstream=f"redis://127.0.0.1:{redis.port}/0") as agent:
            with tenure.session(socket=agent.socket) as session:
                role = session.leader("one", wait=0)
                pairs("tenure", lambda: role)
                with role as hold:
                    looks("tenure is_held()", hold.is_held)
                    looks("tenure check()", hold.check)

            async def loop() -> None:
                async with tenure.aio.session(socket=agent.socket) as session:
                    role = session.leader("two", wait=0)
                    await async_pairs("tenure.aio", lambda: role)

            asyncio.run(loop())
            pairs("redis-py Lock", lambda: client.lock("three", timeout=30))
            pairs("python-redis-lock, no heartbeat", lambda: redis_lock.Lock(client, "four", expire=30))
            pairs("python-redis-lock, its heartbeat", lambda: redis_lock.Lock(client, "five", expire=30, auto_renewal=True))
        with Agent(directory / "embedded") as agent, tenure.session(socket=agent.socket) as session:
            role = session.leader("six", wait=0)
            pairs("tenure, embedded store", lambda: role)
    finally:
        redis.close()


if __name__ == "__main__":
    main()
