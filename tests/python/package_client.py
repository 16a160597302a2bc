"""A client of the unmodified Python package asyncio-advanced-semaphores.

usage: package_client.py REDIS_URL
"""

import asyncio
import itertools
import os
import random
import sys

from lines import say, serve
from slots import Slots, TooMany

if not hasattr(itertools, "batched"):
    # The package wants Python 3.12; this function is all that it misses in 3.11.
    def batched(iterable, n):
        items = iter(iterable)
        while batch := tuple(itertools.islice(items, n)):
            yield batch

    itertools.batched = batched

from asyncio_advanced_semaphores import RedisConfig, RedisSemaphore  # noqa: E402

URL = sys.argv[1]
# By acquisition: the object that acquired also beats, and must be the one that releases.
held = {}


def config_of(command):
    return RedisConfig(url=URL, namespace=command.get("namespace", "adv-sem"))


def semaphore_of(command):
    options = {key: command[key] for key in ("ttl", "max_acquire_time", "heartbeat_max_interval") if key in command}
    return RedisSemaphore(name=command["name"], value=command["value"], config=config_of(command), **options)


async def acquire(command):
    semaphore = semaphore_of(command)
    result = await semaphore.acquire()
    held[result.acquisition_id] = semaphore
    return {"acquisition": result.acquisition_id, "slot": result.slot_number}


async def release(command):
    await held.pop(command["acquisition"]).release(command["acquisition"])


async def locked(command):
    return await semaphore_of(command).locked()


async def stats(command):
    stats = await RedisSemaphore.get_acquired_stats(names=command.get("names"), config=config_of(command))
    return {name: [of.acquired_slots, of.max_slots] for name, of in stats.items()}


async def cycle(command):
    """Acquires, stays inside for a while, and releases, again and again until `stop`.

    Not until cancelled: the package swallows a cancellation that comes while it releases.
    """
    semaphore, slots = semaphore_of(command), Slots(command["slots"], command["value"])
    while not stopping.is_set():
        try:
            result = await semaphore.acquire()
        except Exception as error:
            # Redis may be gone for a moment, and the package gives up a wait that it thinks failed.
            say(event="failed", why=f"{type(error).__name__}: {error}")
            await asyncio.sleep(0.1)
            continue
        try:
            slot = slots.enter()
        except TooMany as error:
            say(event="too_many", why=str(error))
        else:
            say(event="entered")
            await asyncio.sleep(random.uniform(0, command["stay_ms"] / 1000))
            os.close(slot)
        await semaphore.release(result.acquisition_id)


async def stop(_):
    """Lets cycles end with the turn that they are in."""
    stopping.set()


stopping = asyncio.Event()
commands = [acquire, release, locked, stats, cycle, stop]
asyncio.run(serve({command.__name__: command for command in commands}, at_end=stopping.set))
