"""A proxy that is told of the routes of mailboxes, and forwards queries to their runners.

usage: proxy.py CONTROL_PLANE PROXY_ID HOST:PORT HOST:PORT

The first HOST:PORT is where the control plane tells it of routes, the second where it takes queries, GET /MAILBOX_ID.
A query for a mailbox that nobody holds waits a while, since runners change; then it ends with 503 and the reason.
"""

import concurrent.futures
import http.client
import http.server
import json
import pathlib
import signal
import sys
import threading
import time

import grpc

sys.path.append(str(pathlib.Path(__file__).parent / "../../client-sdk/proto/protos"))
admin, admin_services = grpc.protos_and_services("prism/admin/v1/control_plane.proto")
prism, prism_services = grpc.protos_and_services("prism/control_plane.proto")

CONTROL_PLANE, PROXY, ROUTES_AT, QUERIES_AT = sys.argv[1:]
# How long a query waits for a runner that answers it.
PATIENCE_S = 8
# How often the control plane is told that this proxy is there.
REGISTER_S = 60

# By mailbox: the version of what was told, and the address of the runner or None. A removal is kept: an update may
# come late.
routes = {}
changed = threading.Condition()


class Routes(admin_services.ControlPlaneServicer):
    """What the control plane tells."""

    def UpdateMailboxRoute(self, update, _):
        tell(update.mailbox_id, update.version, update.address)
        return admin.MailboxRouteUpdateAck(success=True)

    def RemoveMailboxRoute(self, removal, _):
        tell(removal.mailbox_id, removal.version, None)
        return admin.MailboxRouteRemovalAck(success=True)


def tell(mailbox, version, address):
    with changed:
        known, _ = routes.get(mailbox, (0, None))
        if version >= known:
            routes[mailbox] = (version, address)
            changed.notify_all()


def ask(address, mailbox):
    """The status and the answer of a runner."""
    connection = http.client.HTTPConnection(address, timeout=PATIENCE_S / 4)
    try:
        connection.request("GET", f"/{mailbox}")
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def forward(mailbox):
    """Asks the runner of a mailbox, and again when there is another one."""
    deadline = time.monotonic() + PATIENCE_S
    reason = "no runner holds it"
    while True:
        _, address = routes.get(mailbox, (0, None))
        if address:
            try:
                status, body = ask(address, mailbox)
                if status == 200:
                    return status, body
                reason = f"{address} does not hold it any more"
            except (OSError, http.client.HTTPException) as error:
                reason = f"{address} does not answer: {error}"
        if time.monotonic() >= deadline:
            return 503, json.dumps({"error": f"{mailbox}: {reason}; try again"}).encode()
        with changed:
            changed.wait(0.05)


class Queries(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        status, body = forward(self.path[1:])
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def register():
    registration = prism.ProxyRegistration(proxy_id=PROXY, address=ROUTES_AT)
    with grpc.insecure_channel(CONTROL_PLANE) as channel:
        control = prism_services.ControlPlaneStub(channel)
        while True:
            try:
                answer = control.RegisterProxy(registration, timeout=5, wait_for_ready=True)
                if not answer.success:
                    print(f"{PROXY}: {answer.message}", flush=True)
                time.sleep(REGISTER_S)
            except grpc.RpcError as error:
                print(f"{PROXY}: {error.code().name} {error.details()}", flush=True)
                time.sleep(1)


signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
told = grpc.server(concurrent.futures.ThreadPoolExecutor(16))
admin_services.add_ControlPlaneServicer_to_server(Routes(), told)
told.add_insecure_port(ROUTES_AT)
told.start()
threading.Thread(target=register, daemon=True).start()
host, port = QUERIES_AT.rsplit(":", 1)
http.server.ThreadingHTTPServer((host, int(port)), Queries).serve_forever()
