"""A contender that uses the Python package: acquires, stays inside for a while, and releases, again and again.

usage: threads.py SOCKET WITNESS KIND LIMIT NAME

One wait of four is impatient, and is given up.
"""

import http.client
import json
import os
import random
import socket
import sys
import time

import tenure


class Witness(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("witness")
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)

    def tell(self, what, **facts):
        self.request("POST", what, json.dumps(facts), {"content-type": "application/json"})
        answer = self.getresponse()
        assert answer.read() == b"" and answer.status == 200, answer.status


def main(path, witness, kind, limit, name):
    witness = Witness(witness)
    own = {"kind": kind, "name": name}
    with tenure.session(socket=path, name=name, project="mixed") as session:
        resource = {
            "leader": lambda: session.leader("mixed"),
            "semaphore": lambda: session.semaphore("mixed", limit=int(limit)),
            "master": session.master,
        }[kind]()
        while True:
            impatient = random.random() < 0.25
            try:
                hold = resource.acquire(0.05 if impatient else None)
            except (tenure.Busy, tenure.UpstreamUnavailable):
                # So short a wait may be over before the store has answered.
                if not impatient:
                    raise
                # Its place may be given back a little later, and must not be taken for that of its next wait.
                while any(waiter["name"] == name for waiter in resource.standing().raw["waiters"]):
                    time.sleep(0.005)
                witness.tell("/gave_up", **own)
                continue
            witness.tell("/enter", **own, pid=os.getpid(), token=str(hold.token))
            time.sleep(random.uniform(0, 0.02))
            hold.check()
            witness.tell("/leave", **own)
            hold.release()


main(*sys.argv[1:])
