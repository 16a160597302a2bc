"""A proxy that is told of routes, and tells on standard output how many it has.

usage: route_taker.py PORT FOLDER_OF_PROTO
"""

import json
import sys
from concurrent.futures import ThreadPoolExecutor

import grpc

port, folder = sys.argv[1:]
sys.path.append(folder)
admin, services = grpc.protos_and_services("prism/admin/v1/control_plane.proto")
routes = {}
versions = {}


class Routes(services.ControlPlaneServicer):
    """What the control plane tells."""

    def UpdateMailboxRoute(self, update, _):
        take(update.mailbox_id, update.version, update.status)
        return admin.MailboxRouteUpdateAck(success=True)

    def RemoveMailboxRoute(self, removal, _):
        take(removal.mailbox_id, removal.version, None)
        return admin.MailboxRouteRemovalAck(success=True)


def take(mailbox, version, status):
    """One thread takes all calls."""
    if version < versions.get(mailbox, 0):
        return
    versions[mailbox] = version
    if status is None:
        routes.pop(mailbox, None)
    else:
        routes[mailbox] = status
    degraded = sum(status == "degraded" for status in routes.values())
    print(json.dumps({"routes": len(routes), "degraded": degraded}), flush=True)


server = grpc.server(ThreadPoolExecutor(max_workers=1))
services.add_ControlPlaneServicer_to_server(Routes(), server)
server.add_insecure_port(f"127.0.0.1:{port}")
server.start()
server.wait_for_termination()
