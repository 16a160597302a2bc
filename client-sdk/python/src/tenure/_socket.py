"""The search for the agent's socket: the same places, in the same order, as the command's."""

from __future__ import annotations

import os
import socket
import stat
import sys
from collections.abc import Callable, Mapping

from .errors import AgentUnavailable

SERVICE_SOCKET = "/var/run/tenured/api.sock" if sys.platform == "darwin" else "/run/tenured/api.sock"


class Connection(socket.socket):
    """A connection to the agent. It is closed, without a warning, when nobody has it any more: an event loop that is closed
    before its tasks have ended leaves nobody who would."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(socket.AF_UNIX, socket.SOCK_STREAM)

    def __del__(self) -> None:
        if self.fileno() >= 0:
            self.close()


def find(explicit: str | os.PathLike[str] | None = None) -> str:
    """The socket of `explicit`, a path or a `unix:` URI; else of TENURE_SOCKET; else of this user's own
    agent if there is one; else of the service. For root the service comes before /run/user/0."""
    return find_in(explicit, os.environ, os.geteuid(), _usable)


def find_in(
    explicit: str | os.PathLike[str] | None,
    environment: Mapping[str, str],
    uid: int,
    usable: Callable[[str], bool],
) -> str:
    named = os.fspath(explicit) if explicit is not None else environment.get("TENURE_SOCKET")
    if named or explicit is not None:
        return _parse(named or "")
    all_places = places(environment, uid)
    for place in all_places:
        if usable(place):
            return place
    return all_places[0] if environment.get("XDG_RUNTIME_DIR") else SERVICE_SOCKET


def places(environment: Mapping[str, str], uid: int) -> list[str]:
    """Where a socket is looked for, nearest first."""
    told = environment.get("XDG_RUNTIME_DIR")
    untold = f"/run/user/{uid}/tenured/api.sock"
    found = [os.path.join(told, "tenured/api.sock")] if told else []
    rest = [SERVICE_SOCKET, untold] if uid == 0 else [untold, f"/tmp/tenured-{uid}/api.sock", SERVICE_SOCKET]
    return found + [place for place in rest if place not in found]


def unreachable(path: str, error: OSError) -> AgentUnavailable:
    """The error for a socket that cannot be used, with the way out."""
    if isinstance(error, FileNotFoundError):
        others = [] if os.environ.get("TENURE_SOCKET") else places(os.environ, os.geteuid())
        besides = "".join(f", nor at {place}" for place in others if place != path) if path in others else ""
        text = (
            f"there is no agent socket at {path}{besides}: start the agent with `tenured` "
            "(as a service: `systemctl start tenured`), or name its socket in TENURE_SOCKET"
        )
    elif isinstance(error, ConnectionRefusedError):
        text = (
            f"no agent listens at {path} any more: start it again with `tenured` "
            "(as a service: `systemctl restart tenured`)"
        )
    elif isinstance(error, PermissionError):
        text = (
            f"you may not open the agent's socket at {path}: `tenure doctor` says how to be let in; "
            "or start an agent of your own and name its socket in TENURE_SOCKET"
        )
    elif isinstance(error, BlockingIOError):
        text = (
            f"the agent at {path} has too many connections waiting to be taken: try again, and see "
            "who makes them with `ss -xp`"
        )
    else:
        text = f"the agent at {path} went away before it answered: try again"
    return AgentUnavailable(text)


def _usable(path: str) -> bool:
    # Anybody may make a directory in /tmp: only one's own is trusted.
    directory = f"/tmp/tenured-{os.geteuid()}"
    if path.startswith(directory + "/"):
        try:
            status = os.lstat(directory)
        except OSError:
            return False
        if status.st_uid != os.geteuid() or not stat.S_ISDIR(status.st_mode):
            return False
    return os.path.exists(path)


def _parse(value: str) -> str:
    path, rule = value, ""
    if value.startswith("unix:"):
        path = value[len("unix:") :]
        if path.startswith("//"):
            path = path[2:]
            if not path.startswith("/"):
                rule = "a `unix:` URI has no host: write `unix:///path`"
    elif "://" in value:
        rule = "the only scheme is `unix:`"
    if not rule and not path:
        rule = "the path must not be empty"
    if not rule and len(os.fsencode(path)) > 107:
        rule = "its path must be shorter than 108 bytes"
    if rule:
        raise AgentUnavailable(f"{value!r} does not name a socket: {rule}")
    return path
