"""A proxy with the defaults of grpcio that is told of routes. It tells on standard output how many it has, over how many
connections it was told, and how often.

usage: route_taker.py PORT FOLDER_OF_PROTO
"""

import itertools
import json
import sys
from concurrent.futures import ThreadPoolExecutor

import grpc

port, folder = sys.argv[1:]
sys.path.append(folder)
admin, services = grpc.protos_and_services("prism/admin/v1/control_plane.proto")
routes = {}
versions = {}
connections = set()
calls = itertools.count(1)


class Routes(services.ControlPlaneServicer):
    """What the control plane tells."""

    def UpdateMailboxRoute(self, update, context):
        take(context, update.mailbox_id, update.version, update.status)
        return admin.MailboxRouteUpdateAck(success=True)

    def RemoveMailboxRoute(self, removal, context):
        take(context, removal.mailbox_id, removal.version, None)
        return admin.MailboxRouteRemovalAck(success=True)


def take(context, mailbox, version, status):
    """One thread takes all calls."""
    call = next(calls)
    connections.add(context.peer())
    if version < versions.get(mailbox, 0):
        return
    versions[mailbox] = version
    if status is None:
        routes.pop(mailbox, None)
    else:
        routes[mailbox] = status
    degraded = sum(status == "degraded" for status in routes.values())
    told = {"routes": len(routes), "degraded": degraded, "connections": len(connections), "calls": call}
    print(json.dumps(told), flush=True)


server = grpc.server(ThreadPoolExecutor(max_workers=1))
services.add_ControlPlaneServicer_to_server(Routes(), server)
server.add_insecure_port(f"127.0.0.1:{port}")
server.start()
server.wait_for_termination()
