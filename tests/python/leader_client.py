"""A client of ADR-0004, "Redis-Based Leader Election": the algorithm and its commands word by word.

usage: leader_client.py REDIS_URL
"""

import asyncio
import os
import random
import sys
import uuid

from lines import say, serve
from redis.asyncio import Redis
from slots import Slots, TooMany


class LeaderElection:
    def __init__(self, redis, lock_key, lease_ttl=30, interval=10, slots=None):
        self.redis = redis
        self.instance_id = str(uuid.uuid4())
        self.lease_ttl = lease_ttl
        self.interval = interval
        self.is_leader = False
        self._lock_key = lock_key
        self._slots = slots
        self._slot = None
        self._task = None

    async def _acquire_lock(self) -> bool:
        """Try to acquire the leader lock."""
        acquired = await self.redis.set(
            self._lock_key,
            self.instance_id,
            nx=True,  # Only set if not exists
            ex=self.lease_ttl,  # 30 second TTL
        )
        return bool(acquired)

    async def _renew_lock(self) -> bool:
        """Renew the lock if we own it."""
        current = await self.redis.get(self._lock_key)
        if current != self.instance_id:
            return False  # Someone else has it
        await self.redis.expire(self._lock_key, self.lease_ttl)
        return True

    async def _release_lock(self) -> bool:
        """Release lock atomically if we own it."""
        script = """
        if redis.call("get", KEYS[1]) == ARGV[1] then
            return redis.call("del", KEYS[1])
        else
            return 0
        end
        """
        return await self.redis.eval(script, 1, self._lock_key, self.instance_id)

    async def start(self):
        self._task = asyncio.create_task(self._run())

    async def stop(self):
        self._task.cancel()
        self._become(False)
        await self._release_lock()

    async def _run(self):
        while True:
            try:
                self._become(await (self._renew_lock() if self.is_leader else self._acquire_lock()))
            except OSError as error:
                say(event="failed", why=str(error))
                self._become(False)
            await asyncio.sleep(self.interval)

    def _become(self, leader):
        """Tells the test; the algorithm has no part in it."""
        if leader == self.is_leader:
            return
        self.is_leader = leader
        if not leader:
            if self._slot is not None:
                os.close(self._slot)
            self._slot = None
            say(event="follower")
            return
        try:
            self._slot = self._slots.enter() if self._slots else None
            say(event="leader")
        except TooMany as error:
            say(event="too_many", why=str(error))


redis = Redis.from_url(sys.argv[1], decode_responses=True)
elections = {}


async def start(command):
    """Becomes a candidate; `leader` and `follower` events follow."""
    key = command["prefix"] + command["role"]
    slots = Slots(command["slots"], 1) if "slots" in command else None
    elections[key] = LeaderElection(redis, key, command["lease_ttl"], command["interval"], slots)
    await elections[key].start()
    return elections[key].instance_id


async def stop(command):
    await elections.pop(command["prefix"] + command["role"]).stop()


async def cycle(command):
    """Stands, leads for a while, and stops, again and again until `finish`."""
    election = LeaderElection(
        redis, command["prefix"] + command["role"], command["lease_ttl"], command["interval"], Slots(command["slots"], 1)
    )
    while not finishing.is_set():
        await election.start()
        while not election.is_leader and not finishing.is_set():
            await asyncio.sleep(0.01)
        await asyncio.sleep(random.uniform(0, command["stay_ms"] / 1000))
        await election.stop()
        await asyncio.sleep(random.uniform(0, command["pause_ms"] / 1000))


async def finish(_):
    """Lets cycles end with the turn that they are in."""
    finishing.set()


finishing = asyncio.Event()
asyncio.run(serve({"start": start, "stop": stop, "cycle": cycle, "finish": finish}))
