"""One client of a lock that people use today, told what to do by the benchmark.

    peers.py PEER ADDRESS NAME

One command a line on standard input, one line of JSON back:

    pairs N   acquires and releases N times: a list of µs
    looks N   asks a hold of Tenure N times whether it is held, and N times to check: two means, ns
    turns S   for S seconds acquires and releases in 8 threads: how often
    acquire   blocks until it is held: {"at_ns": when}
    release   {"at_ns": the instant before}

Times are CLOCK_BOOTTIME, the benchmark's own clock. Ends with its standard input.
"""

import asyncio
import base64
import copy
import http.client
import json
import os
import sys
import threading
import time

# Longer than any run, so that nothing expires while it is measured; the package's default.
TTL_S = 180
THREADS = 8


def now_ns():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def look(count, once):
    start = now_ns()
    for _ in range(count):
        once()
    return (now_ns() - start) / count


class Blocking:
    """Makes a peer that blocks look like one that awaits."""

    def several(self, count):
        """As many of them as threads, each with its own lock."""
        return [type(self)(*self.arguments) for _ in range(count)]

    async def acquire(self):
        self.take()

    async def release(self):
        self.give_back()


class RedisPy(Blocking):
    """redis-py's Lock, as its documentation uses it."""

    def __init__(self, url, name):
        import redis

        self.lock = redis.Redis.from_url(url).lock(name, timeout=TTL_S)

    def take(self):
        if not self.lock.acquire():
            raise RuntimeError("not acquired")

    def give_back(self):
        self.lock.release()


class PythonRedisLock(Blocking):
    """python-redis-lock with an expiry, and without its renewal thread, which would cost time."""

    def __init__(self, url, name):
        import redis
        import redis_lock

        self.lock = redis_lock.Lock(redis.Redis.from_url(url), name, expire=TTL_S)

    def take(self):
        if not self.lock.acquire():
            raise RuntimeError("not acquired")

    def give_back(self):
        self.lock.release()


class Tenure(Blocking):
    """This repository's package, at the agent on that socket."""

    def __init__(self, socket, name):
        import tenure

        self.role = tenure.session(socket=socket).leader(name)

    def take(self):
        self.held = self.role.acquire()

    def give_back(self):
        self.held.release()

    def several(self, count):
        # They share its session.
        return [copy.copy(self) for _ in range(count)]

    def looks(self, count):
        self.take()
        ns = [look(count, self.held.is_held), look(count, self.held.check)]
        self.give_back()
        return ns


class TenureCompat(Blocking):
    """The same as redis-py's Lock."""

    def __init__(self, socket, name):
        os.environ["TENURE_SOCKET"] = socket
        from tenure.compat import Lock

        self.lock = Lock(None, name, timeout=TTL_S)

    def take(self):
        if not self.lock.acquire():
            raise RuntimeError("not acquired")

    def give_back(self):
        self.lock.release()


class AdvancedSemaphores:
    """asyncio-advanced-semaphores with one permit and its defaults."""

    def __init__(self, url, name):
        from asyncio_advanced_semaphores import RedisConfig, RedisSemaphore

        self.semaphore = RedisSemaphore(name=name, value=1, config=RedisConfig(url=url))

    async def acquire(self):
        self.held = await self.semaphore.acquire()

    async def release(self):
        await self.semaphore.release(self.held.acquisition_id)


class Etcd(Blocking):
    """etcd's lock service through its HTTP gateway, with one lease for all locks."""

    def __init__(self, address, name):
        self.connection = http.client.HTTPConnection(address)
        self.lease = self.call("/v3/lease/grant", {"TTL": TTL_S})["ID"]
        self.name = base64.b64encode(name.encode()).decode()

    def call(self, path, body):
        self.connection.request("POST", path, json.dumps(body))
        answer = self.connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{path}: {answer.status} {text}")
        return json.loads(text)

    def take(self):
        self.key = self.call("/v3/lock/lock", {"name": self.name, "lease": self.lease})["key"]

    def give_back(self):
        self.call("/v3/lock/unlock", {"key": self.key})


class Postgres(Blocking):
    """A Postgres advisory lock of the connection."""

    def __init__(self, directory, name):
        import psycopg2

        connection = psycopg2.connect(host=directory, user="postgres", dbname="postgres")
        connection.autocommit = True
        self.cursor = connection.cursor()
        self.name = name

    def take(self):
        self.cursor.execute("SELECT pg_advisory_lock(hashtext(%s))", (self.name,))

    def give_back(self):
        self.cursor.execute("SELECT pg_advisory_unlock(hashtext(%s))", (self.name,))


PEERS = {
    "tenure": Tenure,
    "tenure-compat": TenureCompat,
    "redis-py": RedisPy,
    "python-redis-lock": PythonRedisLock,
    "asyncio-advanced-semaphores": AdvancedSemaphores,
    "etcd": Etcd,
    "postgres": Postgres,
}


def take_turns(peers, seconds):
    """Each peer in a thread of its own."""
    end = time.monotonic() + seconds
    counts = []

    def turns(peer):
        count = 0
        while time.monotonic() < end:
            peer.take()
            peer.give_back()
            count += 1
        counts.append(count)

    threads = [threading.Thread(target=turns, args=[peer]) for peer in peers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(counts) != len(peers):
        raise RuntimeError("a thread has failed")
    return sum(counts)


async def obey(peer, command):
    match command:
        case ["pairs", count]:
            times = []
            for _ in range(int(count)):
                start = now_ns()
                await peer.acquire()
                await peer.release()
                times.append((now_ns() - start) / 1000)
            return times
        case ["looks", count]:
            return peer.looks(int(count))
        case ["turns", seconds]:
            return take_turns(peer.several(THREADS), float(seconds))
        case ["acquire"]:
            await peer.acquire()
            return {"at_ns": now_ns()}
        case ["release"]:
            at = now_ns()
            await peer.release()
            return {"at_ns": at}
    raise ValueError(f"not a command: {command}")


async def main(name, *arguments):
    peer = PEERS[name](*arguments)
    peer.arguments = arguments
    # In a thread, so that a peer's heartbeats go on while there is nothing to do.
    while line := await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps(await obey(peer, line.split())), flush=True)


asyncio.run(main(*sys.argv[1:]))
