"""A contender that uses the Python package: acquires, stays inside for a while, and releases, again and again.

usage: threads.py SOCKET WITNESS KIND LIMIT NAME [THREADS]

One wait of four is impatient, and is given up; none where several threads contend. Half of these share a session, and
each other one has its own. They ask for the leader or for a permit of the semaphore, by chance, if KIND is `either`.
"""

import contextlib
import http.client
import json
import os
import random
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed

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


def contend(session, witness, kind, limit, name, is_patient):
    witness = Witness(witness)
    resources = {
        "leader": session.leader("mixed"),
        "semaphore": session.semaphore("mixed", limit=int(limit)),
        "master": session.master(),
    }
    while True:
        chosen = random.choice(["leader", "semaphore"]) if kind == "either" else kind
        resource, own = resources[chosen], {"kind": chosen, "name": name}
        impatient = not is_patient and random.random() < 0.25
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
        try:
            hold.check()
        except tenure.Lost:
            witness.tell("/lost", **own)
            continue
        witness.tell("/leave", **own)
        with contextlib.suppress(tenure.Lost):
            hold.release()


def main(path, witness, kind, limit, name, threads=None):
    def begin(name):
        return tenure.session(socket=path, name=name, project="mixed")

    shared = begin(name)
    if threads is None:
        contend(shared, witness, kind, limit, name, is_patient=False)
    with ThreadPoolExecutor(int(threads)) as pool:
        turns = []
        for thread in range(int(threads)):
            own = f"{name}#{thread}"
            session = shared if thread < int(threads) // 2 else begin(own)
            turns.append(pool.submit(contend, session, witness, kind, limit, own, is_patient=True))
        for turn in as_completed(turns):
            print(turn.exception(), file=sys.stderr, flush=True)
            os._exit(1)


main(*sys.argv[1:])
