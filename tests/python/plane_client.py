"""Clients of the control plane by grpcio, each with a connection of its own. tests/go/plane_client.go is the same by grpc-go.

usage: plane_client.py FOLDER_OF_PROTO
"""

import asyncio
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import grpc
from lines import serve

sys.path.append(sys.argv[1])
admin, admin_services = grpc.protos_and_services("prism/admin/v1/control_plane.proto")
prism, prism_services = grpc.protos_and_services("prism/control_plane.proto")
routes, routes_services = grpc.protos_and_services("tenure/v1/routes.proto")

PATIENCE_S = 20
EVERY_S = 1
clients = {}


class Client:
    """A connection, with the library's defaults or with a ping every so many seconds, also without a call."""

    def __init__(self, address, ping_s):
        # Two channels of a process to one address share a connection otherwise.
        options = [("grpc.use_local_subchannel_pool", 1)]
        if ping_s:
            options += [("grpc.keepalive_time_ms", ping_s * 1000), ("grpc.keepalive_permit_without_calls", 1)]
            options += [("grpc.http2.max_pings_without_data", 0)]
        self.channel = grpc.insecure_channel(address, options)
        self.plane = admin_services.ControlPlaneStub(self.channel)
        self.is_over = Event()
        self.calls = 0
        self.told = 0
        self.failed = []
        self.stream = None

    def beat(self, mailbox, within_s, take=False, status="active"):
        """The name of the status."""
        try:
            if take:
                wanted = admin.AcquireLeaseRequest(mailbox_id=mailbox, runner_id=mailbox, ttl_seconds=3600)
                answer = self.plane.AcquireLease(wanted, timeout=within_s)
                return "OK" if answer.success else answer.message
            beat = admin.MailboxHeartbeatRequest(mailbox_id=mailbox, runner_id=mailbox, status=status)
            answer = self.plane.MailboxHeartbeat(beat, timeout=within_s)
            return "OK" if answer.lease_renewed else answer.message
        except grpc.RpcError as error:
            return f"{error.code().name}: {error.details()}"

    def register(self, proxy, address):
        registration = prism.ProxyRegistration(proxy_id=proxy, address=address)
        try:
            ack = prism_services.ControlPlaneStub(self.channel).RegisterProxy(registration, timeout=PATIENCE_S)
            return "OK" if ack.success else ack.message
        except grpc.RpcError as error:
            return f"{error.code().name}: {error.details()}"

    def follow(self):
        try:
            for _ in self.stream:
                self.told += 1
            self.failed.append("the stream has ended")
        except grpc.RpcError as error:
            if not self.is_over.is_set():
                self.failed.append(f"the stream: {error.code().name}: {error.details()}")

    def go_on(self, mailbox, proxy):
        """Once a second it changes its own route, and registers a proxy."""
        while not self.is_over.is_set():
            status = ("active", "degraded")[self.calls % 2]
            said = [self.beat(mailbox, PATIENCE_S, status=status), self.register(mailbox, proxy)]
            self.calls += 1
            self.failed += [it for it in said if it != "OK"]
            time.sleep(EVERY_S)


def open_one(command):
    clients[command["client"]] = Client(command["address"], command.get("ping_s"))


def beat(command):
    client = clients[command["client"]]
    return client.beat(command["mailbox"], command.get("within_s", PATIENCE_S), command.get("take", False))


def work(command):
    client = clients[command["client"]]
    client.stream = routes_services.RoutesStub(client.channel).Watch(routes.WatchRequest())
    threads.submit(client.follow)
    threads.submit(client.go_on, command["mailbox"], command["proxy"])


def report(command):
    client = clients[command["client"]]
    return {"calls": client.calls, "failed": client.failed, "told": client.told}


def rest(command):
    client = clients[command["client"]]
    client.is_over.set()
    client.stream.cancel()


def aside(function):
    async def run(command):
        return await asyncio.get_running_loop().run_in_executor(threads, function, command)

    return run


threads = ThreadPoolExecutor(64)
asyncio.run(serve({name: aside(function) for name, function in [
    ("open", open_one), ("beat", beat), ("work", work), ("report", report), ("rest", rest),
]}))
