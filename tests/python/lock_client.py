"""A client of redis-py's Lock that acquires, stays inside for a while, and releases, again and again.

usage: lock_client.py REDIS_URL KEY TTL_S SLOTS_DIRECTORY STAY_MS PAUSE_MS

Ends after the turn that it is in when its standard input does.
"""

import os
import random
import sys
import threading
import time

import redis
from lines import say
from slots import Slots, TooMany

stopping = threading.Event()


def wait_for_standard_input():
    while os.read(sys.stdin.fileno(), 4096):
        pass
    stopping.set()


def main(url, key, ttl_s, directory, stay_ms, pause_ms):
    threading.Thread(target=wait_for_standard_input, daemon=True).start()
    lock = redis.Redis.from_url(url).lock(key, timeout=float(ttl_s))
    slots = Slots(directory, 1)
    while not stopping.is_set():
        # As its documentation uses it: it tries ten times a second.
        if not lock.acquire(blocking_timeout=1):
            continue
        try:
            slot = slots.enter()
        except TooMany as error:
            say(event="too_many", why=str(error))
        else:
            say(event="entered")
            time.sleep(random.uniform(0, int(stay_ms) / 1000))
            os.close(slot)
        lock.release()
        stopping.wait(random.uniform(0, int(pause_ms) / 1000))


main(*sys.argv[1:])
