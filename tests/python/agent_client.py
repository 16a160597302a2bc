"""A client of an agent that acquires, stays inside for a while, and releases, again and again.

usage: agent_client.py SOCKET KIND NAME LIMIT SLOTS_DIRECTORY STAY_MS PAUSE_MS

The name of a master is its session's project.

Ends at once, without releasing anything, when its standard input does.
"""

import http.client
import json
import os
import random
import socket
import sys
import threading
import time

from lines import say
from slots import Slots, TooMany


class Agent(http.client.HTTPConnection):
    """HTTP on a Unix socket."""

    def __init__(self, path):
        super().__init__("agent")
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)

    def post(self, path, body):
        self.request("POST", path, json.dumps(body), {"content-type": "application/json"})
        answer = self.getresponse()
        return answer.status, json.loads(answer.read() or "null")


def end_with_standard_input():
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os._exit(0)


def main(path, kind, name, limit, directory, stay_ms, pause_ms):
    threading.Thread(target=end_with_standard_input, daemon=True).start()
    agent, slots = Agent(path), Slots(directory, int(limit))
    register = {"tether": "process", "name": "cycle"}
    if kind == "master":
        register["project"] = name
    _, session = agent.post("/v1/register", register)
    ask = {"session": session["session"], "kind": kind, "name": name, "wait": "block"}
    if kind == "semaphore":
        ask["limit"] = int(limit)
    if kind == "master":
        del ask["name"]
    while True:
        status, hold = agent.post("/v1/acquire", ask)
        if status != 200:
            say(event="failed", why=hold["detail"])
            time.sleep(0.1)
            continue
        try:
            slot = slots.enter()
        except TooMany as error:
            say(event="too_many", why=str(error))
        else:
            say(event="entered", token=hold["token"])
            time.sleep(random.uniform(0, int(stay_ms) / 1000))
            os.close(slot)
        agent.post("/v1/release", {"session": session["session"], "hold": hold["hold"]})
        time.sleep(random.uniform(0, int(pause_ms) / 1000))


try:
    main(*sys.argv[1:])
except (OSError, http.client.HTTPException) as error:
    # The agent was killed.
    say(event="failed", why=str(error))
