"""A runner that holds a mailbox, and answers queries for it as long as it does.

usage: runner.py CONTROL_PLANE RUNNER_ID MAILBOX_ID HOST:PORT

HOST:PORT is where it takes queries, GET /MAILBOX_ID, and where proxies send them to. Its answers have its id and its
fencing token. Who does not hold the mailbox answers 421: ask another one.
"""

import http.server
import json
import pathlib
import signal
import sys
import threading
import time
import uuid

import grpc

sys.path.append(str(pathlib.Path(__file__).parent / "../../client-sdk/proto/protos"))
protos, services = grpc.protos_and_services("prism/admin/v1/control_plane.proto")

CONTROL_PLANE, RUNNER, MAILBOX, ADDRESS = sys.argv[1:]
TTL_S = 3
# Three heartbeats may be lost.
BEAT_S = TTL_S / 4
# One run of this program: after a reconnect it is still the same.
METADATA = [("x-tenure-incarnation", str(uuid.uuid4()))]

stopping = threading.Event()


class Hold:
    """What this runner knows of its lease. Times are of a monotonic clock: nothing moves that one."""

    token = 0
    valid_until = 0.0

    def take(self, sent_at, answer):
        if answer.fencing_token != self.token:
            print(f"{RUNNER}: holds {MAILBOX} with token {answer.fencing_token}", flush=True)
        self.token = answer.fencing_token
        self.valid_until = sent_at + answer.valid_for_ms / 1000

    def is_valid(self):
        return time.monotonic() < self.valid_until


hold = Hold()


class Queries(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        token = hold.token
        answer = {"mailbox": MAILBOX, "runner": RUNNER, "token": token}
        # Here the query would be made, with the token given to what it writes to; then, once more:
        holds = self.path == f"/{MAILBOX}" and hold.is_valid() and hold.token == token
        status = 200 if holds else 421
        body = json.dumps(answer if holds else {"error": f"{RUNNER} does not hold {self.path[1:]}"})
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_):
        pass


def run(control):
    """Waits for the lease, and renews it until it is lost or the program is to end."""
    ids = {"mailbox_id": MAILBOX, "runner_id": RUNNER}
    while not stopping.is_set():
        sent_at = time.monotonic()
        try:
            if not hold.is_valid():
                asked = protos.AcquireLeaseRequest(**ids, address=ADDRESS, ttl_seconds=TTL_S)
                answer = control.AcquireLease(asked, timeout=BEAT_S, metadata=METADATA)
                held = answer.success
            else:
                asked = protos.MailboxHeartbeatRequest(**ids, status="healthy")
                answer = control.MailboxHeartbeat(asked, timeout=BEAT_S, metadata=METADATA)
                held = answer.lease_renewed
            if held:
                hold.take(sent_at, answer)
            else:
                hold.valid_until = 0.0
                print(f"{RUNNER}: {answer.message}", flush=True)
        except grpc.RpcError as error:
            # It may have taken effect, or not: what is held stays valid as long as was promised.
            print(f"{RUNNER}: {error.code().name} {error.details()}", flush=True)
        stopping.wait(BEAT_S if hold.is_valid() else BEAT_S / 4)
    # Answers end before the lease does.
    hold.valid_until = 0.0
    control.ReleaseLease(protos.ReleaseLeaseRequest(**ids), timeout=5, metadata=METADATA)


for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda *_: stopping.set())
host, port = ADDRESS.rsplit(":", 1)
server = http.server.ThreadingHTTPServer((host, int(port)), Queries)
threading.Thread(target=server.serve_forever, daemon=True).start()
with grpc.insecure_channel(CONTROL_PLANE) as channel:
    run(services.ControlPlaneStub(channel))
