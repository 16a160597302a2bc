"""A pattern runner of RFC-049, with stubs made from the RFC's own file.

usage: runner_client.py FOLDER_OF_PROTO
"""

import asyncio
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
from lines import serve

sys.path.append(sys.argv[1])
protos, services = grpc.protos_and_services("rfc_049.proto")

PATIENCE_S = 20
# By name: a channel's stub, its channel and its metadata.
stubs = {}


def open_channel(command):
    """A connection of its own, as another process has."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    if command.get("ca"):
        files = [command.get(name) for name in ("ca", "key", "cert")]
        secrets = [file and Path(file).read_bytes() for file in files]
        credentials = grpc.ssl_channel_credentials(*secrets)
        channel = grpc.secure_channel(command["address"], credentials, options)
    else:
        channel = grpc.insecure_channel(command["address"], options)
    metadata = [(name, value) for name, value in command.get("metadata", {}).items()]
    stubs[command["channel"]] = (services.ControlPlaneStub(channel), channel, metadata)


def close(command):
    stubs.pop(command["channel"])[1].close()


METHODS = {
    "acquire": ("AcquireLease", protos.AcquireLeaseRequest),
    "heartbeat": ("MailboxHeartbeat", protos.MailboxHeartbeatRequest),
    "release": ("ReleaseLease", protos.ReleaseLeaseRequest),
    "update": ("UpdateMailboxRoute", protos.MailboxRouteUpdate),
}


def status(error):
    trailing = {key: str(value) for key, value in error.trailing_metadata() or ()}
    return {"code": error.code().name, "details": error.details(), "trailing": trailing}


def call(name, command):
    """The answer's fields, or the status."""
    stub, _, metadata = stubs[command["channel"]]
    method, message = METHODS[name]
    fields = dict(command.get("fields", {}))
    if pad := fields.pop("pad", 0):
        fields["status"] = "x" * pad
    try:
        within = command.get("within_s", PATIENCE_S)
        answer = getattr(stub, method)(message(**fields), timeout=within, metadata=metadata)
    except grpc.RpcError as error:
        return status(error)
    told = {field.name: getattr(answer, field.name) for field in answer.DESCRIPTOR.fields}
    for time_of in ("lease_expires", "new_expiration"):
        if time_of in told:
            told[time_of] = answer.HasField(time_of) and told[time_of].ToSeconds() - time.time()
    # What the RFC's file has not is kept, as bytes.
    return {"code": "OK", **told, "bytes": len(answer.SerializeToString())}


def raw(command):
    """A call of any method with any bytes; the bytes of the first answer, or the status."""
    _, channel, metadata = stubs[command["channel"]]
    message = bytes.fromhex(command["hex"]) + bytes(command.get("zeros", 0))
    options = {"timeout": PATIENCE_S, "metadata": metadata}
    if command.get("gzip"):
        options["compression"] = grpc.Compression.Gzip
    try:
        if command["path"].endswith("/Watch"):
            answers = channel.unary_stream(command["path"])(message, **options)
            answer = next(answers)
            answers.cancel()
        else:
            answer = channel.unary_unary(command["path"])(message, **options)
    except grpc.RpcError as error:
        return status(error)
    return {"code": "OK", "hex": answer.hex()}


def give_up(command):
    """Begins calls that are cancelled, each after a time of its own, some with their connection."""
    method, message = METHODS["acquire"]
    chance = random.Random(command["seed"])
    codes = []
    for number in range(command["calls"]):
        open_channel(command)
        stub, channel, metadata = stubs[command["channel"]]
        wanted = message(mailbox_id=f"{command['prefix']}-{number}@p", runner_id="runner")
        future = getattr(stub, method).future(wanted, timeout=PATIENCE_S, metadata=metadata)
        time.sleep(chance.random() * command["within_s"])
        if chance.random() < 0.5:
            future.cancel()
        channel.close()
        codes.append(future.code().name)
    return codes


def health(command):
    """The bytes of the answer of `grpc.health.v1`, for which there are no stubs here."""
    check = stubs[command["channel"]][1].unary_unary("/grpc.health.v1.Health/Check")
    service = command["service"].encode()
    try:
        return {"answer": list(check(b"\n" + bytes([len(service)]) + service, timeout=PATIENCE_S))}
    except grpc.RpcError as error:
        return {"code": error.code().name}


def aside(function, *first):
    async def run(command):
        return await asyncio.get_running_loop().run_in_executor(threads, function, *first, command)

    return run


threads = ThreadPoolExecutor(128)
methods = {name: aside(call, name) for name in METHODS}
methods |= {"raw": aside(raw), "give_up": aside(give_up)}
methods |= {"open": aside(open_channel), "close": aside(close), "health": aside(health)}
asyncio.run(serve(methods))
