"""One client of a lock that people use today, told what to do by the benchmark.

    peers.py PEER ADDRESS NAME

One command a line on standard input, one line of JSON back:

    pairs N   acquires and releases N times: a list of µs
    looks N   asks a hold of Tenure N times whether it is held, and N times to check: two means, ns
    acquire   blocks until it is held: {"at_ns": when}
    release   {"at_ns": the instant before}

Times are CLOCK_BOOTTIME, the benchmark's own clock. Ends with its standard input.
"""

import asyncio
import base64
import http.client
import json
import sys
import time

# Longer than any run, so that nothing expires while it is measured; the package's default.
TTL_S = 180


def now_ns():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def look(count, once):
    start = now_ns()
    for _ in range(count):
        once()
    return (now_ns() - start) / count


class Blocking:
    """Makes a peer that blocks look like one that awaits."""

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

    def looks(self, count):
        self.take()
        ns = [look(count, self.held.is_held), look(count, self.held.check)]
        self.give_back()
        return ns


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
    "redis-py": RedisPy,
    "python-redis-lock": PythonRedisLock,
    "asyncio-advanced-semaphores": AdvancedSemaphores,
    "etcd": Etcd,
    "postgres": Postgres,
}


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
    # In a thread, so that a peer's heartbeats go on while there is nothing to do.
    while line := await asyncio.to_thread(sys.stdin.readline):
        print(json.dumps(await obey(peer, line.split())), flush=True)


asyncio.run(main(*sys.argv[1:]))
