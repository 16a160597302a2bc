"""HTTP/1.1 as bytes: requests out, responses in. No input or output of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

REPLY_SIZE_MAX = 16 << 20
"""Replies larger than this are refused as not an agent's, bytes."""
_HEAD_SIZE_MAX = 64 << 10
# `json.dumps` makes one at each call.
_encode = json.JSONEncoder(separators=(",", ":")).encode


class NotHttp(ValueError):
    """These bytes are no answer of an agent."""


def request(method: str, target: str, body: Mapping[str, Any] | None = None, *, last_event_id: int | None = None) -> bytes:
    """A whole request."""
    content = b"" if body is None else _encode(body).encode()
    resume = "" if last_event_id is None else f"last-event-id: {last_event_id}\r\n"
    head = (
        f"{method} {target} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        f"{resume}content-length: {len(content)}\r\n\r\n"
    )
    return head.encode("latin-1") + content


class Response:
    """Puts the bytes of one response together.

    `body` grows while bytes are fed, so that a stream can be read before its end.
    """

    def __init__(self) -> None:
        self.status = 0
        """0 until the head is there."""
        self.headers: dict[str, str] = {}
        self.body = bytearray()
        self.complete = False
        self._rest = bytearray()
        self._chunked = False
        self._left: int | None = None
        self._expects = "size"
        self._to_the_end = False

    def feed(self, data: bytes) -> None:
        """Takes the next bytes; none at the connection's end."""
        if not data:
            if self._to_the_end and self.status:
                self.complete = True
                return
            raise ConnectionResetError("the agent closed the connection before it had answered")
        self._rest += data
        if not self.status:
            end = self._rest.find(b"\r\n\r\n")
            if end < 0:
                if len(self._rest) > _HEAD_SIZE_MAX or (len(self._rest) > 5 and not self._rest.startswith(b"HTTP/")):
                    raise NotHttp("it does not speak HTTP")
                return
            self._take_head(bytes(self._rest[:end]).decode("latin-1"))
            del self._rest[: end + 4]
        if self._chunked:
            self._take_chunks()
        else:
            taken = len(self._rest) if self._left is None else min(self._left, len(self._rest))
            self.body += self._rest[:taken]
            del self._rest[:taken]
            if self._left is not None:
                self._left -= taken
                self.complete = self._left == 0
        if len(self.body) > REPLY_SIZE_MAX:
            raise NotHttp(f"its reply is larger than {REPLY_SIZE_MAX} bytes")

    def take_body(self) -> bytes:
        """What has come of the body since the last call."""
        body, self.body = bytes(self.body), bytearray()
        return body

    def _take_head(self, head: str) -> None:
        first, *lines = head.split("\r\n")
        parts = first.split(" ", 2)
        if len(parts) < 2 or not parts[0].startswith("HTTP/1.") or not parts[1].isdigit():
            raise NotHttp("it does not speak HTTP")
        self.status = int(parts[1])
        for line in lines:
            name, _, value = line.partition(":")
            self.headers[name.lower()] = value.strip()
        self._chunked = self.headers.get("transfer-encoding", "").lower() == "chunked"
        length = self.headers.get("content-length")
        if self.status in (204, 304):
            self._left = 0
        elif length is not None and length.isdigit():
            self._left = int(length)
        elif not self._chunked:
            self._to_the_end = True

    def _take_chunks(self) -> None:
        while not self.complete:
            if self._left:
                taken = min(self._left, len(self._rest))
                self.body += self._rest[:taken]
                del self._rest[:taken]
                self._left -= taken
                if self._left:
                    return
            end = self._rest.find(b"\r\n")
            if end < 0:
                return
            line = bytes(self._rest[:end])
            del self._rest[: end + 2]
            if self._expects == "size":
                try:
                    self._left = int(line.split(b";")[0], 16)
                except ValueError:
                    raise NotHttp("a chunk of its reply has no size") from None
                self._expects = "end of chunk" if self._left else "trailer"
            elif self._expects == "end of chunk":
                self._expects = "size"
            else:
                # A line of the trailer, or the empty one at its end.
                self.complete = not line
